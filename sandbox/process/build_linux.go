// SPDX-License-Identifier: Apache-2.0

package process

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// build writes down how the builder makes the root file system. The host's files, or a stage's,
// are the root until the call to enter, the sandbox's from then on.
func (w *rootfs) build(s *script, staged bool) {
	bound(s)
	if !staged {
		s.doing("keep mounts apart from the host's")
		s.call(unix.SYS_MOUNT, nil, "/", nil, unix.MS_REC|unix.MS_PRIVATE, nil)
	}
	opened := make([]any, len(w.sources))
	for i := range w.sources {
		s.doing("mount %s", w.sources[i].mount.Name)
		opened[i] = s.open(&w.sources[i])
	}
	devices := make([]any, len(w.devices))
	for i := range w.devices {
		s.doing("mount %s", w.devices[i].mount.Name)
		devices[i] = s.open(&w.devices[i])
	}
	if staged {
		s.doing("find the stage's /proc")
		w.stageProc = s.place("/proc")
	}
	s.doing("enter the root")
	s.call(unix.SYS_MOVE_MOUNT, opened[0], "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH)
	s.call(unix.SYS_FCHDIR, opened[0])
	if len(w.missing) > 0 {
		w.buildLayer(s, opened[0])
	}
	if staged {
		s.call(unix.SYS_CHROOT, ".") // it lies on the root of the namespace
	} else {
		// The old root comes to lie on top of the new one, out of every path's way
		// but "..": nothing is looked up by a path with links in it from here on.
		s.call(unix.SYS_PIVOT_ROOT, ".", ".")
	}

	binds := 1 + len(w.spec.Root.Binds)
	for i := 1; i < binds; i++ {
		s.doing("mount %s", w.sources[i].mount.Name)
		s.attach(opened[i], w.sources[i].mount.Target)
	}
	w.buildDev(s, devices)
	for _, sc := range w.scratch {
		s.doing("make the scratch directory %s", sc.Target)
		w.makePlace(s, sc.Target, true)
		attr := readWrite | w.unexecutable(sandbox.Mount{Target: sc.Target, Dir: true})
		m := s.filesystem("tmpfs", attr, scratchOptions(sc, w.spec.User)...)
		if sc.Give != nil {
			s.keep = append(s.keep, sc.Give)
			s.sendFile(int(sc.Give.Fd()), m)
		}
		s.attach(m, sc.Target)
	}
	for i := binds; i < len(w.sources); i++ {
		m := w.sources[i].mount
		s.doing("mount %s", m.Name)
		if _, scratch := w.owner(m.Target, i); scratch {
			w.makePlace(s, m.Target, m.Dir)
		}
		s.attach(opened[i], m.Target)
		if m.Access == sandbox.CopyOnWrite && !w.sources[i].layered {
			w.buildCopy(s, &w.sources[i])
		}
	}
}

// buildLayer lays a layer with the missing mountpoints over the root, which is
// the working directory, and enters it.
func (w *rootfs) buildLayer(s *script, root any) {
	s.doing("make mountpoints in a layer over the root")
	// Relative names: those that begin with a slash are still the host's.
	const stage, upper = "dev", "dev/upper"
	s.attach(s.filesystem("tmpfs", readWrite, "mode", "0755", "size", "1048576", "nr_inodes", "16384"), stage)
	s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, upper, 0o755)
	s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, "dev/work", 0o700)
	for _, m := range w.missing {
		makePath(s, upper, strings.TrimPrefix(m.Target, "/"), m.Dir)
	}
	layer := s.filesystem("overlay", readOnly, "lowerdir", ".", "upperdir", upper, "workdir", "dev/work", "userxattr", "")
	s.call(unix.SYS_UMOUNT2, stage, unix.MNT_DETACH)
	s.call(unix.SYS_MOVE_MOUNT, layer, "", root, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	s.call(unix.SYS_FCHDIR, layer)
	s.close(layer)
}

// makePath makes a directory or an empty file at rel below from, and what leads
// to it.
func makePath(s *script, from, rel string, dir bool) {
	names := strings.Split(rel, "/")
	for i, name := range names {
		from = path.Join(from, name)
		if i < len(names)-1 || dir {
			s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, from, 0o755).or(unix.EEXIST)
			continue
		}
		s.call(unix.SYS_MKNODAT, unix.AT_FDCWD, from, unix.S_IFREG|0o644, 0).or(unix.EEXIST)
	}
}

