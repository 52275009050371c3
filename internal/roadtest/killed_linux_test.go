// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// TestOwner is what TestKilledOwner kills: it makes and ends sandboxes until then.
func TestOwner(t *testing.T) {
	o := asOwner(t)
	s, _, err := o.Acquire(t.Context(), o.key, "paused", persistent.Create{})
	o.must(err)
	o.sh(t, s.ID, "date +%N >> ~/file; cat ~/file")
	s, err = o.Handle(o.key, s.ID).Pause(t.Context())
	o.must(err)
	o.say("paused %s", s.ID)
	o.churn(t, func(id string) {
		o.say("made %s", id)
		o.script(t, id, "sleep 1000 & exit 0")
	})
}

// An owner that is killed at any moment leaves nothing that runs, every sandbox
// that a client has heard of is said to have ended, and a paused one goes on.
func TestKilledOwner(t *testing.T) {
	times := 1
	if n, err := strconv.Atoi(os.Getenv("CAISSON_TEST_KILLS")); err == nil {
		times = n
	}
	dir := filepath.Join(t.TempDir(), "state")
	for i := range times {
		paused, made := kill(t, "TestOwner", dir, "paused", "TMPDIR="+t.TempDir()) // where it leaves what it cannot remove
		if t.Failed() {
			return
		}
		nobodyHas(t, dir)
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			l := openLiving(t, dir, "gvisor")
			for _, id := range made {
				_, err := l.Handle(l.key, id).Get(t.Context())
				if !errors.Is(err, sandbox.ErrNotFound) || !strings.Contains(err.Error(), "it has ended: ") {
					t.Errorf("of a sandbox that was made is known: %v", err)
				}
			}
			s, err := l.Handle(l.key, paused).Resume(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Fields(l.sh(t, s.ID, "cat ~/file")); len(got) != i+1 {
				t.Errorf("the paused one's file has %d lines, want %d", len(got), i+1)
			}
			if _, err := l.Handle(l.key, s.ID).Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			page, err := l.List(t.Context(), l.key, persistent.Filter{States: []registry.State{registry.Running}})
			if err != nil || len(page.Sandboxes) != 0 {
				t.Errorf("running after the kill: %v, %v", page, err)
			}
			if left, _ := os.ReadDir(filepath.Join(dir, "kept")); len(left) != 1 {
				t.Errorf("%d snapshots are kept, want 1", len(left))
			}
		})
	}
}
