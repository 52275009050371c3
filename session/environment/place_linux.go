// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// makePlace makes an empty file in what is mounted, for another to be shown over it. What
// is there may be code's own doing: no link is followed, and what is no file stays.
func makePlace(m sandbox.Mount, target string) error {
	if m.Access != sandbox.ReadWrite {
		return &sandbox.Error{Op: "mount", Kind: sandbox.ErrInvalid, Problem: "its directory lies in the mount at " + m.Target + ", which is not read-write", Hint: "give that another target, or leave the login out"}
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(target, m.Target), "/")
	at := int(m.Source.Fd())
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	dir, below := path.Split(rest)
	var done string
	for _, part := range strings.Split(strings.Trim(dir, "/"), "/") {
		if part == "" {
			continue
		}
		done = path.Join(done, part)
		parent, err := unix.Openat2(at, path.Join(".", path.Dir(done)), &how)
		if err != nil {
			return err
		}
		err = unix.Mkdirat(parent, part, 0o700)
		if err == nil {
			err = unix.Fchownat(parent, part, ownerOf(at, true), ownerOf(at, false), unix.AT_SYMLINK_NOFOLLOW)
		}
		unix.Close(parent)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	parent, err := unix.Openat2(at, path.Join(".", dir), &how)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	fd, err := unix.Openat2(parent, below, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CREAT | unix.O_NONBLOCK | unix.O_CLOEXEC, Mode: 0o600, Resolve: how.Resolve})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("there is something else than a file")
	}
	return nil
}

// ownerOf is the user, or the group, that a directory belongs to.
func ownerOf(fd int, user bool) int {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return -1
	}
	if user {
		return int(st.Uid)
	}
	return int(st.Gid)
}
