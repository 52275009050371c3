// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// Device is a whole block device.
type Device struct{ Major, Minor uint32 }

// String is "major:minor", as control files want it.
func (d Device) String() string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

// BlockDevice finds the whole block device that a file or directory lies on:
// the disk of a partition, the mapped device of an LVM volume. A file system
// without one of its own (tmpfs, overlay, btrfs, network) is ErrUnsupported
// with its name.
func BlockDevice(path string) (Device, error) { return blockDevice("", path) }

func blockDevice(root, path string) (Device, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Device{}, &sandbox.Error{Op: "find the disk of " + path, Kind: sandbox.ErrNotFound, Problem: "it cannot be read", Cause: err}
	}
	return wholeDevice(root, path, Device{unix.Major(st.Dev), unix.Minor(st.Dev)})
}

// wholeDevice goes from a partition to its disk: throttling takes no other.
func wholeDevice(root, path string, d Device) (Device, error) {
	op := "find the disk of " + path
	if d.Major == 0 {
		return Device{}, &sandbox.Error{Op: op, Kind: sandbox.ErrUnsupported, Problem: "a file system without a block device of its own (" + fsType(path) + ") has no I/O to limit",
			Hint: "put it on ext4 or xfs, or drop the I/O limit"}
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(root, "/sys/dev/block", d.String()))
	if err != nil {
		return Device{}, &sandbox.Error{Op: op, Kind: sandbox.ErrUnsupported, Problem: "its device " + d.String() + " is not visible here", Cause: err}
	}
	if !exists(filepath.Join(dir, "partition")) {
		return d, nil
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "dev"))
	whole, ok := parseDevice(string(text))
	if err != nil || !ok {
		return Device{}, &sandbox.Error{Op: op, Kind: sandbox.ErrUnsupported, Problem: "the disk of partition " + d.String() + " is not visible here", Cause: err}
	}
	return whole, nil
}

func parseDevice(text string) (Device, bool) {
	major, minor, found := strings.Cut(strings.TrimSpace(text), ":")
	a, errA := strconv.ParseUint(major, 10, 32)
	b, errB := strconv.ParseUint(minor, 10, 32)
	return Device{uint32(a), uint32(b)}, found && errA == nil && errB == nil
}

// fsType names the file systems that people meet here.
func fsType(path string) string {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return "unknown"
	}
	switch st.Type {
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	}
	return fmt.Sprintf("type %#x", st.Type)
}
