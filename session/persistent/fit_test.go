// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

func TestFit(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		left cgroup.Left
		fit  int // how many
	}{
		"no bound":      {cgroup.Left{}, 3},
		"much":          {cgroup.Left{Memory: 1024 * mib, MemoryMax: 2048 * mib, Tasks: 1000, TasksMax: 1000}, 3},
		"memory of two": {cgroup.Left{Memory: (128 + 2*64) * mib, MemoryMax: 2048 * mib}, 2},
		"tasks of one":  {cgroup.Left{Tasks: 79, TasksMax: 100}, 1},
		"none":          {cgroup.Left{Memory: 100 * mib, MemoryMax: 2048 * mib}, 0},
	} {
		f := &fit{left: func() cgroup.Left { return c.left }}
		var started []func()
		for range 3 {
			done, err := f.take()
			if err == nil {
				started = append(started, done)
			} else if !errors.Is(err, sandbox.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(started) != c.fit {
			t.Errorf("%s: %d fit, want %d", name, len(started), c.fit)
		}
		for _, done := range started {
			done()
			done()
		}
		if f.starting != 0 {
			t.Errorf("%s: %d are left", name, f.starting)
		}
	}
}

// A sandbox that would not fit is refused before the level makes it, one of one call too, and
// nothing counts for it.
func TestNoRoom(t *testing.T) {
	var full atomic.Bool
	h := newHome(t, func(o *SandboxesOptions) {
		o.Left = func() cgroup.Left {
			if full.Load() {
				return cgroup.Left{Memory: 1 << 20, MemoryMax: 2 << 30}
			}
			return cgroup.Left{Memory: 1 << 30, MemoryMax: 2 << 30}
		}
	})
	s := h.create(t, Create{})
	full.Store(true)
	if _, err := h.Create(t.Context(), h.key, Create{}); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "1 MiB are left of the memory of 2 GiB") {
		t.Errorf("%v", err)
	}
	if _, err := h.Run(t.Context(), h.key, "", &session.Call{Call: policy.Call{Argv: []string{"true"}}}, session.IO{}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if got := h.sh(t, s.ID, "echo on"); got != "on\n" {
		t.Errorf("%q", got)
	}
	full.Store(false)
	h.create(t, Create{})
	if h.fit.starting != 0 {
		t.Errorf("%d are being started", h.fit.starting)
	}
}
