// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// siblings makes children of this process's parent, which is not told of them.
func (p *prober) siblings() {
	for _, flags := range []uintptr{unix.CLONE_PARENT, unix.CLONE_PARENT | 1<<32} {
		_, errno := sibling(flags | uintptr(unix.SIGCHLD))
		var err error
		if errno != 0 {
			err = errno
		}
		p.try("clone(CLONE_PARENT)", err)
	}
}

// sibling makes a process that does nothing until it is killed. It has one thread of a
// copy of this process, so it makes raw system calls and nothing else.
//
//go:noinline
//go:nosplit
//go:norace
func sibling(flags uintptr) (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 0, uintptr(^uint32(0)), 0)
	for {
		syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}
