// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"testing"

	"github.com/caisson-run/caisson/image"
)

// A sandbox that does not have what its template's warmup does says so, and why.
func TestUnwarmed(t *testing.T) {
	h := newHome(t, nil)
	h.aTemplate(t, h.key.ID, "warm", "1", image.Config{Warmup: "1/0"})
	h.aTemplate(t, h.key.ID, "plain", "2", image.Config{Start: "sleep 1000"})
	if s := h.create(t, Create{Template: "plain"}); s.Unwarmed != "" {
		t.Errorf("without a warmup: %s", s.Unwarmed)
	}
	s := h.create(t, Create{Template: "warm"})
	if want := "no memory of its template is kept for such a sandbox"; s.Unwarmed != want { // the fake level takes no snapshot
		t.Errorf("%q, want %q", s.Unwarmed, want)
	}
	in := h.inventory.get(s.ID).in
	in.caps.Snapshot = true
	if got, want := h.memories.unwarmed(in, s), "the memory of its template was not there yet"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	h.memories.of[h.memories.key(in, s)] = &memory{why: errors.New("ZeroDivisionError")}
	if got, want := h.memories.unwarmed(in, s), "ZeroDivisionError"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if in.warm = true; h.memories.unwarmed(in, s) != "" {
		t.Error("it began with that memory")
	}
}

// A copy has what that has which it is a copy of, and says no more: not that its template's
// memory was not there.
func TestCopiesAreAsWarm(t *testing.T) {
	f := newTwofoldHome(t, Quota{})
	f.aTemplate(t, f.key.ID, "warm", "1", image.Config{Warmup: "1/0"})
	s := f.create(t, Create{Template: "warm"})
	for _, why := range []string{"", "ZeroDivisionError"} {
		l := f.inventory.get(s.ID)
		l.mu.Lock()
		l.rec.Unwarmed = why
		l.mu.Unlock()
		snap, err := f.Handle(f.key, s.ID).Snapshot(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := f.create(t, Create{Snapshot: snap.ID}).Unwarmed; got != why {
			t.Errorf("of a snapshot: %q, want %q", got, why)
		}
		forks, err := f.Handle(f.key, s.ID).Fork(t.Context(), 1, 0)
		if err != nil || forks[0].Err != nil {
			t.Fatal(forks, err)
		}
		if got := forks[0].Sandbox.Unwarmed; got != why {
			t.Errorf("of a fork: %q, want %q", got, why)
		}
	}
}
