// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"cmp"
	"context"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Pool keeps sandboxes ready, so that a request finds one that only has to be
// told what to run. Each is used once, for one request, and is made as that
// request's own would have been. On the process level its program waits before its
// first instruction. On gVisor and Docker it is the agent inside that waits and has
// answered; it starts the program, whose code lies in a file of its own there. What
// the level cannot make ahead, Open refuses by name (ErrUnsupported).
type Pool struct {
	// Create, where it is not nil, says that the pool is for [Caisson.Create], and For does not
	// matter: each call that asks for the same gets a sandbox that waits. Its Env, Timeout, Idle
	// and Actor do not matter. It may have an image by its name, a template, with what that
	// starts, and a network without secrets; no mounts and no workspace. MaxAge and MaxMemory
	// are not set.
	Create *Create
	// For is a request of the kind that the pool serves. Its Command or Code,
	// Args, Env, Stdin and outputs do not matter, nor do limits of wall, cpu_time
	// and output. On the process level those of memory, cpus and processes may be
	// tighter: a sandbox is held to them when the request gets it. A request that differs in anything
	// else (looser or other limits, level, actor, language) runs as it would
	// without the pool. It may have an image by its name, or a template; one made of what the
	// name meant before is not used. It has no mounts, workspace, network and nothing to
	// collect: what those name is looked at when the request comes.
	For Request
	// Ready is how many sandboxes wait at most, 1 to 128; 4 when it is 0. On the process
	// level each is three processes and a thread of this program; on gVisor it is a
	// kernel of some 50 MB, too.
	Ready int
	// MaxAge is how long one waits at most, a second to a day; 5 minutes when it
	// is 0. It shows the host's toolchain as it was when it was made.
	MaxAge time.Duration
	// MaxMemory is how many bytes all that wait may hold together; 0 is no bound.
	MaxMemory int64
}

// PoolState is how a pool does; see [session.PoolState].
type PoolState = session.PoolState

// Pools says how the pools of Options.Pools do, in their order. Those for Create are one
// together, and each says how that does.
func (c *Caisson) Pools() []PoolState {
	states := make([]PoolState, len(c.pools))
	for i, state := range c.pools {
		states[i] = state()
	}
	return states
}

// keep starts a pool.
func (c *Caisson) keep(ctx context.Context, p *Pool) error {
	if p.Create != nil {
		return c.keepSandboxes(ctx, p)
	}
	r := p.For
	r.Stdin, r.Stdout, r.Stderr, r.Args, r.Env = nil, nil, nil, nil, nil
	switch {
	case len(r.Command) > 0:
	case r.Language != "" || r.Code != "":
		if r.Code == "" {
			r.Code = "\n" // whatever comes
		}
	default:
		r.Command = []string{"true"}
	}
	call, _, err := r.call()
	if err != nil {
		return err
	}
	pool, err := c.session.Keep(ctx, session.PoolOptions{Like: *call, Ready: p.Ready, Age: p.MaxAge, Memory: p.MaxMemory})
	if err != nil {
		return err
	}
	c.pools, c.oneshots = append(c.pools, pool.State), append(c.oneshots, pool)
	return nil
}

// keepSandboxes starts a pool for Create.
func (c *Caisson) keepSandboxes(ctx context.Context, p *Pool) error {
	if p.MaxAge != 0 || p.MaxMemory != 0 {
		return &sandbox.Error{Op: "pool", Kind: sandbox.ErrInvalid, Problem: "the age and the memory of one for Create cannot be chosen", Hint: "leave Pool.MaxAge and Pool.MaxMemory out"}
	}
	boxes, id, err := c.sandboxes(ctx)
	if err != nil {
		return err
	}
	wishes, err := p.Create.wishes()
	if err != nil {
		return err
	}
	if err := boxes.KeepReady(ctx, p.Create.key(id), wishes, cmp.Or(p.Ready, defaultReady)); err != nil {
		return forGo("Create", err)
	}
	c.pools = append(c.pools, boxes.WarmPool)
	return nil
}

// defaultReady is Pool.Ready's.
const defaultReady = 4
