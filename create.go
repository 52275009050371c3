// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"cmp"
	"context"
	"time"

	"github.com/caisson-run/caisson/session/persistent"
)

// Create says what sandbox is wanted. The zero value has this host's toolchain, an empty
// home, no network and no file of the host, and lives until Kill.
type Create struct {
	// Isolation, Image, Mounts, Workspace, GitWrite, Allow, Secrets, UpstreamCA and Actor
	// are those of a [Request].
	Isolation  string
	Image      string
	Mounts     []Mount
	Workspace  *Mount
	GitWrite   bool
	Allow      []string
	Secrets    []Secret
	UpstreamCA string
	Actor      string

	// Env is set for every program in it, on top of the few variables that each gets.
	Env map[string]string

	// Limits are those of all that runs in it together; a field that is 0 keeps its default
	// ([persistent.LivingLimits]). Wall is how long it runs in all its life, and Output what
	// one program may write to a stream. BestEffort is that of a [Request].
	Limits     Limits
	BestEffort bool

	// Timeout is how long it lives, unless Extend gives it more. Idle ends it earlier when
	// nothing has run and no file was moved for so long. 0 is without end.
	Timeout, Idle time.Duration
}

// Create makes a sandbox that goes on between calls, and starts it. It ends with Kill, with
// its Timeout, or with c; and with this process, however that ends.
//
// Errors are *sandbox.Error: ErrDenied with the rule that refuses it, ErrUnsupported for
// what the level cannot do or hold, ErrExhausted where [Options.MaxSandboxes] run, ErrInvalid for
// what cannot be meant.
func (c *Caisson) Create(ctx context.Context, w Create) (*Sandbox, error) {
	s, err := c.create(ctx, &w)
	return s, forGo("Create", err)
}

func (c *Caisson) create(ctx context.Context, w *Create) (*Sandbox, error) {
	boxes, id, err := c.sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	wishes, err := w.wishes()
	if err != nil {
		return nil, err
	}
	wishes.Lifetime = persistent.Lifetime{Timeout: cmp.Or(w.Timeout, persistent.Longest), Idle: w.Idle}
	key := w.key(id)
	made, err := boxes.Create(ctx, key, wishes)
	if err != nil {
		return nil, err
	}
	return &Sandbox{ID: made.ID, handle: boxes.Handle(key, made.ID)}, nil
}

// key is who asks.
func (w *Create) key(id string) *persistent.Key {
	return &persistent.Key{ID: id, Name: id, Owner: cmp.Or(w.Actor, frontend)}
}

// frontend is what records call this way in.
const frontend = "library"

// wishes are w in the road's words.
func (w *Create) wishes() (persistent.Create, error) {
	r := Request{
		Image: w.Image, Mounts: w.Mounts, Workspace: w.Workspace, GitWrite: w.GitWrite, Secrets: w.Secrets, UpstreamCA: w.UpstreamCA, BestEffort: w.BestEffort,
	}
	call, _, err := r.call()
	if err != nil {
		return persistent.Create{}, err
	}
	c := persistent.Create{Frontend: frontend, Env: w.Env, Limits: explicit(w.Limits), Isolation: w.Isolation, Wishes: &call.Call}
	if len(w.Allow) > 0 {
		c.Network = &persistent.NetworkWish{Allow: w.Allow}
	}
	return c, nil
}
