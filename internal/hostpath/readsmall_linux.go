// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// readSmall reads a regular file below dir, through no link inside dir and without
// waiting. The error is unix.ENOENT when there is none.
func readSmall(dir int, name string, maximum int64) ([]byte, error) {
	resolve := uint64(unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS)
	if dir != unix.AT_FDCWD {
		resolve |= unix.RESOLVE_BENEATH
	}
	fd, err := openPath(dir, name, resolve)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, errNoFile
	case st.Size > maximum:
		return nil, errTooBig
	}
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(again)
	b := make([]byte, st.Size+1)
	n := 0
	for n < len(b) {
		m, err := unix.Read(again, b[n:])
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, err
		}
		if m == 0 && err == nil {
			break
		}
		n += max(m, 0)
	}
	if n > int(st.Size) {
		return nil, errTooBig // it grows
	}
	return b[:n], nil
}

// missing says that there is no such file, or no directory for it.
func missing(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

var (
	errNoFile = errors.New("it is no regular file")
	errTooBig = errors.New("it is too big")
)
