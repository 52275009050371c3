// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
)

// aheadBox is a one-shot's sandbox that waits for its program.
type aheadBox interface {
	run(ctx context.Context, o *oneshot, ex *sandbox.Exec) (*sandbox.Result, error)
	// tightener takes tighter limits; nil where the level does not.
	tightener() sandbox.Tightener
	// answers says whether it can still be given away, as far as that is known without asking.
	answers() bool
	Usage(context.Context) (sandbox.Usage, error)
	Ended() <-chan struct{}
}

// prepare has a level make a sandbox that waits. Where the level does not stop a program
// before its first instruction, it is the guest agent that waits, and that has answered.
func prepare(ctx context.Context, r *Invocation, d sandbox.Driver, e *environment.Environment) (aheadBox, error) {
	if p, ok := d.(sandbox.Preparer); ok {
		box, err := p.Prepare(ctx, e.Spec)
		if err != nil {
			return nil, err
		}
		r.Undo.Add(WithLimit(r.Session.o.EndLimit, box.Destroy))
		return asleep{box}, nil
	}
	allowed := StartAllowance(&r.Caps)
	ctx, cancel := context.WithTimeout(ctx, allowed)
	defer cancel()
	spec, code := *e.Spec, ""
	if r.Program != nil { // a kernel inside goes by the size that a file of the host's had first
		code = e.Exec.Argv[len(r.Program.Argv)]
		spec.Mounts = slices.DeleteFunc(slices.Clone(spec.Mounts), func(m sandbox.Mount) bool { return m.Target == code })
	}
	box, err := d.Start(ctx, &spec)
	if errors.Is(err, sandbox.ErrUnsupported) {
		return nil, &sandbox.Error{Op: "pool", Kind: sandbox.ErrUnsupported, Problem: r.Plan.Isolation + " makes no sandboxes ahead", Cause: err,
			Hint: "leave out what it names, or take a level that does: process, gvisor, docker"}
	}
	if err != nil {
		return nil, InTime(err, allowed)
	}
	r.Undo.Add(WithLimit(r.Session.o.EndLimit, box.Destroy))
	client, err := agentOf(ctx, box, &spec)
	if err != nil {
		return nil, err
	}
	r.Undo.Add(func(context.Context) error { client.Close(); return nil }) // the box goes next
	if err := client.Health(ctx); err != nil {
		return nil, err
	}
	a := &attended{Instance: box, client: client, code: code}
	a.before, _ = box.Usage(ctx) // absent is 0
	return a, nil
}

// asleep is one whose program was stopped before its first instruction.
type asleep struct{ sandbox.Prepared }

func (b asleep) run(ctx context.Context, _ *oneshot, ex *sandbox.Exec) (*sandbox.Result, error) {
	return b.Run(ctx, ex)
}

func (b asleep) tightener() sandbox.Tightener {
	t, _ := b.Prepared.(sandbox.Tightener)
	return t
}

func (asleep) answers() bool { return true }

// attended is one whose agent waits.
type attended struct {
	sandbox.Instance
	client *guest.Client
	code   string        // where the source goes; empty without
	before sandbox.Usage // until it waited
}

func (b *attended) run(ctx context.Context, o *oneshot, ex *sandbox.Exec) (*sandbox.Result, error) {
	if err := Watchable(ctx, o.Call, &o.Plan, b.Usage); err != nil {
		return nil, err
	}
	client := b.client.Under(o.env.Spec.Limits)
	if b.code != "" {
		if err := client.WriteFile(ctx, b.code, bytes.NewReader(o.Call.Source.Code), sandbox.WriteOptions{Mode: 0o444}); err != nil {
			return nil, err
		}
	}
	return o.through(ctx, b, client, ex)
}

func (*attended) tightener() sandbox.Tightener { return nil }

func (b *attended) answers() bool { return b.client.Lost() == nil }

// Usage leaves out the processor time that making it took.
func (b *attended) Usage(ctx context.Context) (sandbox.Usage, error) {
	u, err := b.Instance.Usage(ctx)
	if u.CPU != nil && b.before.CPU != nil {
		own := max(0, *u.CPU-*b.before.CPU)
		u.CPU = &own
	}
	return u, err
}
