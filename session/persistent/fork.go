// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Forked is one copy of a sandbox, or why there is none.
type Forked struct {
	Sandbox *Sandbox
	Err     error
}

// maxForks is how many copies are made at once.
const maxForks = 100

// Fork makes count copies of the running sandbox, each with its files, memory and
// processes as they were at one moment, and timeout to live; 0 is the profile's.
// The sandbox itself goes on. Each copy is a sandbox of its own, which quotas and
// policies may refuse by itself. Who leaves before all are made leaves none behind.
func (h *Handle) Fork(ctx context.Context, count int, timeout time.Duration) ([]Forked, error) {
	b, k := h.boxes, h.key
	if count < 1 || count > maxForks {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "fork", "1 to %d copies can be made", maxForks)
	}
	var err error
	s := &Snapshot{Owner: k.ID}
	s.Sandbox, err = h.change(ctx, func(l locked) (err error) {
		_, s.Kept, err = l.copyDown(ctx, "fork_sandbox", l.writeMemory)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]Forked, count)
	var all sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := range out {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if out[i].Err = awaited(ctx); out[i].Err != nil {
				return
			}
			c := Create{Metadata: s.Sandbox.Metadata, Notes: s.Sandbox.Notes,
				Lifetime: Lifetime{Timeout: timeout, Idle: s.Sandbox.Idle, OnTimeout: s.Sandbox.OnTimeout, AutoResume: s.Sandbox.AutoResume}}
			out[i].Sandbox, out[i].Err = (&creation{b: b, key: k, want: c, from: s}).run(ctx)
		})
	}
	all.Wait()
	err = errors.Join(awaited(ctx), b.kept.drop(s.Kept))
	if err == nil {
		return out, nil
	}
	for _, f := range out { // the caller is not told of them
		if f.Sandbox != nil {
			err = errors.Join(err, b.Withdraw(ctx, f.Sandbox.ID))
		}
	}
	return nil, err
}
