// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Sweep removes what dead owners left. For each run directory whose owner is
// gone it calls clean with the directory's path, while holding its lock, and
// then deletes the directory. clean ends what may still be of the sandbox
// (processes, mounts, cgroups); it may be nil. When clean fails the directory
// stays for the next sweep.
//
// Sweep returns the ids it removed, and the errors of the others, joined. A
// directory that is held is passed over, the caller's own included; so is one
// that another sweep is at.
func (d *Dir) Sweep(ctx context.Context, clean func(ctx context.Context, path string) error) (swept []string, err error) {
	dir, err := d.openRuns()
	if err != nil {
		return nil, walkError(d.path, filepath.Join(d.path, runs), err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, walkError(d.path, filepath.Join(d.path, runs), err)
	}
	var errs []error
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return swept, errors.Join(append(errs, err)...)
		}
		if strings.HasPrefix(name, unused) {
			if _, err := sweepOne(ctx, dir, name, "", nil); err != nil {
				errs = append(errs, fmt.Errorf("sweep %s: %w", name, err))
			}
			continue
		}
		if !validID(name) {
			continue
		}
		gone, err := sweepOne(ctx, dir, name, filepath.Join(d.path, runs, name), clean)
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep %s: %w", name, err))
		} else if gone {
			swept = append(swept, name)
		}
	}
	if slices.ContainsFunc(names, unfinished) {
		errs = append(errs, sweepUnfinished(dir))
	}
	return swept, errors.Join(errs...)
}

// sweepOne removes dir/name if it is not held.
func sweepOne(ctx context.Context, dir *os.File, name, path string, clean func(context.Context, string) error) (bool, error) {
	lock, err := takeOver(dir, name)
	if lock == nil || err != nil {
		return false, err
	}
	defer lock.Close()
	if clean != nil {
		if err := clean(ctx, path); err != nil {
			return false, err
		}
	}
	if err := removeTree(dir, name); err != nil {
		return false, err
	}
	return true, nil
}

// takeOver takes the lock of a dead owner's directory. It returns nil when
// there is nothing to take: it is held, or it is going away under us.
func takeOver(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sub := os.NewFile(uintptr(fd), name)
	defer sub.Close()
	return lockDead(dir, name, sub)
}

// lockDead takes the lock of dir/name, which is open as sub.
func lockDead(dir *os.File, name string, sub *os.File) (*os.File, error) {
	lock, err := flock(sub, ownerLck, 0, unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, nil
	case errors.Is(err, unix.ENOENT):
		// Removal takes the lock file last, so this directory is empty and
		// on its way out, or its remover died just then. rmdir by name is
		// right for both, and harmless should the name be in use again.
		err := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		return nil, fmt.Errorf("it has no %s, so whose it is cannot be told; remove it by hand: %w", ownerLck, err)
	case err != nil:
		return nil, err
	}
	// Its owner may have deleted the file between our open and our lock.
	var st unix.Stat_t
	if err := unix.Fstat(int(lock.Fd()), &st); err != nil || st.Nlink == 0 {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// unfinished says whether a name is that of a directory whose maker is at work, or dead.
func unfinished(name string) bool { return strings.HasPrefix(name, newRun) }

// sweepUnfinished removes what makers left that died before the rename. While
// one is at work everything is left for the next sweep.
func sweepUnfinished(dir *os.File) error {
	gate, err := lockFile(dir, making, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer gate.Close()
	// Read again: only what is here now, with the lock held, is surely dead.
	if _, err := dir.Seek(0, 0); err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if !unfinished(name) {
			continue
		}
		// What is no directory is no maker's of these: a program that is being unpacked
		// beside them has such a name, too (package engine).
		if err := removeTree(dir, name); !errors.Is(err, unix.ENOTDIR) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