// makePlace makes a mountpoint where it lies in scratch: what is there has been
// made by this very script.
func (w *rootfs) makePlace(s *script, target string, dir bool) {
	from := ""
	for _, sc := range w.scratch {
		if target != sc.Target && sandbox.Within(target, sc.Target) && len(sc.Target) > len(from) {
			from = sc.Target
		}
	}
	if from == "" {
		if sandbox.Within(target, "/dev") {
			s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, target, 0o755).or(unix.EEXIST)
		}
		return
	}
	makePath(s, from, strings.TrimPrefix(target, from+"/"), dir)
}

const (
	hiddenFile = "/dev/.file" // empty and unreadable; gone when the root is made
	hiddenDir  = "/dev/.dir"
	staging    = "/dev/.copies"
)

// maxTerminals bounds the pseudoterminals of one sandbox: there is one pool for
// all sandboxes of a machine (/proc/sys/kernel/pty/max).
const maxTerminals = "64"

// buildDev makes /dev.
func (w *rootfs) buildDev(s *script, opened []any) {
	s.doing("make /dev")
	s.attach(s.filesystem("tmpfs", readWrite|unix.MOUNT_ATTR_NOEXEC, "mode", "0755", "size", "65536", "nr_inodes", "64"), "/dev")
	for _, dir := range []string{"/dev/pts", "/dev/shm"} {
		s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, dir, 0o755)
	}
	for i, d := range w.devices {
		if dir := path.Dir(d.mount.Target); dir != "/dev" {
			s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, dir, 0o755)
		}
		s.call(unix.SYS_MKNODAT, unix.AT_FDCWD, d.mount.Target, unix.S_IFREG|0o444, 0)
		s.attach(opened[i], d.mount.Target)
	}
	s.attach(s.filesystem("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "mode", "0620", "ptmxmode", "0666", "max", maxTerminals), "/dev/pts")
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		s.call(unix.SYS_SYMLINKAT, target, unix.AT_FDCWD, "/dev/"+name)
	}
	s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, hiddenDir, 0)
	s.call(unix.SYS_MKNODAT, unix.AT_FDCWD, hiddenFile, unix.S_IFREG, 0)
}

// finish hides what is to be hidden and lets go of the host's files. /proc is
// there by now.
func (w *rootfs) finish(s *script, staged bool) {
	for _, p := range procReadOnly() {
		s.doing("make %s read-only", p)
		m := s.clone(p)
		s.restrict(m, nothing)
		s.attach(m, p)
	}
	// What is in /proc is the kernel's, and no name in it a link: one call each.
	// The copies have the attributes of /dev.
	w.buildMemory(s)
	w.buildGroups(s)
	w.buildGroup(s)
	s.doing("make /dev read-only")
	dev := s.place("/dev")
	s.attributes(dev, unix.MountAttr{Attr_set: nothing})
	for _, m := range procHidden("/proc") {
		s.doing("hide %s", m.Target)
		s.call(unix.SYS_MOUNT, hidden(m), m.Target, nil, unix.MS_BIND, nil)
	}
	w.showMemory(s)
	w.showGroups(s)
	for _, m := range w.spec.Masks {
		s.doing("hide %s", m.Target)
		s.attach(s.clone(hidden(m)), m.Target)
	}
	if staged {
		s.doing("hide the stage's /proc")
		m := s.clone(hiddenDir)
		s.call(unix.SYS_MOVE_MOUNT, m, "", w.stageProc, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
		s.close(m)
		s.call(unix.SYS_CLOSE, w.stageProc)
	}
	s.doing("finish /dev")
	s.attributes(dev, unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	s.call(unix.SYS_UNLINKAT, unix.AT_FDCWD, hiddenFile, 0)
	s.call(unix.SYS_UNLINKAT, unix.AT_FDCWD, hiddenDir, unix.AT_REMOVEDIR)
	s.call(unix.SYS_UNLINKAT, unix.AT_FDCWD, memoryFile, 0).or(unix.ENOENT)
	s.call(unix.SYS_UNLINKAT, unix.AT_FDCWD, groupsFile, 0).or(unix.ENOENT)
	s.call(unix.SYS_UNLINKAT, unix.AT_FDCWD, staging, unix.AT_REMOVEDIR).or(unix.ENOENT)
	s.attributes(dev, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	s.close(dev)

	s.doing("leave the host's files")
	if !staged {
		s.call(unix.SYS_UMOUNT2, ".", unix.MNT_DETACH)
	}
	s.call(unix.SYS_CHDIR, "/")
}

// hidden is what lies over a path that is hidden.
func hidden(m sandbox.Mask) string {
	if m.Dir {
		return hiddenDir
	}
	return hiddenFile
}
