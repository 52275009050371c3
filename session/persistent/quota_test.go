// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

func TestQuota(t *testing.T) {
	p := DefaultProfile()
	p.Quota = Quota{Sandboxes: 2, Memory: 1200 << 20}
	h := newHome(t, func(o *SandboxesOptions) { o.Profiles = map[string]Profile{"": p} })
	small := sandbox.Limits{Memory: 100 << 20, Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true}}
	first := h.create(t, Create{})
	if got := first.Limits.Memory; got != 512<<20 {
		t.Errorf("memory %d", got)
	}
	h.create(t, Create{Limits: small})
	if _, err := h.Create(t.Context(), h.key, Create{Limits: small}); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("a third: %v", err)
	}
	if _, err := h.Create(t.Context(), h.newKey(t, "other"), Create{}); err != nil {
		t.Errorf("another key has its own: %v", err)
	}
	if err := h.Handle(h.key, first.ID).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.create(t, Create{Limits: small})
}

// TestQuotaOfPaused: what is paused with its memory where it is still counts for
// it, and a burst of pauses gets no more places than there are.
func TestQuotaOfPaused(t *testing.T) {
	p := DefaultProfile()
	p.Quota = Quota{Sandboxes: 8, Paused: 2, Memory: 450 << 20}
	h := newHome(t, func(o *SandboxesOptions) { o.Profiles = map[string]Profile{"": p} })
	small := sandbox.Limits{Memory: 100 << 20, Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true}}
	var all []*Sandbox
	for range 4 {
		all = append(all, h.create(t, Create{Limits: small}))
	}
	var wait sync.WaitGroup
	var paused, refused atomic.Int32
	for _, s := range all {
		wait.Go(func() {
			switch _, err := h.Handle(h.key, s.ID).Pause(t.Context()); {
			case err == nil:
				paused.Add(1)
			case errors.Is(err, sandbox.ErrExhausted):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if paused.Load() != 2 || refused.Load() != 2 {
		t.Errorf("%d were paused and %d refused, where there are two places", paused.Load(), refused.Load())
	}
	if _, err := h.Create(t.Context(), h.key, Create{Limits: small}); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("the memory of the paused, which they hold, was given again: %v", err)
	}
}
