// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// Resume lets the paused sandbox go on, for timeout from now on; 0 is as long as it
// last was given. Its files, memory and processes are as they were, or its files
// alone where it was paused without the rest; connections to the world outside are
// not. ErrConflict when it runs.
func (h *Handle) Resume(ctx context.Context, timeout time.Duration) (*Sandbox, error) {
	return h.change(ctx, func(l locked) error {
		if l.state() == registry.Running {
			return sandbox.Errorf(sandbox.ErrConflict, "resume sandbox "+h.id, "it runs")
		}
		return l.resume(ctx, h.key, timeout)
	})
}

// Connect extends the sandbox if it runs, as Extend does, and resumes it if it is paused;
// resumed says which.
func (h *Handle) Connect(ctx context.Context, timeout time.Duration) (s *Sandbox, resumed bool, err error) {
	s, err = h.change(ctx, func(l locked) (err error) {
		resumed, err = l.connect(ctx, h.key, timeout)
		return err
	})
	return s, resumed, err
}

// connect extends a sandbox that runs or resumes one that is paused.
func (l locked) connect(ctx context.Context, k *Key, timeout time.Duration) (resumed bool, _ error) {
	if l.state() != registry.Paused {
		return false, l.prolongFor(ctx, k, timeout, true)
	}
	err := l.resume(ctx, k, timeout)
	return err == nil, err
}

// resume resumes a sandbox with a new lifetime.
func (l locked) resume(ctx context.Context, k *Key, timeout time.Duration) error {
	g, err := l.b.grants.of(k)
	if err != nil {
		return err
	}
	if timeout == 0 {
		timeout = l.record().Lifetime
	}
	d, err := g.profile.lifetime(timeout)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.rec.Lifetime = d
	l.mu.Unlock()
	return l.wake(ctx, k, true)
}

// wake resumes a paused sandbox that wants to be, or that its owner wants to.
func (l locked) wake(ctx context.Context, k *Key, asked bool) error {
	b := l.b
	// The caller may be any client that knows a public port. When it goes away,
	// a sandbox that is half awake does not end.
	waits := ctx
	ctx = context.WithoutCancel(ctx)
	rec := l.record()
	switch {
	case rec.State == registry.Running:
		return l.warm(waits, k)
	case rec.State == registry.Ended:
		return l.gone()
	case !asked && (!rec.AutoResume || rec.Boots) && !rec.Waits:
		return &sandbox.Error{Op: "sandbox " + l.id, Kind: sandbox.ErrConflict, Problem: "it is paused", Hint: "resume it first"}
	}
	g, err := b.grants.of(k)
	if err != nil {
		return err
	}
	mark := func(waking bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.quota.waking = waking
	}
	if err := b.inventory.place(l.managed, g.profile.Quota, registry.Running, func() { mark(true) }); err != nil {
		return err
	}
	defer mark(false)
	in, err := l.goOn(ctx, g, rec)
	if err != nil {
		return err
	}
	err = l.keep(ctx, func(s *registry.Sandbox) {
		now := b.o.Clock.Now()
		in.wokenAs(s)
		s.State, s.Began = registry.Running, now
		if !s.Waits || asked {
			s.Started, s.Ends = now, now.Add(s.Lifetime)
			s.Resumed++
		}
		s.Waits = false
		bound(s, now)
	})
	if err != nil {
		if rec.Kept == "" {
			return errors.Join(err, l.end(ctx, "that it was resumed could not be written down"))
		}
		return errors.Join(err, in.close(ctx)) // what it was is still there
	}
	l.begin(in)
	b.events.tell(l.record(), "resumed")
	l.tellRebooted()
	return b.kept.drop(rec.Kept)
}

// goOn has the sandbox itself go on.
func (l locked) goOn(ctx context.Context, g *grant, rec *registry.Sandbox) (*running, error) {
	b := l.b
	if rec.Kept != "" {
		r := g.starting(rec, callFor(rec))
		if err := b.judgeOwn(r, rec); err != nil {
			return nil, err
		}
		in, _, err := l.boot(ctx, g, r, keptState{b.kept.path(rec.Kept), rec.Seal})
		return in, err
	}
	l.mu.Lock()
	was := l.frozen
	l.mu.Unlock()
	if was == nil {
		return nil, l.gone()
	}
	in := *was
	in.gone, in.leave = context.WithCancelCause(context.Background())
	if n := in.run.Network; n != nil {
		go session.WatchNetwork(in.gone, n, in.leave)
	}
	err := was.box.(sandbox.Pauser).Resume(ctx)
	if err == nil {
		in.client, err = in.connect(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.end(ctx, "it could not be resumed: "+err.Error()))
	}
	l.mu.Lock()
	l.frozen = nil
	l.mu.Unlock()
	return &in, nil
}
