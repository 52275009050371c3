// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// FindPoint looks for target in the object owner, which is shown at place: a directory if
// dir says so, anything else otherwise. No link is followed, and nothing outside of
// owner is looked at. An error of its own is fs.ErrNotExist where there is nothing.
func FindPoint(owner *os.File, place, target string, dir bool) error {
	rel := strings.TrimPrefix(strings.TrimPrefix(target, place), "/")
	if rel == "" {
		return nil
	}
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(int(owner.Fd()), rel, how)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR; isDir != dir {
		return errors.New("there is a file where a directory is to be mounted, or the other way round")
	}
	return nil
}
