// SPDX-License-Identifier: Apache-2.0

package files

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// unnamed makes a file in dir that has no name.
func unnamed(dir string) (*os.File, error) {
	return unnamedAt(unix.AT_FDCWD, dir, 0o600)
}

func unnamedAt(at int, dir string, perm os.FileMode) (*os.File, error) {
	fd, err := unix.Openat(at, dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, uint32(perm.Perm()))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// unnamedBelow makes one in a directory below root.
func unnamedBelow(root *os.Root, dir string, perm os.FileMode) (*os.File, error) {
	in, err := below(root, dir)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return unnamedAt(int(in.Fd()), ".", perm)
}

// name gives it one, which nothing has.
func name(f *os.File, path string) error { return nameAt(f, unix.AT_FDCWD, path) }

// nameBelow does the same in a directory below root.
func nameBelow(f *os.File, root *os.Root, path string) error {
	in, err := below(root, filepath.Dir(path))
	if err != nil {
		return err
	}
	defer in.Close()
	return nameAt(f, int(in.Fd()), filepath.Base(path))
}

// below opens a directory, and does not wait where something else lies there by now.
func below(root *os.Root, dir string) (*os.File, error) {
	return root.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
}

func nameAt(f *os.File, at int, path string) error {
	err := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(f.Fd())), at, path, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.LinkError{Op: "link", Old: "(unnamed)", New: path, Err: err}
	}
	return nil
}

// renameNew gives a file below root another name, which nothing has.
func renameNew(root *os.Root, from, to string) error {
	in, err := below(root, filepath.Dir(to))
	if err != nil {
		return err
	}
	defer in.Close()
	err = unix.Renameat2(int(in.Fd()), filepath.Base(from), int(in.Fd()), filepath.Base(to), unix.RENAME_NOREPLACE)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// flush says what closing a file would say, and leaves it open.
func flush(f *os.File) error {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// tryLock locks a file for as long as it is open, unless another has.
func tryLock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// openIdle opens a file without waiting.
func openIdle(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
}
