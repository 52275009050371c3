// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync/atomic"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/operation"
	"github.com/caisson-run/caisson/session/registry"
)

// adopt takes over one, or says why it is gone.
func (l *managed) adopt() {
	b := l.b
	in, err := l.takeOver(b.background.life)
	switch {
	case err == nil:
		l.begin(in)
		b.events.tell(l.record(), "adopted")
		return
	case b.background.life.Err() != nil:
		return // the next caisson's
	}
	reason := "caisson was ended while it ran, and it could not be taken over: " + err.Error()
	if errors.Is(err, sandbox.ErrNotFound) {
		reason = "caisson was ended while it ran, and it ended before the next one came: by itself, or because nobody came in time"
	}
	if err := l.end(context.Background(), reason); err != nil {
		b.o.Notice("sandbox " + l.id + ": " + err.Error())
	}
}

// takeOver makes a sandbox that runs this process's. Whose it is, what it may do and
// what it is made of is what the registry and the policy say; nothing of that is
// asked of the sandbox. It is gone after an error, unless ctx has ended.
func (l *managed) takeOver(ctx context.Context) (_ *running, err error) {
	b := l.b
	rec := l.record()
	r := &session.Invocation{Call: callFor(rec), ID: rec.Life.Run, Kind: policy.StartSandbox, Name: l.id, Origin: session.Origin{Life: rec.Life, Reach: rec.Reach, Known: rec.Placeholders}}
	in := &running{run: r, before: rec.CPU, used: new(atomic.Int64)}
	in.gone, in.leave = context.WithCancelCause(context.Background())
	in.env = &environment.Environment{Dir: rec.Life.Dir, Search: rec.Life.Search, ImageEnv: rec.Life.Env, Trust: maps.Clone(rec.Life.Trust), Exec: &sandbox.Exec{Dir: rec.Life.Dir}}
	in.env.Spec = &sandbox.Spec{ID: r.ID, User: rec.Life.User, Limits: rec.Limits, Sudo: rec.Sudo, Outlives: true}
	in.env.Spec.Limits.Explicit = nil
	far, err := b.claimed(ctx, in, rec.Isolation)
	if err != nil {
		return nil, errors.Join(err, in.close(ctx))
	}
	if err = l.settleIn(ctx, in, far); err == nil {
		return in, nil
	}
	if ctx.Err() != nil { // nobody has decided against it
		err = errors.Join(err, in.survivor().Leave())
		r.Dir.Release()
	}
	return nil, errors.Join(err, in.close(ctx))
}

// claimed takes over the sandbox itself, with what it has on the disk, and returns
// the far end of its wire, if it has one.
func (b *Sandboxes) claimed(ctx context.Context, in *running, level string) (*os.File, error) {
	r := in.run
	d, ok := b.o.Drivers[level]
	if !ok {
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "isolation "+level, "this build has no such level")
	}
	caps, err := d.Probe(ctx)
	if err != nil {
		return nil, err
	}
	if in.env.Spec.StateDir, err = b.o.State.RunPath(r.ID); err != nil {
		return nil, err
	}
	in.env.Spec.Snapshots = caps.Snapshot
	ctx, cancel := context.WithTimeout(ctx, session.StartAllowance)
	defer cancel()
	box, err := d.Adopt(ctx, in.env.Spec)
	if err != nil {
		return nil, err
	}
	in.box = box.Instance
	if box.Hold != nil {
		if r.Dir, err = b.o.State.Adopt(r.ID, box.Hold); err != nil {
			box.Hold.Close()
		} else {
			r.Undo.Add(func(context.Context) error { return r.Dir.Remove() })
		}
	} else {
		err = sandbox.Errorf(sandbox.ErrUnavailable, "adopt sandbox", "nobody held its directory")
	}
	r.Undo.Add(session.WithLimit(b.o.EndLimit, box.Destroy))
	if err != nil && box.Far != nil {
		box.Far.Close()
	}
	return box.Far, err
}

