// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// buildingName is of a file in each cache directory. It stays empty: each byte that it
// could have is the lock of a tree that is being built, or of what else one at a time does
// here (F_OFD_SETLKW, fcntl(2)), so that who dies leaves nothing to be taken away.
const buildingName = ".building"

// alone waits until no other builder has the tree called key, in this process or
// another: a second builder would only do the same work again. Where the file system
// has no such locks, several build at a time, which is allowed.
func (c cache) alone(ctx context.Context, key string) (done func(), _ error) {
	f, err := os.OpenFile(filepath.Join(c.dir, buildingName), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, cacheError("lock tree", err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: place(c.prefix + key), Len: 1}
	release := func() {
		// Closing would not be enough while a child that is being forked has it open.
		lock.Type = unix.F_UNLCK
		_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
		f.Close()
	}
	got := make(chan struct{})
	go func() {
		defer close(got)
		for unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, &lock) == unix.EINTR {
		}
	}()
	select {
	case <-got:
		return release, nil
	case <-ctx.Done():
		go func() { <-got; release() }() // it cannot be called back
		return nil, &sandbox.Error{Op: "build root filesystem", Kind: sandbox.ErrUnavailable,
			Problem: "it was interrupted while another caisson builds the same", Hint: "try again", Cause: context.Cause(ctx)}
	}
}

// place is the byte of a tree. That two trees share one, of 2^62, would cost time.
func place(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 2)
}
