// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// busy keeps a tree of processes working, in sessions of their own, and forks.
const busy = `for i in 1 2 3; do setsid sh -c 'while :; do (:); done' & done; wait`

func TestFreezeStopsEverything(t *testing.T) {
	h := host(t)
	if ok, why := h.CanFreeze(); !ok {
		t.Fatal(why)
	}
	g := group(t, h, Limits{Pids: 200})
	start(t, g, "exec", "sh", "-c", busy)
	used := func() time.Duration { return *g.CPU() }
	until(t, "enough processes", func() bool { pids, _ := g.Pids(); return len(pids) >= 4 }) // not pids.current: that counts threads
	for range 3 {                                                                            // and again after a thaw
		for range 2 { // idempotent
			if err := h.Freeze(t.Context(), g); err != nil {
				t.Fatal(err)
			}
		}
		pids, _ := g.Pids()
		before := used()
		<-time.After(50 * time.Millisecond) // five thousand forks' worth
		after := used()
		// What ran takes all of that time, on each processor; a kernel may still add what
		// was used before.
		if now, _ := g.Pids(); after-before > 10*time.Millisecond || len(pids) == 0 || !slices.Equal(now, pids) {
			t.Errorf("it used %v while it stood still: %v, then %v", after-before, pids, now)
		}
		for range 2 {
			if err := g.Thaw(); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "it goes on", func() bool { return used() > after+time.Millisecond })
	}
}

// TestKillTakesFrozen: also by a process that finds the group by its name, as
// after the death of the owner who froze it.
func TestKillTakesFrozen(t *testing.T) {
	h := host(t)
	for name, by := range map[string]func(g *Group) *Group{
		"its owner": func(g *Group) *Group { return g },
		"by name":   func(g *Group) *Group { g, err := Open(named(Detect(), g.Name())); must(t, err); return g },
		"by directories": func(g *Group) *Group {
			g, err := Open(g.Dirs())
			must(t, err)
			return g
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := group(t, h, Limits{Pids: 200})
			p := start(t, g, "exec", "sh", "-c", busy)
			until(t, "enough processes", func() bool { pids, _ := g.Pids(); return len(pids) >= 4 }) // not pids.current: that counts threads
			must(t, h.Freeze(t.Context(), g))
			dirs := g.Dirs()
			taken := by(g)
			must(t, taken.Kill(context.Background()))
			_ = p.Wait()
			must(t, taken.Remove(t.Context()))
			for _, dir := range dirs {
				if exists(dir) {
					t.Errorf("%s is left", filepath.Base(filepath.Dir(filepath.Dir(dir))))
				}
			}
		})
	}
}

// TestThawOfTheLiving: a group that was never frozen has nothing to thaw, nor
// has one that is gone.
func TestThawOfTheLiving(t *testing.T) {
	g := group(t, host(t), Limits{Pids: 10})
	must(t, g.Thaw())
	must(t, g.Remove(t.Context()))
	must(t, g.Thaw())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
