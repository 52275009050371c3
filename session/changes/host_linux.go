// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/hostpath"
)

// host is a workspace on the host. No way of looking at it follows a link, leaves it, or
// enters another file system.
type host struct {
	root  *os.File
	began time.Time // of the run; zero where it does not matter
}

const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// at opens what is at a path, or O_PATH alone.
func (h *host) at(path string, flags int) (int, error) {
	if path == "" {
		path = "."
	}
	for {
		fd, err := unix.Openat2(int(h.root.Fd()), path, &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Resolve: beneath})
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// look says what is at a path; nil is nothing, also where a link or a file is in the way.
func (h *host) look(path string) (*Base, error) {
	fd, err := h.at(path, unix.O_PATH)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return h.base(&st), nil
}

func missing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// elsewhere says that a path is on another file system.
func elsewhere(err error) bool { return errors.Is(err, unix.EXDEV) }

func (h *host) base(st *unix.Stat_t) *Base {
	b := &Base{Mode: st.Mode & 0o777, Size: st.Size, Dev: st.Dev, Inode: st.Ino, Links: uint64(st.Nlink),
		Ctime: time.Unix(st.Ctim.Unix()).UTC(), Mtime: time.Unix(st.Mtim.Unix()).UTC()}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		b.Type = File
	case unix.S_IFDIR:
		b.Type, b.Size, b.Links = Dir, 0, 0
	case unix.S_IFLNK:
		b.Type = Link
	}
	b.Touched = b.Type != Dir && h.since(b)
	return b
}

// open opens a regular file to read it.
func (h *host) open(path string) (*os.File, error) {
	fd, err := h.at(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: unix.EINVAL}
	}
	return f, nil
}

// list gives the names in a directory, sorted; none where there is no directory.
func (h *host) list(path string) ([]string, error) {
	fd, err := h.at(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// readlink says where a link leads.
func (h *host) readlink(path string) (string, error) {
	fd, err := h.at(path, unix.O_PATH)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: path, Err: err}
	}
	defer unix.Close(fd)
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: path, Err: err}
	}
	return string(buf[:n]), nil
}

// NamedByGit finds what git's configurations name in a workspace: those of the repositories
// that it is, is a part of, or has entries in.
func NamedByGit(root *os.File, entries []Entry) Named {
	return newNamed(hostpath.GitNames(root, treesOf(entries)))
}

// identity tells a directory from others.
func identity(f *os.File) (dev, inode uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, 0, err
	}
	return st.Dev, st.Ino, nil
}

// maxTick bounds how long the file systems' clock stands still: 10 ms where CONFIG_HZ is
// 100, and as much again for a clock that is being set.
const maxTick = 20 * time.Millisecond

// Clock is the time as the host's file systems stamp it, once that has passed t. What was
// changed up to t has a ctime before it; what is changed afterwards has not. It is what
// Source.Began wants. It waits for one tick at most.
func Clock(t time.Time) time.Time {
	for waited := time.Duration(0); ; waited += time.Millisecond {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
			return time.Now()
		}
		if now := time.Unix(ts.Unix()).UTC(); now.After(t) || waited >= maxTick {
			return now
		}
		time.Sleep(time.Millisecond)
	}
}

// since says that a file, or the names in a directory, were changed after the run began.
func (h *host) since(b *Base) bool { return !h.began.IsZero() && !b.Ctime.Before(h.began) }

// shows says whether the sandbox's user, who has the rights of the workspace's owner, may
// read what is at a path. Root reads all, and the code must not get by root what it could
// not read.
func (h *host) shows(path string) (bool, error) {
	var root, st unix.Stat_t
	if err := unix.Fstat(int(h.root.Fd()), &root); err != nil {
		return false, &os.PathError{Op: "stat", Path: ".", Err: err}
	}
	fd, err := h.at(path, unix.O_PATH)
	if missing(err) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	needed := uint32(0o4)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return true, nil
	case unix.S_IFDIR:
		needed = 0o5
	}
	switch {
	case st.Uid == root.Uid:
		needed <<= 6
	case st.Gid == root.Gid:
		needed <<= 3
	}
	return st.Mode&needed == needed, nil
}
