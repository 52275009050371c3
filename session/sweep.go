// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
)

// sweep takes away what dead owners left, once per session, before its first
// run. What cannot be removed is left for the next sweep and never keeps a run
// from starting: it belongs to another call.
func (s *Session) sweep(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.swept {
		return
	}
	s.swept = true
	_ = Sweep(ctx, s.o.State, s.o.Drivers)
}

// Sweep takes away what dead owners left in a state directory, and outside
// of it.
func Sweep(ctx context.Context, state State, drivers map[string]sandbox.Driver) error {
	_, err := state.Sweep(ctx, func(ctx context.Context, path string) error {
		var errs []error
		for _, d := range drivers {
			if sw, ok := d.(sandbox.Sweeper); ok {
				errs = append(errs, sw.Sweep(ctx, filepath.Base(path), path))
			}
		}
		return errors.Join(errs...)
	})
	err = errors.Join(err, sweepGroups(ctx, state, drivers))
	// Afterwards, since what still runs of a dead owner's could make a file of its own
	// where a placeholder was: its mount goes with the name.
	return errors.Join(err, hostpath.Sweep(environment.PlaceholdersIn(state.Path())))
}

// sweepGroups takes away what is left of sandboxes whose directory is gone, as it is when
// their owner gave up on their end.
func sweepGroups(ctx context.Context, state State, drivers map[string]sandbox.Driver) error {
	some, err := state.RunPath("any")
	if err != nil {
		return err
	}
	owned := func(id string) bool {
		path, err := state.RunPath(id)
		if err == nil {
			_, err = os.Lstat(path)
		}
		return !errors.Is(err, fs.ErrNotExist)
	}
	var errs []error
	for _, d := range drivers {
		if sw, ok := d.(sandbox.EmptySweeper); ok {
			errs = append(errs, sw.SweepEmpty(ctx, filepath.Dir(some), owned))
		}
	}
	return errors.Join(errs...)
}
