// SPDX-License-Identifier: Apache-2.0

package store

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/hostfacts"
)

// inVolume is the directory of ours in a volume that is open to all.
const inVolume = "caisson"

// container names the container that this process is in; empty on a host. Tests change it.
var container = hostfacts.Container

// onVolume is p, or the directory of ours in it where p is a volume of a container that is
// open to others: engines make them with mode 0777, or 2777 for a group, and belong to that
// container alone.
func (p place) onVolume() place {
	fd, err := unix.Open(p.path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return p
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 == 0 || !isVolume(fd, &st) {
		return p
	}
	p.path = filepath.Join(p.path, inVolume)
	return p
}

// isVolume says whether an open directory is the root of a file system that was mounted into
// the container that this process is in, and no other user's: those who may write there are in
// the same container. On a host a directory that all may write is refused.
func isVolume(fd int, st *unix.Stat_t) bool {
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() && !unmapped(st.Uid) || container() == "" {
		return false
	}
	var x unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, 0, &x)
	return err == nil && x.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// narrow takes a group's rights from the directory of ours in a volume: kubelet gives them to
// fsGroup each time it mounts one.
func narrow(volume int, name string) {
	fd, err := unix.Openat(volume, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return // the walk says why
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && int(st.Uid) == os.Geteuid() && st.Mode&0o077 != 0 && st.Mode&0o007 == 0 {
		_ = unix.Fchmod(fd, 0o700)
	}
}
