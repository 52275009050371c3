// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/registry"
)

// locked is a sandbox that one call changes: until unlock no other call does.
type locked struct{ *managed }

// newLocked is a sandbox that the caller changes from the beginning.
func newLocked(b *Sandboxes, rec *registry.Sandbox) locked {
	l := newManaged(b, rec)
	l.change <- struct{}{}
	return locked{l}
}

// lock waits until no other call changes the sandbox, or ctx ends.
func (l *managed) lock(ctx context.Context) (locked, error) {
	select {
	case l.change <- struct{}{}:
		return locked{l}, nil
	case <-ctx.Done():
		return locked{}, &sandbox.Error{Op: "sandbox " + l.id, Kind: sandbox.ErrUnavailable, Problem: "it is being changed by another call", Cause: context.Cause(ctx)}
	}
}

func (l locked) unlock() { <-l.change }

// keep changes the record, in the registry first.
func (l locked) keep(ctx context.Context, change func(*registry.Sandbox)) error {
	rec := l.record()
	change(rec)
	if err := l.b.o.Registry.Put(context.WithoutCancel(ctx), rec); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rec = rec
	return nil
}

// boot makes the sandbox's environment and starts it, or has it go on where it was
// written down in the directory kept. What it makes is undone when it fails, and a
// refusal is an error of kind ErrDenied.
func (l locked) boot(ctx context.Context, g *grant, r *session.Invocation, kept keptState) (*running, *session.Admission, error) {
	b := l.b
	in := &running{run: r, grant: g, before: l.record().CPU, used: new(atomic.Int64)}
	if kept.dir == "" {
		r.Spares = func(r *session.Invocation) *session.Spare {
			if in.made = b.warmPool.take(g, r, l.record()); in.made == nil {
				return nil
			}
			in.remembers, in.warm, r.Names = in.made.ready, in.made.warm, in.made.Invocation.Names
			return in.made.Spare
		}
	}
	in.gone, in.leave = context.WithCancelCause(context.Background())
	a, res, err := r.Admit(ctx)
	if a != nil {
		in.env, in.caps = a.Env, r.Caps
		if err = l.startIn(ctx, in, a.Driver, kept); err == nil {
			err = awaited(ctx)
		}
		end := &sandbox.Result{Status: sandbox.StatusSuccess, Posture: a.Posture}
		if in.rebooted != "" {
			end.Reason = beganAnew + in.rebooted
		}
		if err != nil {
			end = nil
		}
		// A sandbox whose making could not be recorded is given to no caller.
		err = errors.Join(err, a.Operation.End(ctx, r.Outcome(end, err)))
	} else if err == nil {
		err = session.Denied("create sandbox", res)
	}
	if err != nil {
		err = errors.Join(err, in.close(ctx))
		if session.OfHost(err) && ctx.Err() == nil && !isNoRoom(err) {
			b.ready.was(err)
			b.o.Notice("sandbox " + l.id + " was not started: " + err.Error())
		}
		return nil, nil, err
	}
	b.ready.was(nil)
	return in, a, nil
}

// startIn starts the sandbox, where there is room for it. One made ahead has its own.
func (l locked) startIn(ctx context.Context, in *running, d sandbox.Driver, kept keptState) error {
	if in.made == nil {
		leave, err := l.b.queue.enter(ctx, l.owner)
		if err != nil {
			return err
		}
		defer leave()
	}
	if in.made == nil && kept.dir == "" {
		done, err := l.startFrom(ctx, in, func(m keptState) error { return in.start(ctx, d, m) })
		if done {
			return err
		}
	}
	return in.start(ctx, d, kept)
}

// awaited refuses what was started for a caller who has gone meanwhile. It would run
// on and count for the key's quota, and no caller would know of it.
func awaited(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &sandbox.Error{Op: "create sandbox", Kind: sandbox.ErrUnavailable, Problem: "the caller no longer waits for it", Cause: context.Cause(ctx)}
}

