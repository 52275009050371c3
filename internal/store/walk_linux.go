// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// maxLinks bounds the symbolic links of one walk, as the kernel does.
const maxLinks = 40

// walk opens the directory at path, which is absolute and clean, and returns
// its descriptor and the path with root's links resolved. With create it makes
// what is missing. The directory itself is judged by judgeOwn, the ones above
// it by judgeAncestor.
//
// openat2's RESOLVE_NO_SYMLINKS would refuse root's /var/run too, so the walk
// opens one component at a time, each relative to the last: what was judged is
// what the next one is looked up in.
func walk(path string, create bool) (dir *os.File, resolved string, err error) {
	todo := components(path)
	resolved = "/"
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	defer func() { unix.Close(fd) }()

	for links := 0; len(todo) > 0; {
		name, last := todo[0], len(todo) == 1
		todo = todo[1:]
		next, st, err := step(fd, name, create, last)
		if err != nil {
			return nil, "", walkError(path, filepath.Join(resolved, name), err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			target, err := followable(fd, next, name, st)
			unix.Close(next)
			if links++; err == nil && links > maxLinks {
				err = unix.ELOOP
			}
			if err != nil {
				return nil, "", walkError(path, filepath.Join(resolved, name), err)
			}
			if last {
				// What the caller named must be the directory itself.
				return nil, "", walkError(path, filepath.Join(resolved, name), errSymlink)
			}
			// Links of root are resolved from where we stand, or afresh.
			if filepath.IsAbs(target) {
				todo = append(components(target), todo...)
			} else {
				todo = append(components(filepath.Join(resolved, target)), todo...)
			}
			resolved = "/"
			root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, "", err
			}
			unix.Close(fd)
			fd = root
			continue
		}
		unix.Close(fd)
		fd = next
		resolved = filepath.Join(resolved, name)
		if last {
			err = judgeOwn(st)
		} else if err = judgeAncestor(st); len(todo) == 1 && (err == nil || errors.Is(err, errWritable)) && st.Mode&0o022 != 0 && isVolume(fd, st) {
			narrow(fd, todo[0])
			err = nil
		}
		if err != nil {
			return nil, "", walkError(path, resolved, err)
		}
	}
	// O_PATH was enough to look; now it is opened for reading, as itself.
	rfd, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", walkError(path, resolved, err)
	}
	return os.NewFile(uintptr(rfd), resolved), resolved, nil
}

// components splits a path into its names.
func components(path string) []string {
	return strings.FieldsFunc(filepath.Clean(path), func(r rune) bool { return r == '/' })
}

// step opens name in dir without following it, and makes it where it is
// missing and wanted.
func step(dir int, name string, create, last bool) (int, *unix.Stat_t, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags, 0)
	if errors.Is(err, unix.ENOENT) && create {
		mode := uint32(0o700)
		if os.Geteuid() == 0 && !last {
			mode = 0o755 // /var/lib on a bare system is not ours alone
		}
		if err := unix.Mkdirat(dir, name, mode); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, nil, err
		}
		fd, err = unix.Openat(dir, name, flags, 0)
	}
	if err != nil {
		return -1, nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, &st, nil
}

// Why a component is refused.
var (
	errSymlink  = errors.New("it is a symbolic link")
	errNotDir   = errors.New("it is not a directory")
	errForeign  = errors.New("it belongs to another user")
	errWide     = errors.New("other users may enter it")
	errWritable = errors.New("every user may rename what is in it")
)

// followable reads a link that root alone can have made or can change: root's
// own, in a directory of root's in which others cannot replace it.
func followable(dir, link int, name string, st *unix.Stat_t) (string, error) {
	var parent unix.Stat_t
	if err := unix.Fstat(dir, &parent); err != nil {
		return "", err
	}
	replaceable := parent.Mode&0o022 != 0 && parent.Mode&unix.S_ISVTX == 0
	if st.Uid != 0 || parent.Uid != 0 || replaceable {
		return "", errSymlink
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(link, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// judgeOwn says whether a directory may be the state directory.
func judgeOwn(st *unix.Stat_t) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return errNotDir
	case int(st.Uid) != os.Geteuid():
		return errForeign
	case st.Mode&0o077 != 0:
		return errWide
	}
	return nil
}

// judgeAncestor says whether a directory may lie above the state directory: no
// other user may be able to rename what is in it. Group-writable is let
// through, because a group of one's own and umask 002 are usual.
func judgeAncestor(st *unix.Stat_t) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return errNotDir
	case st.Uid != 0 && int(st.Uid) != os.Geteuid() && !unmapped(st.Uid):
		return errForeign
	case st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0:
		return errWritable
	}
	return nil
}

