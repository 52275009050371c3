// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/mounts"
	"github.com/caisson-run/caisson/sandbox"
)

// maxSources bounds how many objects one sandbox shows, and how many paths it
// hides: each is a mount, and a descriptor meanwhile.
const maxSources = 512

// Attributes of mounts.
const (
	readWrite = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	readOnly  = readWrite | unix.MOUNT_ATTR_RDONLY
	nothing   = readOnly | unix.MOUNT_ATTR_NOEXEC
)

// rootfs is what a sandbox's files look like, in the order in which it is put
// together.
type rootfs struct {
	spec    *sandbox.Spec
	sources []source          // the root, its binds, and what the operator named
	devices []source          // of the host's /dev
	scratch []sandbox.Scratch // with their shares, parents first
	cow     int64             // bytes for each copy-on-write mount
	missing []sandbox.Mask    // mountpoints that the root lacks
	layers  *layers           // of what is mounted copy-on-write; nil without

	stageProc slot // the stage's /proc, once it is found
}

func newRootfs(spec *sandbox.Spec) (*rootfs, error) {
	if n := len(spec.Mounts) + len(spec.Root.Binds) + len(spec.Masks); n > maxSources {
		return nil, &sandbox.Error{
			Op: "prepare sandbox", Kind: sandbox.ErrUnsupported,
			Problem: fmt.Sprintf("%d paths are to be mounted or hidden, this level takes %d", n, maxSources),
			Hint:    "mount or deny whole directories instead of what is in them",
		}
	}
	if spec.Root.Dir == nil {
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "prepare sandbox", "this level takes no root but a directory: its processes may mount no file system of a device or an image")
	}
	w := &rootfs{spec: spec}
	w.scratch, w.cow = spec.Shares()
	slices.SortStableFunc(w.scratch, func(a, b sandbox.Scratch) int { return len(a.Target) - len(b.Target) })
	if err := w.check(); err != nil {
		return nil, err
	}
	add := func(m sandbox.Mount, attr uint64) error {
		src, err := newSource(m, attr)
		if err == nil {
			err = w.checkCopy(&src)
		}
		w.sources = append(w.sources, src)
		return err
	}
	if err := add(sandbox.Mount{Source: spec.Root.Dir, Name: "the root", Target: "/", Dir: true}, readOnly); err != nil {
		return nil, err
	}
	for _, b := range spec.Root.Binds {
		if b.Access != sandbox.ReadOnly {
			return nil, sandbox.Errorf(sandbox.ErrInvalid, "mount "+b.Name, "a part of the root must be read-only")
		}
		if err := add(b, readOnly); err != nil {
			return nil, err
		}
	}
	for _, m := range spec.Mounts {
		attr := uint64(readOnly)
		if m.Access == sandbox.ReadWrite {
			attr = readWrite
		}
		attr |= w.unexecutable(m)
		if err := add(m, attr); err != nil {
			return nil, err
		}
	}
	return w, w.mountpoints()
}

// check refuses paths that mean something else than they say.
func (w *rootfs) check() error {
	bad := func(op, target string) error {
		if !path.IsAbs(target) || path.Clean(target) != target || strings.ContainsRune(target, 0) {
			return sandbox.Errorf(sandbox.ErrInvalid, op, "%q is not an absolute, clean path", target)
		}
		for _, ours := range []string{"/proc", "/dev", "/sys"} {
			if sandbox.Within(target, ours) && target != "/dev/shm" {
				return sandbox.Errorf(sandbox.ErrInvalid, op, "%s belongs to the sandbox's kernel view; choose another target", target)
			}
		}
		if target == "/" {
			return sandbox.Errorf(sandbox.ErrInvalid, op, "the root itself is no target")
		}
		return nil
	}
	for _, m := range append(slices.Clone(w.spec.Root.Binds), w.spec.Mounts...) {
		if err := bad("mount "+m.Name, m.Target); err != nil {
			return err
		}
	}
	for _, sc := range w.spec.Scratch {
		if err := bad("scratch", sc.Target); err != nil {
			return err
		}
	}
	for _, m := range w.spec.Masks {
		if err := bad("hide", m.Target); err != nil {
			return err
		}
	}
	return nil
}

