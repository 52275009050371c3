// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// Open opens a host path that the operator named, and judges what it opened.
//
// It returns ErrInvalid for a spelling that cannot be meant, ErrNotFound for
// what does not exist, ErrDenied with a rule for what is refused, and
// ErrUnavailable for what cannot be judged. The caller closes the Source. It
// may be called from many goroutines.
func Open(path string, o Options) (*Source, error) {
	if o.getenv == nil {
		o.getenv = os.Getenv
	}
	if o.passwd == "" {
		o.passwd = "/etc/passwd"
	}
	if err := checkName(path, o); err != nil {
		return nil, err
	}
	// Magic links lead to what another process has open: they are no path.
	fd, err := openPath(unix.AT_FDCWD, path, unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return nil, openError(path, o, err)
	}
	src, err := describe(fd, path, o)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	if err := judge(src, o); err != nil {
		src.Close()
		return nil, err
	}
	return src, nil
}

// openPath opens an object without opening what is behind it.
func openPath(dir int, path string, resolve uint64) (int, error) {
	return openAt(dir, path, unix.O_PATH, resolve)
}

// beneath keeps a path below the directory that it starts from, and out of links.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openAt is openat2(2) without interruptions.
func openAt(dir int, path string, flags, resolve uint64) (int, error) {
	for {
		fd, err := unix.Openat2(dir, path, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve})
		// EAGAIN: something was renamed while the kernel looked.
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// openError says why a path could not be opened.
func openError(path string, o Options, err error) error {
	e := &sandbox.Error{Op: o.op(path), Kind: sandbox.ErrInvalid}
	switch {
	case errors.Is(err, unix.ENOENT):
		e.Kind, e.Problem, e.Hint = sandbox.ErrNotFound, "there is no such file or directory", "check the path"
		if strings.HasPrefix(path, "~") {
			e.Hint = "~ was not expanded: write $HOME, or drop the quotes"
		}
	case errors.Is(err, unix.ENOTDIR):
		e.Kind, e.Problem, e.Hint = sandbox.ErrNotFound, "a part of the path is a file and not a directory", "check the path, and the slash at its end"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		e.Problem, e.Hint = fmt.Sprintf("uid %d may not reach it", os.Geteuid()), "check the permissions of the directories above it"
	case errors.Is(err, unix.ELOOP):
		e.Problem, e.Hint = "its symbolic links go in a circle or through another process", "name the file itself"
	case errors.Is(err, unix.ENAMETOOLONG):
		e.Problem, e.Hint = "a name in it is too long", "check the path"
	default:
		e.Kind, e.Problem, e.Cause = sandbox.ErrUnavailable, "it cannot be opened", err
		e.Hint = "check the path; caisson needs Linux 5.6 or newer"
	}
	return e
}

// describe reads what is known of an open object from its descriptor, which
// the Source owns from then on.
func describe(fd int, path string, o Options) (*Source, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, openError(path, o, err)
	}
	src := &Source{Name: path, UID: st.Uid, GID: st.Gid, Dev: st.Dev, Ino: st.Ino}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		src.Dir = true
	case unix.S_IFREG:
	default:
		what := map[uint32]string{unix.S_IFSOCK: "a socket", unix.S_IFIFO: "a named pipe",
			unix.S_IFCHR: "a device", unix.S_IFBLK: "a device"}[st.Mode&unix.S_IFMT]
		return nil, refuse(o.op(path), "it is "+what+", which leads out of the sandbox", forbidden{rule: ruleSpecial, never: true})
	}
	real, err := realPath(fd)
	if err != nil {
		return nil, changed(path, o)
	}
	src.Real, src.File = real, os.NewFile(uintptr(fd), real)
	return src, nil
}

// realPath asks the kernel where an open object is.
func realPath(fd int) (string, error) {
	p, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err == nil && !strings.HasPrefix(p, "/") {
		err = unix.ENOENT // outside of our root, or nowhere
	}
	return p, err
}

// changed is the error for an object that is moved while it is looked at.
func changed(path string, o Options) error {
	return &sandbox.Error{Op: o.op(path), Kind: sandbox.ErrUnavailable, Problem: "it was moved or removed while it was looked at",
		Hint: "stop what changes it and try again", Rule: "built-in: objects, not names"}
}
