// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A stage is a mount namespace that shows next to nothing: an empty, read-only
// directory, and a /proc of a pid namespace whose last process has ended. Root's
// sandboxes get copies of it, and put their own root on top, in place of a copy of all
// that the host has mounted. So there is nothing of the host's to take away again: to
// change the root of a namespace (pivot_root) the kernel looks at every thread of the
// machine, and to take the host's mounts away it waits for every processor.
//
// Why a /proc: who is not the host's root may mount one only where another can be seen
// whole (mount_too_revealing in fs/namespace.c), and what is counted by user is bounded
// in it. It lies out of every path's way, below a root that no program inside can take
// off. Once the sandbox has its own it is hidden all the same: seen whole, it would let
// a program with a user namespace below the sandbox's mount a /proc of which nothing is
// hidden.
type stage struct{ ns *os.File }

// stages has the one of this process, which takes about as long to make as a sandbox
// saves: a process that makes one sandbox alone has none.
var stages struct {
	asked atomic.Int32
	made  atomic.Pointer[stage]
}

// onStage is the stage for a sandbox that root makes; nil where there is none (yet).
func onStage() *stage {
	if stages.asked.Add(1) == 2 {
		go func() { stages.made.Store(newStage()) }()
	}
	return stages.made.Load()
}

// newStage makes a stage; nil where this host does not let us, which costs time alone.
func newStage() *stage {
	s := &script{}
	ns := s.slot()
	s.call(unix.SYS_OPENAT, unix.AT_FDCWD, "/proc/self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0).save(ns)
	s.call(unix.SYS_MOUNT, nil, "/", nil, unix.MS_REC|unix.MS_PRIVATE, nil)
	empty := s.filesystem("tmpfs", readWrite|unix.MOUNT_ATTR_NOEXEC, "mode", "0555", "size", "4096", "nr_inodes", "2")
	s.call(unix.SYS_MOVE_MOUNT, empty, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH)
	s.call(unix.SYS_FCHDIR, empty)
	s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, "proc", 0o555)
	// Of the namespace that ends with the child.
	proc := s.filesystem("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	s.call(unix.SYS_MOVE_MOUNT, proc, "", unix.AT_FDCWD, "proc", unix.MOVE_MOUNT_F_EMPTY_PATH)
	s.close(proc)
	s.attributes(empty, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	s.call(unix.SYS_PIVOT_ROOT, ".", ".")
	s.call(unix.SYS_UMOUNT2, ".", unix.MNT_DETACH)
	s.close(empty)

	l := &launch{}
	l.scripts[0], l.builder.slots = s, &l.slots
	l.builder.steps, l.builder.count = &s.steps[0], len(s.steps)
	// Its descriptors are ours.
	const flags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_FILES | sharing | unix.CLONE_PARENT_SETTID
	l.builder.clone = [4]uintptr{unix.SYS_CLONE, flags | uintptr(unix.SIGCHLD), 0, uintptr(unsafe.Pointer(&l.builder.tid))}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.fork()
	runtime.KeepAlive(l)
	l.reapBuilder()
	if l.builder.outcome() != 0 {
		l.closeOpened()
		return nil
	}
	return &stage{ns: os.NewFile(l.slots[ns], "mount namespace")}
}

// closeOpened closes what a builder that failed has left open, where its descriptors
// are ours.
func (l *launch) closeOpened() {
	open := map[uintptr]bool{}
	for _, st := range l.scripts[0].steps[:l.builder.at] {
		switch {
		case st.into != 0:
			open[l.slots[st.into]] = true
		case st.call == unix.SYS_CLOSE:
			delete(open, l.slots[st.arg[0]])
		}
	}
	for fd := range open {
		_ = unix.Close(int(fd))
	}
}

// enter has the builder leave the host's mount namespace before it makes its own.
func (st *stage) enter(b *script, l *launch) {
	b.doing("leave what the host has mounted")
	b.keep = append(b.keep, st.ns)
	b.call(unix.SYS_SETNS, int(st.ns.Fd()), unix.CLONE_NEWNS)
	b.doing("make namespaces")
	l.unshare = len(b.steps)
	b.call(unix.SYS_UNSHARE, namespaces)
}
