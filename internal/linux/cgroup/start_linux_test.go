// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
)

// With many threads held at the same time the first one is among them sooner or
// later.
func TestLesserThreadIsNeverTheFirst(t *testing.T) {
	const rounds, width = 50, 32
	var first atomic.Int32
	for range rounds {
		var inside sync.WaitGroup
		inside.Add(width)
		var done sync.WaitGroup
		for range width {
			done.Add(1)
			threads.Lesser(func() bool {
				defer done.Done()
				if unix.Gettid() == os.Getpid() {
					first.Add(1)
				}
				inside.Done()
				inside.Wait()
				return true
			})
		}
		done.Wait()
	}
	if n := first.Load(); n > 0 {
		t.Errorf("%d of %d ran on the first thread", n, rounds*width)
	}
}

// Many start at once: none may take another's group for the way out.
func TestStartAtOnceStaysOutside(t *testing.T) {
	h := host(t)
	const n = 24
	var groups [n]*Group
	for i := range groups {
		groups[i] = group(t, h, Limits{Pids: 100})
	}
	before := read("/proc/self/cgroup")
	var wait sync.WaitGroup
	for i, g := range groups {
		wait.Go(func() {
			for range 4 {
				if h.Version == 1 {
					outside, err := g.Outside()
					if err != nil || strings.Contains(fmt.Sprint(outside), parentName) {
						t.Errorf("the way out is said to be %v, %v", outside, err)
					}
				}
				cmd := exec.Command("/bin/true")
				if err := g.Start(cmd); err != nil {
					t.Errorf("start %d: %v", i, err)
				} else if err := cmd.Wait(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if after := read("/proc/self/cgroup"); after != before {
		t.Errorf("we were in\n%s\nand are in\n%s", before, after)
	}
	for i, g := range groups {
		if pids, err := g.Pids(); err != nil || len(pids) > 0 {
			t.Errorf("group %d holds %v, %v", i, pids, err)
		}
	}
}
