// SPDX-License-Identifier: Apache-2.0

package newfile

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// unnamed makes a file in dir that has no name.
func unnamed(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// name gives it one, which nothing has.
func name(f *os.File, path string) error {
	err := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(f.Fd())), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.LinkError{Op: "link", Old: "(unnamed)", New: path, Err: err}
	}
	return nil
}
