// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// heldTail is audit.tail while nobody else may write to it or to the database.
type heldTail struct {
	f    *os.File
	dir  string
	line []byte   // the sector, as it was read or written last
	says tailHead // what it says
	used bool     // something lies behind it

	asLeft bool // the sector is as this process left it
}

// holdTail waits for the file's lock, and makes the file where there is none. It opens
// the file each time: so nothing that another process made inherits the lock, and what
// was moved away is not written to.
//
// What is there and is no file of caisson's is damage.
func (l *Log) holdTail(ctx context.Context) (*heldTail, error) {
	return l.hold(ctx, os.O_RDWR|os.O_CREATE)
}

// holdTailToRead is holdTail of a file that cannot be written to, or need not be.
func (l *Log) holdTailToRead(ctx context.Context) (*heldTail, error) { return l.hold(ctx, os.O_RDONLY) }

func (l *Log) hold(ctx context.Context, mode int) (*heldTail, error) {
	path := l.path(tailFile)
	for began, wait := time.Now(), firstWait; ; wait = nextWait(wait, time.Since(began)) {
		f, err := os.OpenFile(path, mode|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, noFile(err)
		}
		err = lockTail(f, path)
		if err == nil {
			h := &heldTail{f: f, dir: l.dir, line: l.tailLine, says: l.tailSays}
			if err = h.look(); err != nil {
				h.release()
			}
			return h, err
		}
		f.Close()
		if !errors.Is(err, errTailHeld) {
			return nil, err
		}
		if time.Since(began) > mostWait {
			return nil, err
		}
		if l.onBusy != nil {
			l.onBusy()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		case <-time.After(wait):
		}
	}
}

// firstWait is how long who finds audit.tail held waits before it asks again.
const firstWait = 50 * time.Microsecond

// nextWait is how long it waits after that. A hundred processes that ask all the time
// keep the processors from the one that has the lock, so they ask less and less; but who
// has waited for long asks more often than those who have just come, and is not passed by
// for ever. To stand in the kernel's line instead is fair, and slower by half: the lock
// lies idle until the next in line has a processor.
func nextWait(wait, waited time.Duration) time.Duration {
	if waited > busyWait/5 {
		return 10 * time.Millisecond
	}
	return min(2*wait, 40*time.Millisecond)
}

// lockTail takes the lock of a file that is still the one at path.
func lockTail(f *os.File, path string) error {
	var err error
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errTailHeld
	}
	if err != nil {
		return err
	}
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	if !mine.Mode().IsRegular() {
		return errNoFile
	}
	there, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(mine, there) {
		return errTailHeld // it was moved away or replaced meanwhile: the next look finds another one
	}
	return err
}

// release gives the lock back, also where a process that was made meanwhile has a copy
// of the descriptor. A second call, and one of nil, does nothing.
func (h *heldTail) release() {
	if h == nil || h.f == nil {
		return
	}
	_ = unix.Flock(int(h.f.Fd()), unix.LOCK_UN)
	h.f.Close()
	h.f = nil
}
