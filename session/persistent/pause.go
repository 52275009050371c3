// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/operation"
	"github.com/caisson-run/caisson/session/registry"
)

// Pause stops the running sandbox, with its memory, until it is resumed or killed.
// Its time does not run meanwhile. ErrConflict when it is paused already.
//
// Where the level writes snapshots it takes nothing but disk then, and outlives
// caisson and the host's power. Where the level can only stand still it keeps its
// memory, and ends with caisson; Sandbox.Kept is empty then. Any other level
// refuses.
func (h *Handle) Pause(ctx context.Context) (*Sandbox, error) {
	return h.pauseAs(ctx, registry.Pause)
}

// PauseFiles is Pause without the memory: what the sandbox has on its disk is kept,
// and resuming begins anew with that, with none of its processes. It does not wake by
// itself. A level that keeps its files in memory, or cannot write them down, refuses.
func (h *Handle) PauseFiles(ctx context.Context) (*Sandbox, error) {
	return h.pauseAs(ctx, registry.PauseFiles)
}

func (h *Handle) pauseAs(ctx context.Context, how registry.Action) (*Sandbox, error) {
	return h.change(ctx, func(l *managed) error {
		if l.state() == registry.Paused {
			return sandbox.Errorf(sandbox.ErrConflict, "pause sandbox "+h.id, "it is paused already")
		}
		return l.pause(ctx, how, "its owner paused it")
	})
}

func cannotPause(level string) error {
	return &sandbox.Error{Op: "pause", Kind: sandbox.ErrUnsupported, Problem: level + " cannot pause a sandbox with its memory", Hint: "take another level: --isolation gvisor"}
}

// canPause refuses a pause that the level has not.
func (in *running) canPause(how registry.Action) error {
	level := in.run.Plan.Isolation
	switch _, files := in.box.(sandbox.FileSnapshotter); {
	case how == registry.PauseFiles && !(files && in.caps.Snapshot):
		return &sandbox.Error{Op: "pause", Kind: sandbox.ErrUnsupported, Problem: level + " cannot pause a sandbox without its memory", Hint: "keep the memory, or take another level: --isolation gvisor"}
	case how == registry.Pause && !in.caps.Snapshot && !in.caps.Pause:
		return cannotPause(level)
	}
	return nil
}

// pause stops a sandbox that runs, with its memory or without. The caller holds
// change. After an error it runs on, or has ended.
func (l *managed) pause(ctx context.Context, how registry.Action, reason string) error {
	b := l.b
	// Half a pause would be neither: it is not given up with its caller.
	ctx = context.WithoutCancel(ctx)
	l.mu.Lock()
	in := l.in
	l.mu.Unlock()
	if in == nil {
		return l.gone()
	}
	if e := endingOf(in); e != nil {
		return sandbox.Errorf(sandbox.ErrConflict, "pause sandbox "+l.id, "it is being ended: %s", e.Reason)
	}
	if err := in.canPause(how); err != nil {
		return err
	}
	if rec := l.record(); !rec.Waits {
		leave, err := l.placeAmongPaused(in.grant.profile.Quota)
		if err != nil {
			return err
		}
		defer leave()
	}
	intent := audit.Intent{Actor: l.record().Actor, Account: l.owner, Kind: "pause_sandbox", Sandbox: l.id, Isolation: in.run.Plan.Isolation}
	return operation.Perform(ctx, b.o.Journal, intent, func(ctx context.Context, _ *operation.Operation) (*sandbox.Result, error) {
		// Before it stands still: afterwards the level may have nothing to ask.
		cpu := in.spent(ctx)
		err := l.stop(ctx, in, how, func(s *registry.Sandbox) {
			s.State, s.CPU, s.Ran, s.Life = registry.Paused, cpu, s.RanUntil(b.o.Clock.Now()), nil
			s.Boots = how == registry.PauseFiles
		})
		if err == nil {
			b.events.tell(l.record(), "paused")
		}
		return &sandbox.Result{Status: sandbox.StatusSuccess, Reason: reason}, err
	})
}

// placeAmongPaused takes a place of the quota for a sandbox that is about to be
// paused, until leave: by then its state says so, or it is not.
func (l *managed) placeAmongPaused(q Quota) (leave func(), _ error) {
	mark := func(pausing bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.pausing = pausing
	}
	if err := l.b.inventory.place(l, q, registry.Paused, func() { mark(true) }); err != nil {
		return nil, err
	}
	return func() { mark(false) }, nil
}

// stop is the pause itself; paused changes the record to say so.
func (l *managed) stop(ctx context.Context, in *running, how registry.Action, paused func(*registry.Sandbox)) error {
	snap, snaps := in.box.(sandbox.Snapshotter)
	freeze, freezes := in.box.(sandbox.Pauser)
	switch {
	case how == registry.PauseFiles:
		files, ok := in.box.(sandbox.FileSnapshotter)
		if !ok {
			return in.canPause(how)
		}
		return l.writeDown(ctx, in, files.SnapshotFiles, paused)
	case in.caps.Snapshot && snaps:
		return l.writeDown(ctx, in, func(ctx context.Context, dir string) error { return snap.Snapshot(ctx, dir, true) }, paused)
	case in.caps.Pause && freezes:
		if err := freeze.Pause(ctx); err != nil {
			return err
		}
		if err := l.keep(ctx, paused); err != nil {
			if undo := freeze.Resume(ctx); undo != nil {
				return errors.Join(err, undo, l.end(ctx, "it could neither be paused nor go on"))
			}
			return err
		}
		l.leave(in, true)
		return nil
	}
	return cannotPause(in.run.Plan.Isolation)
}