// settleIn decides what a sandbox that was taken over is, records it, and gives it
// back what went with its last owner. far is its to close.
func (l *managed) settleIn(ctx context.Context, in *running, far *os.File) error {
	b := l.b
	r := in.run
	posture, err := l.redecide(ctx, in)
	op, jerr := operation.Begin(context.WithoutCancel(ctx), b.o.Journal, r.Intent)
	if err = errors.Join(err, jerr); err != nil {
		if far != nil {
			far.Close()
		}
	} else if err = l.rewire(ctx, in, far, op); err == nil {
		in.env.Exec.Env = r.Variables(in.env)
		if in.client, err = in.connect(ctx); err == nil {
			err = in.watchable(ctx)
		}
	}
	if op != nil {
		end := &sandbox.Result{Status: sandbox.StatusSuccess, Posture: posture}
		if err != nil {
			end = nil
		}
		err = errors.Join(err, op.End(ctx, r.Outcome(end, err)))
	}
	return err
}

// redecide asks the policy, as it is now, for what the sandbox was made by. What
// would be made of something else today cannot go on as it is.
func (l *managed) redecide(ctx context.Context, in *running) (sandbox.Posture, error) {
	b := l.b
	r, rec := in.run, l.record()
	none := rec.Posture
	r.Intent = audit.Intent{Actor: rec.Actor, Account: rec.Owner, Kind: "adopt_sandbox", Sandbox: l.id, Isolation: rec.Isolation}
	k, err := l.ownerOf(ctx)
	if err != nil {
		return none, err
	}
	g, err := b.grants.of(k)
	if err != nil {
		return none, err
	}
	in.grant, r.Session = g, g.session
	r.Credentials = r.NewCredentials()
	v, err := r.Decide()
	r.Intent.Kind, r.Intent.Isolation = "adopt_sandbox", rec.Isolation
	switch {
	case err != nil:
		return none, err
	case v.Decision == policy.Deny:
		return none, v.Err()
	}
	r.Plan = v.Plan // what people were asked about, they were asked when it was made
	_, posture, err := r.Level(ctx)
	if err != nil {
		return none, err
	}
	in.caps = r.Caps
	r.Intent.Limits, r.Intent.Network = r.Plan.Limits, r.Plan.Network.String()
	if r.Digest = r.EnvironmentDigest(); r.Digest == "" || r.Digest != r.Life.Environment {
		return none, &sandbox.Error{Op: "sandbox " + l.id, Kind: sandbox.ErrDenied, Rule: "built-in: a sandbox is what its policy makes",
			Problem: "its policy, or the limits of its key, would make another one now", Hint: "make it anew"}
	}
	if posture.Commands != "" {
		posture.Commands = rec.Posture.Commands // the same list, of the same environment
	}
	in.env.Spec.Limits = r.Plan.Limits
	if r.Plan.BestEffort {
		in.env.Spec.Limits.Explicit = nil
	}
	return posture, nil
}

// rewire puts a router at the far end of the sandbox's wire, which lets through what
// the policy says now. Where that cannot be had (a secret that is not there any more,
// say) the network stays closed, and that is said.
func (l *managed) rewire(ctx context.Context, in *running, far *os.File, op *operation.Operation) error {
	b := l.b
	r, wired := in.run, l.record().Wired
	if wired != (far != nil) {
		if far != nil {
			far.Close()
		}
		return sandbox.Errorf(sandbox.ErrUnavailable, "adopt sandbox", "its network does not fit what is known of it")
	}
	if !wired {
		return nil
	}
	rules, why := r.RulesInForce()
	if why != nil {
		rules, r.Hosts, r.Denied = wire.Rules{}, nil, nil
	}
	var err error
	if in.env.Spec.Network, err = r.StartRouter(in.env.Spec.StateDir, rules, far); err != nil {
		return err
	}
	r.OpenNetwork(op)
	if err := r.Network.Ready(ctx); err != nil {
		return err
	}
	go session.WatchNetwork(in.gone, r.Network, in.leave)
	if why != nil {
		rec := l.record()
		rec.Reason = fmt.Sprintf("its network is closed, since caisson was ended: %v", why)
		b.events.tell(rec, "network")
		b.o.Notice("sandbox " + l.id + ": " + rec.Reason)
	}
	return l.keep(ctx, func(s *registry.Sandbox) { s.Network, s.Denied = r.Hosts, r.Denied })
}
