// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// Handle is one sandbox for the key that it belongs to. Its methods look the sandbox up anew:
// one that has ended, that another key has, or that never was is ErrNotFound. It may be used
// from many goroutines.
type Handle struct {
	boxes *Sandboxes
	key   *Key
	id    string
}

// Handle is a key's sandbox by its ID. Nothing is looked up yet.
func (b *Sandboxes) Handle(k *Key, id string) *Handle { return &Handle{boxes: b, key: k, id: id} }

// find returns the sandbox.
func (h *Handle) find(ctx context.Context) (*managed, error) {
	b := h.boxes
	l := b.inventory.get(h.id)
	if l != nil && l.owner == h.key.ID && l.state() != "" {
		return l, nil
	}
	e := &sandbox.Error{Op: "sandbox " + sandbox.Quoted(sandbox.Clip(h.id, 64)), Kind: sandbox.ErrNotFound, Problem: "there is none",
		Hint: "look for it in the list of sandboxes, where a key sees its own alone"}
	if rec, err := b.o.Registry.Get(ctx, h.id); err == nil && rec.Owner == h.key.ID && rec.State == registry.Ended {
		e.Problem, e.Hint = "it has ended: "+rec.Reason, ""
	}
	return nil, e
}

// change has do change the sandbox while no other call changes it, and returns what it is then.
func (h *Handle) change(ctx context.Context, do func(locked) error) (*Sandbox, error) {
	found, err := h.find(ctx)
	if err != nil {
		return nil, err
	}
	l, err := found.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer l.unlock()
	if l.state() == registry.Ended {
		return nil, l.gone()
	}
	if err := do(l); err != nil {
		return nil, err
	}
	return l.record(), nil
}

// Get returns what is known of the sandbox. Of one that has ended the error says for a day
// why it ended.
func (h *Handle) Get(ctx context.Context) (*Sandbox, error) {
	l, err := h.find(ctx)
	if err != nil {
		return nil, err
	}
	return l.record(), nil
}

// Kill ends the sandbox, whatever it does, and returns when nothing of it is left.
func (h *Handle) Kill(ctx context.Context) error {
	_, err := h.change(ctx, func(l locked) error { return l.end(ctx, "it was killed by its owner") })
	return err
}