// owner is what a target lies in: the last source mounted there before the one
// at index n, or a scratch directory, which comes before all that the operator
// named.
func (w *rootfs) owner(target string, n int) (src *source, scratch bool) {
	src = &w.sources[0]
	depth := 0
	at := func(dir string) bool { return sandbox.Within(target, dir) && len(dir) >= depth }
	binds := 1 + len(w.spec.Root.Binds)
	for i := 1; i < min(n, binds); i++ {
		if t := w.sources[i].mount.Target; at(t) {
			src, depth = &w.sources[i], len(t)
		}
	}
	for _, sc := range w.scratch {
		if n >= binds && at(sc.Target) {
			src, scratch, depth = nil, true, len(sc.Target)
		}
	}
	for i := binds; i < n; i++ {
		if t := w.sources[i].mount.Target; at(t) {
			src, scratch, depth = &w.sources[i], false, len(t)
		}
	}
	return src, scratch
}

// mountpoints sees to it that every target exists, or can be made: because it
// lies in scratch, or in a layer over the root.
func (w *rootfs) mountpoints() error {
	for i := 1; i < len(w.sources); i++ {
		m := w.sources[i].mount
		if src, scratch := w.owner(m.Target, i); !scratch {
			if err := w.mountpoint(src, m.Name, sandbox.Mask{Target: m.Target, Dir: m.Dir}); err != nil {
				return err
			}
		}
	}
	for i, sc := range w.scratch {
		within := sandbox.Within(sc.Target, "/dev")
		for _, parent := range w.scratch[:i] {
			within = within || sandbox.Within(sc.Target, parent.Target)
		}
		if within {
			continue
		}
		src, _ := w.owner(sc.Target, 1+len(w.spec.Root.Binds))
		if src == nil {
			src = w.under(sc.Target)
		}
		if err := w.mountpoint(src, "scratch", sandbox.Mask{Target: sc.Target, Dir: true}); err != nil {
			return err
		}
	}
	return nil
}

// under is the part of the root that a path lies in.
func (w *rootfs) under(target string) *source {
	src := &w.sources[0]
	for i := 1; i <= len(w.spec.Root.Binds); i++ {
		if t := w.sources[i].mount.Target; sandbox.Within(target, t) && len(t) >= len(src.mount.Target) {
			src = &w.sources[i]
		}
	}
	return src
}

// mountpoint looks for one target, and notes it where the root's own tree lacks
// it: that tree is shared and read-only.
func (w *rootfs) mountpoint(src *source, name string, at sandbox.Mask) error {
	err := mounts.FindPoint(src.mount.Source, src.mount.Target, at.Target, at.Dir)
	switch {
	case err == nil:
		return nil
	case src == &w.sources[0] && errors.Is(err, fs.ErrNotExist):
		w.missing = append(w.missing, at)
		return nil
	}
	return &sandbox.Error{
		Op: "mount " + name, Kind: sandbox.ErrInvalid, Cause: err,
		Problem: fmt.Sprintf("it cannot be placed at %s inside %s", at.Target, src.mount.Name),
		Hint:    "make the mountpoint there first, or choose another target",
	}
}

// openDevices opens the host's harmless devices.
func (w *rootfs) openDevices() error {
	for _, d := range devices {
		f, err := openRaw("/dev/"+d.name, noLinks)
		if err != nil {
			return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the host has no /dev/" + d.name, Cause: err}
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(d.major, d.minor) {
			f.Close()
			return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the host's /dev/" + d.name + " is something else", Cause: err}
		}
		w.devices = append(w.devices, source{
			mount: sandbox.Mount{Source: f, Name: "/dev/" + d.name, Target: "/dev/" + d.name},
			name:  "/dev/" + d.name, dev: st.Dev, ino: st.Ino,
			attr: deviceAttributes,
		})
	}
	return nil
}

// deviceAttributes have no MOUNT_ATTR_NODEV. Read-only keeps a device's mode and owner.
const deviceAttributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC

// devices are the ones every program expects. Their numbers are the kernel's
// for ever (Documentation/admin-guide/devices.txt).
var devices = []struct {
	name         string
	major, minor uint32
}{
	{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
}