// leave lets nobody use a running sandbox any more.
func (l *managed) leave(in *running, frozen bool) {
	l.mu.Lock()
	l.in = nil
	if frozen {
		l.frozen = in
	}
	l.stopTimers()
	l.mu.Unlock()
	in.leave(errLeft)
	in.client.Close()
}

// writeDown pauses a sandbox by a snapshot. The row that says so is written when
// the snapshot is whole and before the sandbox is taken away, so that a daemon
// that is killed has one or the other.
func (l *managed) writeDown(ctx context.Context, in *running, write func(context.Context, string) error, paused func(*registry.Sandbox)) error {
	b := l.b
	kept, dir, err := b.kept.create()
	if err != nil {
		return err
	}
	l.leave(in, true)
	err = write(ctx, dir)
	if err == nil {
		err = l.keep(ctx, func(s *registry.Sandbox) { paused(s); s.Kept = kept })
	}
	l.mu.Lock()
	l.frozen = nil
	l.mu.Unlock()
	if err != nil {
		// Whether it would go on is not known.
		return errors.Join(err, b.kept.drop(kept), in.run.Undo.Run(ctx), l.end(ctx, "it could not be paused: "+err.Error()))
	}
	err = in.run.Undo.Run(ctx)
	l.tellFound(in.run.Found())
	return err
}

// Resume lets the paused sandbox go on, for timeout from now on; 0 is as long as it
// last was given. Its files, memory and processes are as they were, or its files
// alone where it was paused without the rest; connections to the world outside are
// not. ErrConflict when it runs.
func (h *Handle) Resume(ctx context.Context, timeout time.Duration) (*Sandbox, error) {
	return h.change(ctx, func(l *managed) error {
		if l.state() == registry.Running {
			return sandbox.Errorf(sandbox.ErrConflict, "resume sandbox "+h.id, "it runs")
		}
		return l.resume(ctx, h.key, timeout)
	})
}

// Connect extends the sandbox if it runs, as Extend does, and resumes it if it is paused;
// resumed says which.
func (h *Handle) Connect(ctx context.Context, timeout time.Duration) (s *Sandbox, resumed bool, err error) {
	s, err = h.change(ctx, func(l *managed) (err error) {
		resumed, err = l.connect(ctx, h.key, timeout)
		return err
	})
	return s, resumed, err
}

// connect extends a sandbox that runs or resumes one that is paused. The caller holds change.
func (l *managed) connect(ctx context.Context, k *Key, timeout time.Duration) (resumed bool, _ error) {
	if l.state() != registry.Paused {
		return false, l.prolongFor(ctx, k, timeout, true)
	}
	err := l.resume(ctx, k, timeout)
	return err == nil, err
}

// resume resumes a sandbox with a new lifetime. The caller holds change.
func (l *managed) resume(ctx context.Context, k *Key, timeout time.Duration) error {
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

// wake resumes a paused sandbox that wants to be, or that its owner wants to. The
// caller holds change.
func (l *managed) wake(ctx context.Context, k *Key, asked bool) error {
	b := l.b
	// Who asked may be anybody who knows a public port. That they go away is no
	// reason for a sandbox that is half awake to end.
	ctx = context.WithoutCancel(ctx)
	rec := l.record()
	switch {
	case rec.State == registry.Running:
		return nil
	case rec.State == registry.Ended:
		return l.gone()
	case !asked && (!rec.AutoResume || rec.Boots) && !rec.Waits:
		return &sandbox.Error{Op: "sandbox " + l.id, Kind: sandbox.ErrConflict, Problem: "it is paused", Hint: "resume it first"}
	}
	g, err := b.grants.of(k)
	if err != nil {
		return err
	}
	if err := b.inventory.place(l, g.profile.Quota, registry.Running, func() { l.markWaking(true) }); err != nil {
		return err
	}
	defer l.markWaking(false)
	in, err := l.goOn(ctx, g, rec)
	if err != nil {
		return err
	}
	err = l.keep(ctx, func(s *registry.Sandbox) {
		now := b.o.Clock.Now()
		s.State, s.Kept, s.Boots, s.Began, s.Life = registry.Running, "", false, now, in.life()
		s.Placeholders = maps.Clone(in.run.Placeholders())
		s.Limits = in.run.Plan.Limits // decided anew where it was booted anew
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
	return b.kept.drop(rec.Kept)
}

func (l *managed) markWaking(waking bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waking = waking
}

// goOn has the sandbox itself go on.
func (l *managed) goOn(ctx context.Context, g *grant, rec *registry.Sandbox) (*running, error) {
	b := l.b
	if rec.Kept != "" {
		in, _, err := l.boot(ctx, g, g.starting(rec, callFor(rec)), b.kept.path(rec.Kept))
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
