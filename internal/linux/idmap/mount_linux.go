// SPDX-License-Identifier: Apache-2.0

package idmap

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// Mount is New, one Namespace.Mount and Close.
func Mount(source *os.File, uid, gid Map) (*os.File, error) {
	n, err := New([]Map{uid}, []Map{gid})
	if err != nil {
		return nil, err
	}
	defer n.Close()
	return n.Mount(source)
}

// Mount makes a detached mount of source, an O_PATH or wider handle of a file
// or directory, whose owners are translated. Set-user-id bits and devices do
// not work in it. What is mounted further below source is not part of it. The
// caller closes what is returned.
//
// ErrUnsupported says that the kernel or source's file system cannot do it, or
// that source is seen through such a mount already.
func (n *Namespace) Mount(source *os.File) (*os.File, error) {
	op := "map owners of " + source.Name()
	fd, err := control(source, func(fd int) (int, error) {
		return unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	})
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrUnsupported, Problem: "the kernel will not clone the mount", Cause: err}
	}
	tree := os.NewFile(uintptr(fd), source.Name())
	_, err = control(n.file, func(ns int) (int, error) {
		attr := unix.MountAttr{
			Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
			Userns_fd: uint64(ns),
		}
		return 0, unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr)
	})
	if err != nil {
		_ = tree.Close()
		return nil, refused(op, source, err)
	}
	return tree, nil
}

// control runs fn with f's descriptor, which stays open meanwhile.
func control(f *os.File, fn func(fd int) (int, error)) (result int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := raw.Control(func(fd uintptr) { result, err = fn(int(fd)) }); e != nil {
		return 0, e
	}
	return result, err
}

// refused tells the kernel's answers apart (mount_setattr(2), "ERRORS").
func refused(op string, source *os.File, err error) error {
	e := &sandbox.Error{Op: op, Kind: sandbox.ErrUnsupported, Cause: err}
	switch {
	case errors.Is(err, unix.ENOSYS):
		e.Problem, e.Hint = "the kernel is older than 5.12", "make the files readable for others, or use a newer kernel"
	case errors.Is(err, unix.EINVAL):
		e.Problem, e.Hint = "their file system cannot show other owners", "keep them on ext4, xfs or btrfs, or make them readable for others"
	case errors.Is(err, unix.EPERM):
		e.Problem, e.Hint = "they are seen through a mount that translates owners already, or that belongs to another user namespace", "name them by another path"
	default:
		e.Problem = "the kernel refused it"
	}
	return e
}

// Supported tries it on a path, changing nothing, and returns why it cannot be
// done there, or nil. It costs as much as New.
func Supported(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &sandbox.Error{Op: "map owners of " + path, Kind: sandbox.ErrNotFound, Problem: "it cannot be opened", Cause: err}
	}
	source := os.NewFile(uintptr(fd), path)
	defer source.Close()
	tree, err := Mount(source, Map{Host: 0, Shown: 65534}, Map{Host: 0, Shown: 65534})
	if err != nil {
		return err
	}
	return tree.Close()
}
