// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// kind says what a skeleton made from h, without further targets, has at p.
func (h *hostTree) kind(o *HostOptions, p string) byte {
	if slices.Contains(layout, p) || slices.Contains(vacant, p) || within(o.User.Home, p) {
		return kindDir
	}
	if _, ok := layoutLinks[p]; ok {
		return kindLink
	}
	if _, ok := h.links[p]; ok {
		return kindLink
	}
	if strings.HasPrefix(p, "/etc/") {
		if _, ok := syntheticFiles(o.User, o.Hostname, "")[p]; ok {
			return kindFile
		}
		if i := slices.IndexFunc(h.etc, func(f found) bool { return f.path == p }); i >= 0 {
			return h.etc[i].kind
		}
	}
	return kindNone
}

// mountpoints returns the targets that a skeleton needs beyond what it has
// anyway, sorted and without repetition, and refuses those that cannot be had.
func (h *hostTree) mountpoints(o *HostOptions, binds []sandbox.Mount) ([]Target, error) {
	var extra []Target
	for _, t := range o.Targets {
		needed, err := h.mountpoint(o, binds, t)
		if err != nil {
			return nil, err
		}
		if needed {
			extra = append(extra, t)
		}
	}
	slices.SortFunc(extra, func(a, b Target) int { return cmp.Compare(a.Path, b.Path) })
	return slices.Compact(extra), nil
}

// mountpoint says whether t must be made.
func (h *hostTree) mountpoint(o *HostOptions, binds []sandbox.Mount, t Target) (bool, error) {
	const op = "build root filesystem"
	if err := checkInside(op, "target", t.Path); err != nil {
		return false, err
	}
	if err := reserved(t.Path); err != nil {
		return false, err
	}
	if t.Path == "/dev/shm" {
		return false, nil // the mount of /dev makes it
	}
	for _, u := range o.Targets {
		switch {
		case u.Path == t.Path && u.Dir != t.Dir:
			return false, badTarget(t, "is asked for as a file and as a directory", "give the two mounts different targets")
		case u.Path != t.Path && within(t.Path, u.Path) && !u.Dir:
			return false, badTarget(t, "lies below "+u.Path+", which is a file", "give one of them another target")
		case u.Path != t.Path && within(t.Path, u.Path):
			return false, nil // in the scratch or mount that is placed on u
		}
	}
	for _, b := range binds {
		if within(t.Path, b.Target) {
			return false, existsIn(b, t)
		}
	}
	for p := path.Dir(t.Path); p != "/"; p = path.Dir(p) {
		if k := h.kind(o, p); k == kindLink || k == kindFile {
			return false, badTarget(t, "passes through "+p+", which is no directory inside", "choose a target below /home/user, /data or /mnt")
		}
	}
	switch k := h.kind(o, t.Path); {
	case k == kindNone:
		return true, nil
	case (k == kindDir) == t.Dir && k != kindLink:
		return false, nil
	case slices.Contains(vacant, t.Path) && !within(o.User.Home, t.Path):
		return true, nil // a file, in place of the directory
	default:
		return false, badTarget(t, "is something else inside already", "choose a target below /home/user, /data or /mnt")
	}
}

// reserved refuses targets on what the level itself mounts.
func reserved(p string) error {
	if p == "/" {
		return badTarget(Target{Path: p}, "is the root itself", "give another root with --rootfs DIR")
	}
	for _, d := range []string{"/proc", "/sys", "/dev"} {
		if within(p, d) && p != "/dev/shm" {
			return badTarget(Target{Path: p}, "lies in "+d+", which belongs to the sandbox's kernel", "choose a target below /home/user, /data or /mnt")
		}
	}
	return nil
}

// existsIn refuses a target in a read-only host directory unless it is there.
func existsIn(b sandbox.Mount, t Target) error {
	if t.Path == b.Target && t.Dir {
		return nil
	}
	fd, err := unix.Openat2(int(b.Source.Fd()), strings.TrimPrefix(strings.TrimPrefix(t.Path, b.Target), "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err == nil {
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && (st.Mode&unix.S_IFMT == unix.S_IFDIR) == t.Dir {
			return nil
		}
	}
	return badTarget(t, fmt.Sprintf("cannot be made: %s is the host's own, shown read-only", b.Target), "choose a target below /home/user, /data or /mnt")
}

// badTarget is the error for a target that cannot be had.
func badTarget(t Target, problem, hint string) error {
	return &sandbox.Error{Op: "mount on " + t.Path, Kind: sandbox.ErrInvalid, Problem: "the target " + problem, Hint: hint}
}
