// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// defaultMaxSandboxes is that of Options.MaxSandboxes, as a daemon has it for a key.
const defaultMaxSandboxes = 100

// endTimeout is how long Close waits for sandboxes to end.
const endTimeout = 30 * time.Second

// home is what the sandboxes of a Caisson stand on. It is made when the first one is asked
// for: one-shots need none of it. All in it is this process's alone, and ends with it.
type home struct {
	system, file *policy.File
	max          int
	state        *store.Dir
	audit        *audit.Log

	mu     sync.Mutex
	closed bool
	id     string // of the one key that the sandboxes are of
	boxes  *persistent.Sandboxes
	undo   []func() error
}

// sandboxes are those that c has, and the ID of their key.
func (c *Caisson) sandboxes(ctx context.Context) (*persistent.Sandboxes, string, error) {
	h := &c.home
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, "", &sandbox.Error{Op: "create sandbox", Kind: sandbox.ErrUnavailable, Problem: "this Caisson is closed", Hint: "open another one"}
	}
	if h.boxes == nil {
		if err := h.open(ctx); err != nil {
			return nil, "", errors.Join(err, h.drop())
		}
	}
	return h.boxes, h.id, nil
}

// open opens what sandboxes stand on. The caller holds mu.
func (h *home) open(ctx context.Context) error {
	h.id = registry.NewID("lib_", 20)
	place, err := h.state.Run(h.id)
	if err != nil {
		return err
	}
	h.undo = append(h.undo, place.Remove)
	db, err := registry.Open(ctx, place.Path())
	if err != nil {
		return err
	}
	h.undo = append(h.undo, db.Close)
	n := cmp.Or(h.max, defaultMaxSandboxes)
	boxes, err := persistent.OpenSandboxes(ctx, persistent.SandboxesOptions{
		Drivers: DriversIn(h.state.Path()), Journal: h.audit, State: session.DirState(h.state), Registry: db, Private: true,
		System: h.system, Policies: map[string]*policy.File{"": h.file},
		Templates: map[string]persistent.Template{persistent.BaseTemplate: {Root: true}},
		Profiles: map[string]persistent.Profile{"": {
			Limits: persistent.LivingLimits(), Timeout: persistent.Longest, MaxTimeout: persistent.Longest, Quota: persistent.Quota{Sandboxes: n, Paused: n},
		}},
	})
	if err != nil {
		return err
	}
	h.boxes = boxes
	return nil
}

// close ends all sandboxes, and lets none be made any more.
func (h *home) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	var err error
	if h.boxes != nil {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		err = h.boxes.Close(ctx)
		h.boxes = nil
	}
	return errors.Join(err, h.drop())
}

// drop undoes what open has made besides the sandboxes. The caller holds mu.
func (h *home) drop() error {
	var errs []error
	for i := len(h.undo) - 1; i >= 0; i-- {
		errs = append(errs, h.undo[i]())
	}
	h.undo = nil
	return errors.Join(errs...)
}
