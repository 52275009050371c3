// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
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
	return h.change(ctx, func(l locked) error { return l.pause(ctx, registry.Pause, pausedByOwner) })
}

// PauseFiles is Pause without the memory: what the sandbox has on its disk is kept,
// and resuming begins anew with that, with none of its processes. It does not wake by
// itself. A level that keeps its files in memory, or cannot write them down, refuses.
func (h *Handle) PauseFiles(ctx context.Context) (*Sandbox, error) {
	return h.change(ctx, func(l locked) error { return l.pause(ctx, registry.PauseFiles, pausedByOwner) })
}

// pausedByOwner is the reason of such a pause in the record.
const pausedByOwner = "its owner paused it"

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

// pausing is one pause of a sandbox that runs.
type pausing struct {
	l   locked
	in  *running
	how registry.Action
	cpu time.Duration // that it has used by now
}

// pause stops a sandbox that runs, with its memory or without. After an error it runs on, or
// has ended.
func (l locked) pause(ctx context.Context, how registry.Action, reason string) error {
	b := l.b
	// Half a pause would be neither: it is not given up with its caller.
	ctx = context.WithoutCancel(ctx)
	l.mu.Lock()
	in, state, cold := l.in, l.rec.State, l.cold()
	l.mu.Unlock()
	if cold == registry.OnDisk && how == registry.Pause {
		return l.pauseCold(ctx, reason)
	} else if cold != "" {
		if err := l.awake(ctx); err != nil {
			return err
		}
		l.mu.Lock()
		in = l.in
		l.mu.Unlock()
	}
	switch {
	case state == registry.Paused:
		return sandbox.Errorf(sandbox.ErrConflict, "pause sandbox "+l.id, "it is paused already")
	case in == nil:
		return l.gone()
	}
	if e := endingOf(in); e != nil {
		return sandbox.Errorf(sandbox.ErrConflict, "pause sandbox "+l.id, "it is being ended: %s", e.Reason)
	}
	if err := in.canPause(how); err != nil {
		return err
	}
	p := &pausing{l: l, in: in, how: how}
	if rec := l.record(); !rec.Waits {
		leave, err := p.place(in.grant.profile.Quota)
		if err != nil {
			return err
		}
		defer leave()
	}
	intent := audit.Intent{Actor: l.record().Actor, Account: l.owner, Kind: "pause_sandbox", Sandbox: l.id, Isolation: in.run.Plan.Isolation}
	return audit.Perform(ctx, b.o.Journal, intent, func(ctx context.Context, _ *audit.Operation) (*sandbox.Result, error) {
		// Before it stands still: afterwards the level may have nothing to ask.
		p.cpu = in.spent(ctx)
		err := p.stop(ctx)
		if err == nil {
			b.events.tell(l.record(), "paused")
		}
		return &sandbox.Result{Status: sandbox.StatusSuccess, Reason: reason}, err
	})
}

// pauseCold pauses a sandbox that is on the disk already.
func (l locked) pauseCold(ctx context.Context, reason string) error {
	b, rec := l.b, l.record()
	k, err := l.ownerOf(ctx)
	if err != nil {
		return err
	}
	g, err := b.grants.of(k)
	if err != nil {
		return err
	}
	p := &pausing{l: l, cpu: rec.CPU, how: registry.Pause}
	leave, err := p.place(g.profile.Quota)
	if err != nil {
		return err
	}
	defer leave()
	intent := audit.Intent{Actor: rec.Actor, Account: l.owner, Kind: "pause_sandbox", Sandbox: l.id, Isolation: rec.Isolation}
	return audit.Perform(ctx, b.o.Journal, intent, func(ctx context.Context, _ *audit.Operation) (*sandbox.Result, error) {
		err := l.keep(ctx, p.mark)
		if err == nil {
			l.arm()
			b.events.tell(l.record(), "paused")
		}
		return &sandbox.Result{Status: sandbox.StatusSuccess, Reason: reason}, err
	})
}

// place takes a place of the quota for the sandbox as a paused one, until leave: by then its
// state says so, or it is not.
func (p *pausing) place(q Quota) (leave func(), _ error) {
	mark := func(pausing bool) {
		p.l.mu.Lock()
		defer p.l.mu.Unlock()
		p.l.quota.pausing = pausing
	}
	if err := p.l.b.inventory.place(p.l.managed, q, registry.Paused, func() { mark(true) }); err != nil {
		return nil, err
	}
	return func() { mark(false) }, nil
}

// stop is the pause itself.
func (p *pausing) stop(ctx context.Context) error {
	l, in := p.l, p.in
	_, snaps := in.box.(sandbox.Snapshotter)
	freeze, freezes := in.box.(sandbox.Pauser)
	switch {
	case p.how == registry.PauseFiles:
		files, ok := in.box.(sandbox.FileSnapshotter)
		if !ok {
			return in.canPause(p.how)
		}
		return p.writeFiles(ctx, files)
	case in.caps.Snapshot && snaps && freezes:
		return p.writeDown(ctx, freeze)
	case in.caps.Pause && freezes:
		if err := freeze.Pause(ctx); err != nil {
			return err
		}
		if err := l.keep(ctx, p.mark); err != nil {
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

// mark says in the record that the sandbox is paused.
func (p *pausing) mark(s *registry.Sandbox) {
	s.State, s.CPU, s.Ran, s.Life = registry.Paused, p.cpu, s.RanUntil(p.l.b.o.Clock.Now()), nil
	s.Boots = p.how == registry.PauseFiles
}

// writeDown pauses a sandbox by a snapshot, with its files beside its memory.
func (p *pausing) writeDown(ctx context.Context, box sandbox.Pauser) error {
	l := p.l
	l.leave(p.in, true)
	err := box.Pause(ctx)
	var undone error
	if err == nil {
		undone, err = l.toDisk(ctx, p.in, nil, p.mark)
	}
	if err != nil {
		return errors.Join(err, l.thaw(ctx))
	}
	return undone
}

// writeFiles pauses a sandbox by a snapshot of its files alone. The row that says so is
// written when that is whole and before the sandbox is taken away.
func (p *pausing) writeFiles(ctx context.Context, box sandbox.FileSnapshotter) error {
	l, in := p.l, p.in
	kept, dir, err := l.b.kept.create()
	if err != nil {
		return err
	}
	l.leave(in, true)
	err = box.SnapshotFiles(ctx, dir, true)
	if errors.Is(err, sandbox.ErrRunsOn) {
		return errors.Join(err, l.b.kept.drop(kept), l.thaw(ctx))
	}
	var seal *registry.Seal
	if err == nil {
		seal, err = l.b.kept.seal(kept)
	}
	if err == nil {
		err = l.keep(ctx, func(s *registry.Sandbox) { p.mark(s); s.Kept, s.Seal = kept, seal })
	}
	l.mu.Lock()
	l.frozen = nil
	l.mu.Unlock()
	if err != nil {
		// Whether it would go on is not known.
		return errors.Join(err, l.b.kept.drop(kept), in.run.Undo.Run(ctx), l.end(ctx, "it could not be paused: "+err.Error()))
	}
	err = in.run.Undo.Run(ctx)
	l.tellFound(in.run.Made.Outcome())
	return err
}
