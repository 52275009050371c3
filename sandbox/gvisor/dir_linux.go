// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// gVisor makes a working directory that is not there wherever it can be made: for
// nothing in scratch, which is empty at first, and on the host itself in a mount that
// may be written to. So what is known not to be there is refused before; what is not
// known is the kernel's inside to judge, which can make nothing in the rest.

// checkDir refuses a working directory that gVisor would make.
func checkDir(spec *sandbox.Spec, dir string) error {
	if !path.IsAbs(dir) || path.Clean(dir) != dir {
		return nil // which is refused elsewhere
	}
	var targets []string
	for _, sc := range spec.Scratch {
		targets = append(targets, sc.Target)
	}
	for _, m := range spec.Mounts {
		targets = append(targets, m.Target)
	}
	if slices.ContainsFunc(targets, func(t string) bool { return t != dir && sandbox.Within(t, dir) }) {
		return nil // it leads to something
	}
	if err := absent(spec, dir); err != nil {
		return sandbox.NoDirectory(dir, err.Error())
	}
	return nil
}

// absent says why dir is not there, where that is known: nil otherwise.
func absent(spec *sandbox.Spec, dir string) error {
	var at, depth = error(nil), 0
	if sandbox.Within(dir, "/dev") && !slices.Contains(deviceDirs, dir) {
		at, depth = unix.ENOENT, len("/dev")
	}
	for _, sc := range spec.Scratch {
		if sandbox.Within(dir, sc.Target) && len(sc.Target) >= depth {
			at, depth = nil, len(sc.Target)
			if dir != sc.Target {
				at = unix.ENOENT
			}
		}
	}
	for _, m := range spec.Mounts {
		if sandbox.Within(dir, m.Target) && len(m.Target) >= depth {
			at, depth = absentIn(m, dir), len(m.Target)
		}
	}
	return at
}

// deviceDirs are the directories of gVisor's /dev, which programs cannot change.
var deviceDirs = []string{"/dev", "/dev/pts", "/dev/shm", "/dev/fd"}

// absentIn looks for dir in what m shows. Where a link leads out of that, it is not
// known yet what it leads to.
func absentIn(m sandbox.Mount, dir string) error {
	rel := strings.TrimPrefix(strings.TrimPrefix(dir, m.Target), "/")
	switch {
	case rel == "" && m.Dir:
		return nil
	case !m.Dir:
		return unix.ENOTDIR
	}
	fd, err := unix.Openat2(int(m.Source.Fd()), rel, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case err == nil:
		unix.Close(fd)
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return err
	}
	return nil
}

// noDirectory recognises gVisor's words for a working directory that is not there and
// cannot be made, and says why as the kernel would.
func noDirectory(text string) (why string) {
	if !strings.Contains(text, "failed to create process working directory") && !strings.Contains(text, "failed to find initial working directory") {
		return ""
	}
	for _, e := range []error{unix.ENOTDIR, unix.EACCES, unix.ELOOP, unix.ENAMETOOLONG} {
		if strings.HasSuffix(text, e.Error()) {
			return e.Error()
		}
	}
	return unix.ENOENT.Error() // read-only, or a file system in which nothing can be made
}
