// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// A key whose records have taken what they may begins nothing more, whether it is
// allowed or refused, until a day is over; what it has is its own still, and other keys
// go on.
func TestRecordsOfAKey(t *testing.T) {
	const maximum = 256 << 10
	h := newHome(t, func(o *SandboxesOptions) {
		p := DefaultProfile()
		p.Quota.Records = maximum
		o.Profiles = map[string]Profile{"": p}
	})
	s := h.create(t, Create{})
	run := func(k *Key, id, line string) error {
		c := &session.Call{}
		c.Argv = []string{"sh", "-c", line}
		_, err := h.Handle(k, id).Exec(t.Context(), c, session.IO{})
		return err
	}
	n := 0
	for err := error(nil); err == nil && n < 20; n++ {
		if err = run(h.key, s.ID, "head -c 60000 /dev/urandom; exit 1"); err != nil && !errors.Is(err, sandbox.ErrExhausted) {
			t.Fatal(err)
		}
	}
	if n < 4 || n > 6 {
		t.Errorf("%d programs, each of which wrote some 60 KB, were let through", n-1)
	}
	for what, try := range map[string]func() error{
		"a program":          func() error { return run(h.key, s.ID, "true") },
		"a sandbox":          func() error { _, err := h.Create(t.Context(), h.key, Create{}); return err },
		"a tool":             func() error { _, err := h.tool(t, "run_command", `{"command":"true"}`); return err },
		"no tool":            func() error { _, err := h.tool(t, "nothing", `{}`); return err },
		"arguments of none":  func() error { _, err := h.tool(t, "run_command", `{}`); return err },
		"what is no program": func() error { _, err := h.tool(t, "run_command", `{`); return err },
	} {
		if err := try(); !errors.Is(err, sandbox.ErrExhausted) || errors.Is(err, sandbox.ErrDenied) || errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	told := 0
	for r, err := range h.log.Query(t.Context(), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Ending != nil && strings.Contains(r.Ending.Error, "records of a day") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("it is recorded %d times that there was no room, want once in an hour", told)
	}
	other := h.newKey(t, "other")
	theirs, err := h.Create(t.Context(), other, Create{Lifetime: Lifetime{Timeout: 23 * time.Hour}})
	if err == nil {
		err = run(other, theirs.ID, "true")
	}
	if err != nil {
		t.Errorf("another key: %v", err)
	}
	if _, err := h.Handle(h.key, s.ID).Get(t.Context()); err != nil {
		t.Error(err)
	}
	if err := h.Handle(h.key, s.ID).Kill(t.Context()); err != nil {
		t.Error(err)
	}
	h.clock.move(22 * time.Hour)
	if _, err := h.Create(t.Context(), h.key, Create{}); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("after 22 hours: %v", err)
	}
	h.clock.move(3 * time.Hour)
	if _, err := h.Create(t.Context(), h.key, Create{}); err != nil {
		t.Errorf("after 25 hours: %v", err)
	}
}

// What an actor has written is known to the hour, for a day.
func TestRecordsAreCountedForADay(t *testing.T) {
	clock := newHandClock()
	r, err := newRecords(t.Context(), &SandboxesOptions{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	k := &Key{ID: "k1"}
	r.know(k, 100)
	full := func() bool { _, err := r.room(k.ID); return err != nil }
	for hour := range 60 {
		// 4 an hour are 96 a day, and 5 are 120.
		each, want := int64(4), false
		if hour >= 25 {
			each, want = 5, hour >= 25+3
		}
		r.wrote(k.ID, each)
		r.wrote("another", 1000)
		if full() != want {
			t.Fatalf("hour %d: full %t", hour, full())
		}
		clock.move(time.Hour)
	}
	clock.move(48 * time.Hour)
	if full() {
		t.Error("after two days")
	}
	r.wrote(k.ID, 100)
	clock.move(-5 * time.Hour) // the clock is set back
	if !full() {
		t.Error("a clock that was set back forgets")
	}
	r.know(k, 0)
	if full() {
		t.Error("0 is no bound")
	}
}

// What a key has written is its own: one that comes after it has its name, and not its
// bound, while sandboxes of the first still write. It is known after a restart, with what
// was written by hours that are still of the day.
func TestRecordsAreTheKeys(t *testing.T) {
	profile := func(o *SandboxesOptions) {
		p := DefaultProfile()
		p.Quota.Records = 128 << 10
		o.Profiles = map[string]Profile{"": p}
	}
	h := newHome(t, profile)
	begins := func(k *Key) error {
		_, err := h.Create(t.Context(), k, Create{})
		return err
	}
	s := h.create(t, Create{Lifetime: Lifetime{Timeout: 20 * time.Hour}})
	fill := func() {
		for range 3 {
			c := &session.Call{}
			c.Argv = []string{"sh", "-c", "head -c 60000 /dev/urandom"}
			if _, err := h.Handle(h.key, s.ID).Exec(t.Context(), c, session.IO{}); err != nil && !errors.Is(err, sandbox.ErrExhausted) {
				t.Fatal(err)
			}
		}
	}
	fill()
	if _, err := h.keys.Revoke(t.Context(), h.key.ID); err != nil {
		t.Fatal(err)
	}
	next := h.newKey(t, h.key.Name)
	if err := begins(h.key); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("the first key has written what it may: %v", err)
	}
	if err := begins(next); err != nil {
		t.Errorf("the next of its name has written nothing: %v", err)
	}
	reopen := func() {
		if err := h.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		h.open(t, profile)
	}
	reopen()
	if err := begins(h.key); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("after a restart: %v", err)
	}
	if err := begins(next); err != nil {
		t.Errorf("the next of its name, after a restart: %v", err)
	}
	h.clock.move(25 * time.Hour)
	reopen()
	if err := begins(h.key); err != nil {
		t.Errorf("after a restart, 25 hours later: %v", err)
	}
}

// An owner that is killed takes little with it of what was counted.
func TestRecordsSurviveAKill(t *testing.T) {
	h := newHome(t, nil)
	o := &SandboxesOptions{Clock: h.clock, Journal: h.log, Registry: h.reg}
	const maximum = 64 << 10
	counted := func() int64 {
		r, err := newRecords(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return r.at("k").hours[r.now()%day]
	}
	r, err := newRecords(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r.know(&Key{ID: "k"}, maximum)
	for n := int64(100); n <= 5000; n += 100 {
		r.wrote("k", 100)
		if err := r.admit(t.Context(), &audit.Intent{Account: "k"}); err != nil {
			t.Fatal(err)
		}
		if lost := n - counted(); lost < 0 || lost >= maximum/unsavedPart {
			t.Fatalf("of %d bytes %d would be lost", n, lost)
		}
	}
}
