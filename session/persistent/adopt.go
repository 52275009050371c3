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
	"github.com/caisson-run/caisson/session/registry"
)

// adoption takes over one sandbox that ran when the last caisson ended.
type adoption struct {
	l   locked
	rec *Sandbox // what the last caisson knew
	in  *running
	far *os.File // the far end of its wire, if it has one, until a router has it
}

// run takes it over, or says why it is gone. life ends when this caisson is stopped.
func (a *adoption) run(life context.Context) {
	l, b := a.l, a.l.b
	err := a.takeOver(life)
	switch {
	case err == nil:
		l.begin(a.in)
		b.events.tell(l.record(), "adopted")
		return
	case life.Err() != nil:
		return // the next caisson's
	}
	reason := "caisson was ended while it ran, and it could not be taken over: " + err.Error()
	if errors.Is(err, sandbox.ErrNotFound) {
		reason = "caisson was ended while it ran, and it ended before the next one came: by itself, or because the next one came too late"
	}
	if err := l.end(context.Background(), reason); err != nil {
		b.o.Notice("sandbox " + l.id + ": " + err.Error())
	}
}

// takeOver makes a sandbox that runs this process's. Whose it is, what it may do and
// what it is made of is what the registry and the policy say; nothing of that is
// asked of the sandbox. It is gone after an error, unless ctx has ended.
func (a *adoption) takeOver(ctx context.Context) (err error) {
	l, rec := a.l, a.rec
	r := &session.Invocation{Call: callFor(rec), ID: rec.Life.Run, Kind: policy.StartSandbox, Name: l.id, Origin: session.Origin{Life: rec.Life, Reach: rec.Reach}, Resources: session.Resources{Known: rec.Placeholders}}
	in := &running{run: r, before: rec.CPU, used: new(atomic.Int64)}
	in.gone, in.leave = context.WithCancelCause(context.Background())
	in.env = &environment.Environment{Dir: rec.Life.Dir, Search: rec.Life.Search, ImageEnv: rec.Life.Env, Trust: maps.Clone(rec.Life.Trust), Exec: &sandbox.Exec{Dir: rec.Life.Dir}}
	in.env.Spec = &sandbox.Spec{ID: r.ID, User: rec.Life.User, Limits: rec.Limits, Sudo: rec.Sudo, Outlives: true}
	in.env.Spec.Limits.Explicit = nil
	a.in = in
	if err := a.claim(ctx); err != nil {
		return errors.Join(err, in.close(ctx))
	}
	if err = a.settle(ctx); err == nil {
		return nil
	}
	if ctx.Err() != nil { // no decision was made against it
		err = errors.Join(err, in.survivor().Leave())
		r.Dir.Release()
	}
	return errors.Join(err, in.close(ctx))
}

// claim takes over the sandbox itself, with what it has on the disk.
func (a *adoption) claim(ctx context.Context) error {
	b, in, level := a.l.b, a.in, a.rec.Isolation
	r := in.run
	d, ok := b.o.Drivers[level]
	if !ok {
		return sandbox.Errorf(sandbox.ErrUnsupported, "isolation "+level, "this build has no such level")
	}
	caps, err := d.Probe(ctx)
	if err != nil {
		return err
	}
	if in.env.Spec.StateDir, err = b.o.State.RunPath(r.ID); err != nil {
		return err
	}
	in.env.Spec.Snapshots = caps.Snapshot
	ctx, cancel := context.WithTimeout(ctx, session.StartAllowance(&caps))
	defer cancel()
	box, err := d.Adopt(ctx, in.env.Spec)
	if err != nil {
		return err
	}
	in.box, a.far = box.Instance, box.Far
	if box.Hold != nil {
		if r.Dir, err = b.o.State.Adopt(r.ID, box.Hold); err != nil {
			box.Hold.Close()
		} else {
			r.Undo.Add(func(context.Context) error { return r.Dir.Remove() })
		}
	} else {
		err = sandbox.Errorf(sandbox.ErrUnavailable, "adopt sandbox", "no process held its directory")
	}
	r.Undo.Add(session.WithLimit(b.o.EndLimit, box.Destroy))
	if err != nil {
		a.closeFar()
	}
	return err
}

// closeFar closes the far end of the wire that no router has.
func (a *adoption) closeFar() {
	if a.far != nil {
		a.far.Close()
	}
}

// settle decides what the sandbox is, records it, and gives it back what went with its last
// owner. It closes far where no router has it.
func (a *adoption) settle(ctx context.Context) error {
	b, in := a.l.b, a.in
	r := in.run
	posture, err := a.redecide(ctx)
	op, jerr := audit.Begin(context.WithoutCancel(ctx), b.o.Journal, r.Intent)
	if err = errors.Join(err, jerr); err != nil {
		a.closeFar()
	} else if err = a.rewire(ctx, op); err == nil {
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
func (a *adoption) redecide(ctx context.Context) (sandbox.Posture, error) {
	l, in, rec := a.l, a.in, a.rec
	b, r := l.b, in.run
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
	_, posture, err := r.Level(ctx, r.Session, r.Call)
	if err != nil {
		return none, err
	}
	in.caps = r.Caps
	r.Intent.Limits, r.Intent.Network = r.Plan.Limits, r.Plan.Network.String()
	if r.Digest = session.EnvironmentDigest(r.Call, &r.Plan, r.Caps); r.Digest == "" || r.Digest != r.Life.Environment {
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
func (a *adoption) rewire(ctx context.Context, op *audit.Operation) error {
	l, in, wired := a.l, a.in, a.rec.Wired
	b, r := l.b, in.run
	if wired != (a.far != nil) {
		a.closeFar()
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
	if in.env.Spec.Network, err = r.StartRouter(in.env.Spec.StateDir, rules, a.far); err != nil {
		return err
	}
	r.Network.Open(session.Connections(&r.Intent, op))
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
