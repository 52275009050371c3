// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// Whatever is kept for long lies on the disk in the same form: the memory, and beside it the
// files alone, with which the sandbox begins anew where the memory does not fit any more.

// toDisk writes down a sandbox that stands still, and takes it away. Its row, as mark changes
// it, is written when all is on the disk and before the sandbox ends, so that a daemon that is
// killed has one or the other. fits may refuse what was written; nil takes all. undone is what
// could not be taken away. After an error the sandbox stands still as before.
func (l locked) toDisk(ctx context.Context, in *running, fits func(*registry.Seal) error, mark func(*registry.Sandbox)) (undone, err error) {
	b := l.b
	kept, dir, err := b.kept.create()
	if err != nil {
		return nil, err
	}
	var seal *registry.Seal
	if err = l.writeOut(ctx, in, dir); err == nil {
		seal, err = l.seal(in, kept)
	}
	if err == nil && fits != nil {
		err = fits(seal)
	}
	if err == nil {
		err = l.keep(ctx, func(s *registry.Sandbox) { mark(s); s.Kept, s.Seal = kept, seal })
	}
	if err != nil {
		return nil, errors.Join(err, b.kept.drop(kept))
	}
	// From here on it is the one on the disk: the other ends with this process.
	if s := in.survivor(); s != nil {
		_ = s.Outlive(0, time.Time{})
	}
	l.mu.Lock()
	l.frozen = nil
	l.mu.Unlock()
	undone = in.run.Undo.Run(ctx)
	l.tellFound(in.run.Made.Outcome())
	return undone, nil
}

// writeOut writes a sandbox that stands still into dir. Without its files there is the memory.
func (l locked) writeOut(ctx context.Context, in *running, dir string) error {
	if err := in.box.(sandbox.Snapshotter).Snapshot(ctx, dir, false); err != nil {
		return err
	}
	files, ok := in.box.(sandbox.FileSnapshotter)
	if !ok {
		return nil
	}
	beside := filepath.Join(dir, filesDir)
	err := os.Mkdir(beside, 0o700)
	if err == nil {
		err = files.SnapshotFiles(ctx, beside, false)
	}
	if err != nil {
		l.memoryAlone(err)
		return os.RemoveAll(beside)
	}
	return nil
}

// seal seals what was written. Files for which the key has no room are removed.
func (l locked) seal(in *running, kept string) (*registry.Seal, error) {
	b := l.b
	seal, err := b.kept.seal(kept)
	if err != nil || seal.Files == "" {
		return seal, err
	}
	full := b.inventory.keptRoom(l.managed, in.grant.profile.Quota, seal.Bytes)
	if full == nil {
		return seal, nil
	}
	l.memoryAlone(full)
	if err := os.RemoveAll(filepath.Join(b.kept.path(kept), filesDir)); err != nil {
		return nil, err
	}
	return b.kept.seal(kept)
}

// memoryAlone tells the operator that the files are not beside the memory.
func (l locked) memoryAlone(why error) {
	l.b.o.Notice("sandbox " + l.id + " is kept with its memory alone: " + why.Error())
}
