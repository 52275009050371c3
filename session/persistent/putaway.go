// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// putAway writes a quiet sandbox to the disk, where no process of it is left. It stands
// still meanwhile, and goes on where that fails.
func (l locked) putAway(ctx context.Context) error {
	b := l.b
	select {
	case b.writers <- struct{}{}:
		defer func() { <-b.writers }()
	default:
		return l.putOff(time.Second) // its callers do not wait for others' disks
	}
	l.mu.Lock()
	in := l.in
	l.mu.Unlock()
	if in != nil {
		if !l.quiet(ctx, in) || !l.stand(in) {
			return nil
		}
		if err := in.box.(sandbox.Pauser).Pause(ctx); err != nil {
			return errors.Join(err, l.putOff(coolAgain), l.thaw(context.WithoutCancel(ctx)))
		}
		l.arm()
	}
	if err := l.writeAway(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(err, l.putOff(coolAgain))
	}
	return nil
}

// putOff puts the next try off.
func (l locked) putOff(d time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active.retry = l.b.o.Clock.Now().Add(d)
	return nil
}

// writeAway writes down a sandbox that stands still. After an error it stands still as before.
func (l locked) writeAway(ctx context.Context) error {
	b := l.b
	l.mu.Lock()
	in := l.frozen
	l.mu.Unlock()
	rec := l.record()
	intent := audit.Intent{Actor: rec.Actor, Account: l.owner, Kind: "cool_sandbox", Sandbox: l.id, Isolation: rec.Isolation}
	return audit.Perform(ctx, b.o.Journal, intent, func(ctx context.Context, _ *audit.Operation) (*sandbox.Result, error) {
		kept, seal, err := l.memoryOf(ctx, in)
		if err != nil {
			return nil, err
		}
		cpu := in.spent(ctx)
		if err := l.keep(ctx, func(s *registry.Sandbox) { s.Kept, s.Seal, s.CPU, s.Life = kept, seal, cpu, nil }); err != nil {
			return nil, errors.Join(err, b.kept.drop(kept))
		}
		// From here on it is the one on the disk: the other ends with this process.
		if s := in.survivor(); s != nil {
			_ = s.Outlive(0, time.Time{})
		}
		l.filesOf(ctx, in)
		l.mu.Lock()
		l.frozen = nil
		l.mu.Unlock()
		err = in.run.Undo.Run(ctx)
		l.tellFound(in.run.Made.Outcome())
		if err != nil {
			b.o.Notice("sandbox " + l.id + " has gone cold, and not all of it was taken away: " + err.Error())
		}
		return &sandbox.Result{Status: sandbox.StatusSuccess, Reason: "nothing used it"}, nil
	})
}

// memoryOf writes a sandbox into a directory of its own, where its key has room for that.
func (l locked) memoryOf(ctx context.Context, in *running) (kept string, seal *registry.Seal, err error) {
	b := l.b
	kept, dir, err := b.kept.create()
	if err != nil {
		return "", nil, err
	}
	if err = in.box.(sandbox.Snapshotter).Snapshot(ctx, dir, false); err == nil {
		if seal, err = b.kept.seal(kept); err == nil {
			err = b.inventory.keptRoom(l.managed, in.grant.profile.Quota, seal.Bytes)
		}
	}
	if err != nil {
		return "", nil, errors.Join(err, b.kept.drop(kept))
	}
	return kept, seal, nil
}

// filesOf writes the files alone beside the memory, for when that does not fit. The sandbox
// ends with it. Without them there is the memory.
func (l locked) filesOf(ctx context.Context, in *running) {
	b, kept := l.b, l.record().Kept
	files, ok := in.box.(sandbox.FileSnapshotter)
	if !ok {
		return
	}
	dir := filepath.Join(b.kept.path(kept), filesDir)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = files.SnapshotFiles(ctx, dir)
	}
	var seal *registry.Seal
	if err == nil {
		seal, err = b.kept.seal(kept)
	}
	if err == nil {
		err = l.keep(ctx, func(s *registry.Sandbox) { s.Seal = seal })
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(dir))
		b.o.Notice("sandbox " + l.id + " has gone cold with its memory alone: " + err.Error())
	}
}