// unmapped says whether uid is how a user namespace shows an owner it has no
// number for, which the host's root is in `unshare -r`. What cannot be named
// cannot be told from root's; it passes as an ancestor, never as our own.
func unmapped(uid uint32) bool {
	overflow, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil || strconv.FormatUint(uint64(uid), 10) != strings.TrimSpace(string(overflow)) {
		return false
	}
	m, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(m)), " ") != "0 0 4294967295"
}

// walkError turns what stopped a walk into a sentence and a way out.
func walkError(want, at string, cause error) error {
	e := &sandbox.Error{Op: "state directory " + want, Kind: sandbox.ErrDenied}
	const elsewhere = "set CAISSON_STATE to a directory of your own"
	path := at
	if at == want {
		at = "it"
	}
	switch {
	case errors.Is(cause, errForeign):
		e.Problem = at + " belongs to another user"
		e.Hint = elsewhere + ": each user has one"
	case errors.Is(cause, errSymlink), errors.Is(cause, unix.ELOOP):
		e.Problem = at + " is a symbolic link, which could be pointed elsewhere"
		e.Hint = "set CAISSON_STATE to the directory itself"
	case errors.Is(cause, errWide):
		e.Problem = at + " is open to other users"
		e.Hint = "run: chmod 700 " + path
	case errors.Is(cause, errWritable):
		e.Problem = at + " can be written by every user, who could put something else there"
		e.Hint = elsewhere
	case errors.Is(cause, errNotDir), errors.Is(cause, unix.ENOTDIR):
		e.Kind, e.Problem = sandbox.ErrInvalid, at+" is not a directory"
		e.Hint = elsewhere
	case errors.Is(cause, unix.ENAMETOOLONG):
		e.Kind, e.Problem = sandbox.ErrInvalid, "the path is too long"
		e.Hint = elsewhere
	case errors.Is(cause, unix.ENOENT) && isKernels(path):
		e.Kind, e.Problem = sandbox.ErrInvalid, at+" cannot be made: the kernel shows itself there, and keeps no files"
		e.Hint = elsewhere
	case errors.Is(cause, unix.ENOENT):
		e.Kind, e.Problem = sandbox.ErrNotFound, at+" does not exist"
		e.Hint = "it is made by the first run"
		e.Cause = unix.ENOENT
	case errors.Is(cause, unix.EROFS):
		e.Kind, e.Problem, e.Cause = sandbox.ErrUnavailable, at+" is on a read-only file system", unix.EROFS
		e.Hint = "set CAISSON_STATE to a directory on a disk that can be written"
	case errors.Is(cause, unix.ENOSPC), errors.Is(cause, unix.EDQUOT):
		e.Kind, e.Problem, e.Cause = sandbox.ErrUnavailable, "the disk of "+path+" is full", unix.ENOSPC
		e.Hint = "free some space, or set CAISSON_STATE to a directory on another disk"
	case errors.Is(cause, unix.EACCES), errors.Is(cause, unix.EPERM):
		e.Kind, e.Problem, e.Cause = sandbox.ErrUnavailable, fmt.Sprintf("uid %d may not make or enter %s", os.Geteuid(), at), unix.EACCES
		e.Hint = elsewhere
	default:
		e.Kind, e.Problem, e.Cause = sandbox.ErrUnavailable, at+" cannot be opened", cause
		e.Hint = elsewhere
	}
	return e
}

// isKernels says whether path would lie on a file system by which the kernel shows itself.
func isKernels(path string) bool {
	var st unix.Statfs_t
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if err := unix.Statfs(dir, &st); err == nil || dir == "/" {
			return err == nil && (st.Type == unix.PROC_SUPER_MAGIC || st.Type == unix.SYSFS_MAGIC)
		}
	}
}
