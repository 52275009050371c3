// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// holdTail opens audit.tail and waits for its lock, which an older caisson holds while it
// appends. Closing the file gives the lock back. os.ErrNotExist says that another process
// has taken the tail over meanwhile.
func holdTail(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
		return nil, errNoTail
	}
	if err != nil {
		return nil, err
	}
	if err = lockTail(ctx, f); err == nil {
		err = stillAt(f, path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// lockTail waits for the lock, busyWait at most.
func lockTail(ctx context.Context, f *os.File) error {
	for began := time.Now(); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if time.Since(began) > busyWait {
			return errTailHeld
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), errTailHeld)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stillAt says whether path names the file; os.ErrNotExist when it does not.
func stillAt(f *os.File, path string) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(path)
	if err == nil && !os.SameFile(mine, there) {
		return os.ErrNotExist
	}
	return err
}
