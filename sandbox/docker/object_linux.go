// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/mounts"
	"github.com/caisson-run/caisson/sandbox"
)

// objectOf is what info is about.
func objectOf(info fs.FileInfo) object {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return object{}
	}
	return object{uint64(st.Dev), st.Ino}
}

// openPath opens a handle that is good for nothing but to name the object.
func openPath(name string) (*os.File, error) {
	return os.OpenFile(name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// fdPath is f's name for the kernel, whatever f is called.
func fdPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// nameOf is where an open object is now.
func nameOf(f *os.File) (string, error) {
	name, err := os.Readlink(fdPath(f))
	if err != nil {
		return "", err
	}
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	now, err := os.Lstat(name)
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(name) || !os.SameFile(info, now) {
		return "", errors.New("it was removed")
	}
	return name, nil
}

// exists looks for m's target in the object that owner shows.
func exists(owner, m sandbox.Mount) error {
	return mounts.FindPoint(owner.Source, owner.Target, m.Target, m.Dir)
}

// mountedBelow is a mountpoint below a directory, or "".
func mountedBelow(dir string) string {
	const unknown = "somewhere (the mounts of this host cannot be read)"
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(b)) {
		m, ok := mounts.Parse(line)
		switch {
		case !ok:
			return unknown
		case m.Point != dir && sandbox.Within(m.Point, dir):
			return m.Point
		}
	}
	return ""
}

// isHere says whether pid is, on this machine, a process with these arguments,
// one of which is the sandbox's own ID. A runtime may be about to execute it.
func isHere(ctx context.Context, pid int, argv []string) bool {
	want := strings.Join(argv, "\x00") + "\x00"
	for end := time.Now().Add(hereLimit); ; {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || string(b) == want {
			return err == nil
		}
		if time.Now().After(end) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Millisecond):
		}
	}
}

// hereLimit is how long a runtime may take from saying that a process runs to
// its running.
const hereLimit = 2 * time.Second

// shown are the objects at targets in the mount namespace of a process.
// os.ErrPermission is what one gets who may not look there.
func shown(pid int, targets []string) ([]object, error) {
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	objects := make([]object, len(targets))
	for i, t := range targets {
		fd, err := unix.Openat2(root, strings.TrimPrefix(t, "/"), &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS,
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t, err)
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t, err)
		}
		objects[i] = object{st.Dev, st.Ino}
	}
	return objects, nil
}
