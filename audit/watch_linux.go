// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// watch says when a file was written, by whomever, until ctx ends: the channel has an
// element then, and no more than one. It is closed when no more can be said.
func watch(ctx context.Context, name string) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, name, unix.IN_MODIFY|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	changes := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { f.Close() })
	go func() {
		defer close(changes)
		defer f.Close()
		defer stop()
		b := make([]byte, 4096) // whole events of one file, which have no name
		for {
			if n, err := f.Read(b); err != nil || n == 0 {
				return
			}
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}()
	return changes, nil
}
