// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// levelDirs are what every level mounts something on; they must be there, and
// be directories themselves.
var levelDirs = []string{"/proc", "/sys", "/dev", "/tmp"}

// hostileLinks are names on which, or below which, runtimes mount, create or
// open something while they start; as links out of the tree they have led to
// the host (CVE-2024-21626, CVE-2025-31133, CVE-2025-52565, CVE-2026-41579).
// Links that only programs inside follow (/bin → /usr/bin) mean the sandbox's
// own root to them and do no harm.
var hostileLinks = []string{
	"/dev", "/dev/console", "/dev/null", "/dev/ptmx", "/dev/pts", "/dev/pts/0", "/dev/shm",
	"/etc", "/etc/group", "/etc/hostname", "/etc/hosts", "/etc/passwd", "/etc/resolv.conf",
	"/home", "/proc", "/root", "/run", "/sys", "/tmp", "/var", "/var/tmp",
}

// Dir returns a directory as a root filesystem, as it is and read-only: its
// own /etc counts, and nothing is made or changed in it.
//
// Mountpoints must therefore exist in it: the directories that every level
// needs (/proc, /sys, /dev, /tmp), the home directory, and each target and
// toolchain that is not below another target. One that is missing, or that is
// reached through a link, is refused by name with ErrInvalid; a tree whose top
// leads out of it by links is refused with ErrDenied. The caller keeps and
// closes src after Root.Close.
func Dir(ctx context.Context, src *hostpath.Source, o DirOptions) (*Root, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d := dirRoot{src: src}
	if !src.Dir {
		return nil, d.bad(sandbox.ErrInvalid, "it is a file", "name a directory that holds usr, bin, lib and so on")
	}
	if err := d.checkLinks(); err != nil {
		return nil, err
	}
	for _, p := range levelDirs {
		if err := d.exists(Target{p, true}); err != nil {
			return nil, err
		}
	}
	r := &Root{}
	var binds []sandbox.Mount
	targets := slices.Clone(o.Targets)
	for _, t := range o.Toolchains {
		if err := checkToolchain(t); err != nil {
			return nil, err
		}
		r.Path = append(r.Path, binOf(t))
		m := sandbox.Mount{Source: t.File, Name: t.Name, Target: t.Real, Dir: true}
		if slices.ContainsFunc(o.Targets, func(u Target) bool { return within(t.Real, u.Path) }) {
			r.mounts = append(r.mounts, m)
			continue
		}
		binds = append(binds, m)
		targets = append(targets, Target{t.Real, true})
	}
	for _, t := range targets {
		if err := d.target(t, o.Targets); err != nil {
			return nil, err
		}
	}
	r.Path = append(r.Path, usualPath...)
	fd, err := unix.FcntlInt(src.File.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, d.bad(sandbox.ErrUnavailable, "it cannot be opened: "+err.Error(), "close other programs: too many files are open")
	}
	dir := os.NewFile(uintptr(fd), src.Real)
	r.open = append(r.open, dir)
	r.root = sandbox.Root{Dir: dir, Binds: binds}
	return r, nil
}

// dirRoot is a directory that is looked at.
type dirRoot struct{ src *hostpath.Source }

// bad is an error about the tree.
func (d dirRoot) bad(kind error, problem, hint string) error {
	e := &sandbox.Error{Op: "root filesystem " + d.src.Name, Kind: kind, Problem: problem, Hint: hint}
	if kind == sandbox.ErrDenied {
		e.Rule = "built-in: root filesystem stays inside"
	}
	return e
}

// open opens a path of the tree without leaving it.
func (d dirRoot) open(p string, resolve uint64) (int, error) {
	for {
		fd, err := unix.Openat2(int(d.src.File.Fd()), strings.TrimPrefix(p, "/"), &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve | unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
		})
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// checkLinks refuses a tree in which a name that matters leads out of it.
// Absolute links count as leading out: what they mean depends on who follows.
func (d dirRoot) checkLinks() error {
	for _, p := range hostileLinks {
		fd, err := d.open(p, 0)
		switch {
		case err == nil:
			unix.Close(fd)
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EACCES):
			// Not there, or dangling inside the tree.
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
			return d.bad(sandbox.ErrDenied, fmt.Sprintf("its %s is a symbolic link that leads out of it", p),
				"replace the link by a directory, a file, or a relative link inside the tree")
		default:
			return d.bad(sandbox.ErrUnavailable, fmt.Sprintf("its %s cannot be looked at: %v", p, err), "check the directory")
		}
	}
	return nil
}

// target checks one target.
func (d dirRoot) target(t Target, all []Target) error {
	if err := checkInside("root filesystem "+d.src.Name, "target", t.Path); err != nil {
		return err
	}
	if err := reserved(t.Path); err != nil {
		return err
	}
	covered := slices.ContainsFunc(all, func(u Target) bool { return u.Dir && u.Path != t.Path && within(t.Path, u.Path) })
	if covered || t.Path == "/dev/shm" {
		return nil
	}
	return d.exists(t)
}

// exists refuses a mountpoint that is not there as it must be.
func (d dirRoot) exists(t Target) error {
	fd, err := d.open(t.Path, unix.RESOLVE_NO_SYMLINKS)
	if err == nil {
		defer unix.Close(fd)
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil {
			kind := st.Mode & unix.S_IFMT
			if t.Dir && kind == unix.S_IFDIR || !t.Dir && kind == unix.S_IFREG {
				return nil
			}
			return d.bad(sandbox.ErrInvalid, fmt.Sprintf("its %s is not the %s that is to be mounted on it", t.Path, what(t)), "choose another target")
		}
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		cmd := "mkdir -p "
		if !t.Dir {
			cmd = "touch "
		}
		return d.bad(sandbox.ErrInvalid, fmt.Sprintf("it has no %s %s to mount on, and it is not changed", what(t), t.Path), cmd+strings.TrimSuffix(d.src.Real, "/")+t.Path)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return d.bad(sandbox.ErrInvalid, fmt.Sprintf("its %s is reached through a symbolic link, on which nothing is mounted", t.Path), "choose another target, or replace the link")
	default:
		return d.bad(sandbox.ErrUnavailable, fmt.Sprintf("its %s cannot be looked at: %v", t.Path, err), "check the directory's permissions")
	}
}

// what is the word for a target's kind.
func what(t Target) string {
	if t.Dir {
		return "directory"
	}
	return "file"
}
