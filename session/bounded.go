// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// DefaultEndLimit is how long a level may take to end what it was told to end. The
// levels have limits of their own, at most 30 s, and say what is left; this one is for
// what they did not think of.
const DefaultEndLimit = 40 * time.Second

func overdue(limit time.Duration) error {
	return sandbox.Unended("end sandbox", fmt.Sprintf("its level is still at it after %s", limit))
}

// runBounded returns what run does, and waits no longer than the end limit for it once
// ctx has ended. Where that is not enough, later is called when run has returned after all.
// A panic of run's is the caller's, as if the caller had called it.
func (s *Session) runBounded(ctx context.Context, run func() (*sandbox.Result, error), later func()) (*sandbox.Result, error) {
	var res *sandbox.Result
	var err error
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		res, err = run()
	}()
	result := func() (*sandbox.Result, error) {
		if panicked != nil {
			panic(panicked)
		}
		return res, err
	}
	select {
	case <-done:
		return result()
	case <-ctx.Done():
	}
	select {
	case <-done:
		return result()
	case <-time.After(s.o.EndLimit):
	}
	go func() {
		<-done
		later()
	}()
	return nil, overdue(s.o.EndLimit)
}

// WithLimit is step, which is waited for no longer than limit.
func WithLimit(limit time.Duration, step func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		done := make(chan error, 1)
		go func() { done <- step(ctx) }()
		select {
		case err := <-done:
			return err
		case <-time.After(limit):
			return overdue(limit)
		}
	}
}
