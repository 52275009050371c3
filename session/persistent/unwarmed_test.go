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
