// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// warmSandbox is a sandbox that was made before it is asked for, in which nothing has run.
type warmSandbox struct {
	*session.Spare
	box    sandbox.Instance
	client *guest.Client
	told   map[string]string // the variables that its agent knows
	ready  bool              // what its template starts runs in it, and is ready
	warm   bool              // it began with the memory of its template
	memory int64             // bytes that it holds
}

// alive says whether it can still be given away.
func (m *warmSandbox) alive() bool {
	select {
	case <-m.box.Ended():
		return false
	default:
		return m.client.Lost() == nil && m.Invocation.Network.Holds()
	}
}

// makeAhead makes the sandbox of r before it is asked for, as Create would, where lasts has
// nothing against that. Its Undo takes it away.
func (b *Sandboxes) makeAhead(ctx context.Context, g *grant, r *session.Invocation, lasts func(session.Shape) error) (_ *warmSandbox, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Undo.Run(context.WithoutCancel(ctx)))
		}
	}()
	v, err := r.Verdict()
	if err != nil {
		return nil, err
	}
	if v.Decision != policy.Allow {
		return nil, v.Err()
	}
	r.Plan = v.Plan
	d, _, err := r.Level(ctx, r.Session, r.Call)
	if err == nil {
		err = lasts(session.PersistentShape(r))
	}
	if err != nil {
		return nil, err
	}
	w, err := r.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	if r.Network != nil {
		if err := r.Network.Started(); err != nil {
			return nil, err
		}
	}
	started, err := b.fit.take()
	if err != nil {
		return nil, err
	}
	defer started()
	allowed := session.StartAllowance(&r.Caps)
	ctx, cancel := context.WithTimeout(ctx, allowed)
	defer cancel()
	in := &running{run: r, env: w, grant: g, caps: r.Caps}
	box, ready, err := b.memories.startAhead(ctx, d, in)
	if err == nil && box == nil {
		box, err = d.Start(ctx, w.Spec)
	}
	if err != nil {
		return nil, session.InTime(err, allowed)
	}
	in.box = box
	r.Undo.Add(session.WithLimit(g.options.EndLimit, box.Destroy))
	client, err := in.connect(ctx)
	if err != nil {
		return nil, err
	}
	r.Undo.Add(func(context.Context) error { client.Close(); return nil }) // the box goes next
	return &warmSandbox{Spare: &session.Spare{Invocation: r, Env: w, Shape: session.PersistentShape(r)}, box: box, client: client, told: in.identity().Env, ready: ready, warm: ready}, nil
}
