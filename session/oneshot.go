// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
)

// oneshot is a call whose sandbox is for its program alone.
type oneshot struct {
	*Invocation
	driver sandbox.Driver
	env    *environment.Environment
	keeper *keeper         // nil where no changes are kept
	files  *collectedFiles // those that come out; nil before it starts
}

// start takes the fastest way that the level has for this call: a one-shot
// where nothing has to be asked of the sandbox afterwards and it has no
// terminal, else the guest agent.
func (o *oneshot) start(ctx context.Context, ex *sandbox.Exec) (*sandbox.Result, error) {
	spec := o.env.Spec
	if k := o.keeper; k != nil {
		k.ended, spec.OnChanges = o.ended, k.take
	}
	if o.ready != nil {
		return o.ready.box.run(ctx, o, ex)
	}
	runner, ok := o.driver.(sandbox.Runner)
	if ok && len(o.Plan.Collect) == 0 && o.Call.TTY == nil && o.begins == nil && !spec.Sudo {
		return runner.Run(ctx, spec, ex)
	}
	var err error
	if o.files, err = openCollected(collecting(&o.Plan)); err != nil {
		return nil, err
	}
	o.Undo.Close(o.files)
	box, err := o.driver.Start(ctx, spec)
	switch {
	case ok && len(o.Plan.Collect) == 0 && o.begins == nil && errors.Is(err, sandbox.ErrUnsupported):
		return runner.Run(ctx, spec, ex) // a level without an agent
	case err != nil:
		return nil, err
	}
	o.Undo.Add(WithLimit(o.Session.o.EndLimit, box.Destroy))
	return o.withAgent(ctx, box, ex)
}

// withAgent runs the program in a living sandbox, through the guest agent, and
// takes the files out that the plan lets out.
func (o *oneshot) withAgent(ctx context.Context, box sandbox.Instance, ex *sandbox.Exec) (*sandbox.Result, error) {
	if err := Watchable(ctx, o.Call, &o.Plan, box.Usage); err != nil {
		return nil, err
	}
	client, err := agentOf(ctx, box, o.env.Spec)
	if err != nil {
		return nil, err
	}
	o.Undo.Add(func(context.Context) error { client.Close(); return nil }) // the box goes next
	if err := o.begins.place(ctx, client); err != nil {
		return nil, err
	}
	return o.through(ctx, box, client, ex)
}

// agentOf begins a session with the agent of a sandbox.
func agentOf(ctx context.Context, box sandbox.Instance, spec *sandbox.Spec) (*guest.Client, error) {
	conn, err := box.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return guest.NewClient(conn, guest.Options{User: spec.User, Limits: spec.Limits, NewPrivileges: spec.Sudo})
}

// through has the agent of a sandbox run the program.
func (o *oneshot) through(ctx context.Context, box sandbox.Instance, client *guest.Client, ex *sandbox.Exec) (*sandbox.Result, error) {
	began := time.Now()
	stop := sampling(ctx, box, ex, MaxBlind, o.blind)
	exit, err := client.Run(ctx, ex)
	stop()
	res := &sandbox.Result{WallMS: time.Since(began).Milliseconds()}
	figures(ctx, box, res)
	if AwaitEnd(ctx, box, exit, err) {
		figures(ctx, box, res) // the last ones
	}
	if err := ended(ctx, box, res, exit, err); err != nil {
		return nil, err
	}
	if o.files != nil && res.Resource == "" && ctx.Err() == nil {
		o.files.Take(ctx, client, o.env.Dir, res)
	}
	o.keeper.readFrom(box)
	if o.Call.Step != nil && res.Status == sandbox.StatusSuccess {
		return res, o.readStep(ctx, box)
	}
	return res, nil
}

// collecting says which files come out of a plan's sandbox.
func collecting(p *policy.Plan) collectOptions {
	mounts := p.Mounts
	if p.Workspace != nil {
		mounts = append(slices.Clone(mounts), *p.Workspace)
	}
	o := collectOptions{Wishes: p.Collect, Overwrite: p.CollectOverwrite, Limits: guest.CollectLimits{Files: p.CollectLimits.Files, Bytes: p.CollectLimits.Bytes}, Ended: endedBy}
	for _, m := range mounts {
		if m.Access == sandbox.ReadWrite {
			o.Writable = append(o.Writable, m.Source)
		}
	}
	return o
}