// begin lets a sandbox that was started go on by itself.
func (l locked) begin(in *running) {
	b := l.b
	l.mu.Lock()
	l.in, l.active.last = in, b.o.Clock.Now()
	l.meter.soon()
	if s := newSampler(l.managed, in); s != nil {
		s.soon()
	}
	l.mu.Unlock()
	b.background.work.Go(func() { l.watch(in) })
	l.survive()
	l.arm()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.coolLater()
}

// leave takes a running sandbox away from its users.
func (l locked) leave(in *running, frozen bool) {
	l.mu.Lock()
	l.in = nil
	if frozen {
		l.frozen = in
	}
	l.timers.stop()
	l.mu.Unlock()
	in.leave(errLeft)
	in.client.Close()
}

// reconnect begins another session with the agent of a sandbox that runs, when
// the one before was lost: it was cut because the agent flooded it, say.
func (l locked) reconnect(ctx context.Context) error {
	l.mu.Lock()
	in := l.in
	lost := in != nil && in.client.Lost() != nil
	l.mu.Unlock()
	if !lost {
		return nil
	}
	client, err := in.connect(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	in.client.Close()
	in.client = client
	return nil
}

// end ends a sandbox for a reason that is no limit's; see endFor.
func (l locked) end(ctx context.Context, reason string) error {
	return l.endFor(ctx, &session.Ending{Status: sandbox.StatusSuccess, Reason: reason})
}

// endFor ends a sandbox and takes it from the list. It is gone and said to be, whatever the
// error is about. Where a limit or a rule had ended it already, that is the reason given.
func (l locked) endFor(ctx context.Context, why *session.Ending) error {
	b := l.b
	ctx = context.WithoutCancel(ctx)
	l.silence()
	in := l.here()
	l.mu.Lock()
	was := l.rec
	l.in, l.frozen = nil, nil
	l.mu.Unlock()
	if e := endingOf(in); e != nil {
		why = e
	}
	reason := why.Reason
	// A full disk must not keep a sandbox alive: what cannot be recorded, although it
	// may spend the reserve, is told.
	op, err := audit.Begin(ctx, b.o.Journal, audit.Intent{Actor: was.Actor, Account: was.Owner, Kind: "end_sandbox", Sandbox: l.id, Isolation: was.Isolation, Ends: true})
	res := &sandbox.Result{Status: why.Status, Resource: why.Resource, Rule: why.Rule, Reason: reason, Posture: was.Posture}
	errs := []error{err}
	if in != nil {
		errs = append(errs, in.close(ctx))
		res.Network, res.Findings = in.run.Network.Use(), in.run.Made.Outcome().Findings
		l.tellFound(in.run.Made.Outcome())
	}
	now := b.o.Clock.Now()
	errs = append(errs, l.keep(ctx, func(s *registry.Sandbox) {
		s.HideHeaders()
		s.State, s.EndedAt, s.Reason, s.Env, s.Life = registry.Ended, now, reason, nil, nil
	}))
	if l.state() != registry.Ended { // the registry could not be written
		l.mu.Lock()
		l.rec.HideHeaders()
		l.rec.State, l.rec.EndedAt, l.rec.Reason, l.rec.Env = registry.Ended, now, reason, nil
		l.mu.Unlock()
	}
	errs = append(errs, b.kept.drop(was.Kept))
	b.inventory.remove(l.managed)
	if op != nil {
		errs = append(errs, op.End(ctx, audit.Outcome{Status: audit.Allowed, Result: session.ForRecord(res)}))
	}
	b.events.tell(l.record(), "ended")
	return errors.Join(errs...)
}

// tellFound tells the operator what was found in the places that the sandbox
// could write to.
func (l locked) tellFound(found *environment.Found) {
	for _, f := range found.Findings {
		l.b.o.Notice("sandbox " + l.id + ": finding: " + sandbox.Quoted(f.Text) + ": " + f.Problem)
	}
}
