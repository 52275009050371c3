// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const (
	lockShared    = unix.LOCK_SH | unix.LOCK_NB
	lockTry       = unix.LOCK_EX | unix.LOCK_NB
	lockExclusive = unix.LOCK_EX
)

// errLocked says that another process holds the lock.
var errLocked = errors.New("it is in use")

// lockFile opens or makes a file and locks it for as long as it is open.
func lockFile(name string, how int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, err
	}
}
