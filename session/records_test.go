// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
)

// A key whose records have taken what they may begins nothing more, whether it is
// allowed or refused, until a day is over; what it has is its own still, and other keys
// go on.
func TestRecordsOfAKey(t *testing.T) {
	const most = 256 << 10
	h := newHome(t, func(o *SandboxesOptions) {
		p := DefaultProfile()
		p.Quota.Records = most
		o.Profiles = map[string]Profile{"": p}
	})
	s := h.create(t, Create{})
	run := func(k *Key, id, line string) error {
		c := &Call{}
		c.Argv = []string{"sh", "-c", line}
		_, err := h.Exec(t.Context(), k, id, c, IO{})
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
	theirs, err := h.Create(t.Context(), other, Create{Timeout: 23 * time.Hour})
	if err == nil {
		err = run(other, theirs.ID, "true")
	}
	if err != nil {
		t.Errorf("another key: %v", err)
	}
	if _, err := h.Get(t.Context(), h.key, s.ID); err != nil {
		t.Error(err)
	}
	if err := h.Kill(t.Context(), h.key, s.ID); err != nil {
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
	r := newRecords(&SandboxesOptions{Clock: clock})
	k := &Key{ID: "k1"}
	r.know(k, 100)
	full := func() bool { _, err := r.room(k.Actor()); return err != nil }
	for hour := range 60 {
		// 4 an hour are 96 a day, and 5 are 120.
		each, want := int64(4), false
		if hour >= 25 {
			each, want = 5, hour >= 25+3
		}
		r.wrote(k.Actor(), each)
		r.wrote("key:another", 1000)
		if full() != want {
			t.Fatalf("hour %d: full %t", hour, full())
		}
		clock.move(time.Hour)
	}
	clock.move(48 * time.Hour)
	if full() {
		t.Error("after two days")
	}
	r.wrote(k.Actor(), 100)
	clock.move(-5 * time.Hour) // somebody sets it back
	if !full() {
		t.Error("a clock that was set back forgets")
	}
	r.know(k, 0)
	if full() {
		t.Error("0 is no bound")
	}
}
