// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The runtime's side of a fork. syscall.forkExec uses the same three; the
// linker lets others have them because gVisor does (runtime/proc.go).
//
//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// stage is how far a child got.
type stage int32

const (
	stageSetup stage = iota + 1
	stageDir
	stageExec
)

// child is everything that a child needs between fork and exec, where it may
// neither allocate nor grow its stack.
//
// os/exec cannot be used: it sets neither rlimits nor no_new_privs, and a
// second exec of the agent to set them costs 15-20 ms inside gVisor.
type child struct {
	paths []*byte // what to try, in order
	argv  []*byte // ends with nil
	envv  []*byte // ends with nil
	dir   *byte

	stdio    [3]int // each ≥ 3
	report   int    // where a failure is written
	terminal bool   // stdio[0] becomes the controlling terminal

	switchUser    bool
	uid, gid      uintptr
	newPrivileges bool
	bounding      []uintptr // capabilities that no program may ever have
	rlimits       []rlimit
	filter        *unix.SockFprog // nil: none

	failure [2]int32 // stage, errno
	noAct   [4]uint64
	noMask  uint64
}

type rlimit struct {
	resource uintptr
	value    syscall.Rlimit
}

const (
	prSetNoNewPrivs   = 38
	prCapbsetRead     = 23
	prCapbsetDrop     = 24
	prSetSeccomp      = 22
	seccompFilter     = 2
	prSetDumpable     = 4
	sysCloseRange     = 436 // the same on every architecture
	closeRangeCloexec = 4
	lastSignal        = 64
	maxFD             = ^uint32(0)
	sigSetmask        = 2
	sizeofSigset      = 8
)

// fork starts the child and returns its process id. The child reports a
// failure to c.report, which closes when it executes the program.
//
// The child is a copy of a process with many threads of which only this one
// goes on: until exec it makes raw system calls and nothing else, like
// syscall.forkAndExecInChild, whose rules these are.
//
//go:noinline
//go:norace
//go:nocheckptr
func (c *child) fork() (pid int, errno syscall.Errno) {
	beforeFork()
	r, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 || r != 0 {
		afterFork()
		return int(r), e
	}
	afterForkInChild()

	at := stageSetup
	// A program starts with every signal at its default and none blocked,
	// whoever started the agent.
	for s := uintptr(1); s <= lastSignal; s++ {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&c.noAct)), 0, sizeofSigset, 0, 0)
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(&c.noMask)), 0, sizeofSigset, 0, 0)
	syscall.RawSyscall(syscall.SYS_UMASK, 0o022, 0, 0)

	var err syscall.Errno
	if _, _, err = syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0); err != 0 {
		goto failed
	}
	for fd := 0; fd < 3; fd++ {
		if _, _, err = syscall.RawSyscall(syscall.SYS_DUP3, uintptr(c.stdio[fd]), uintptr(fd), 0); err != 0 {
			goto failed
		}
	}
	if c.terminal {
		if _, _, err = syscall.RawSyscall(syscall.SYS_IOCTL, 0, syscall.TIOCSCTTY, 0); err != 0 {
			goto failed
		}
	}
	// Everything the agent opens closes on exec as it is. This is for what it
	// was started with; a kernel without the call has only the former.
	syscall.RawSyscall(sysCloseRange, 3, uintptr(maxFD), closeRangeCloexec)

	for i := range c.rlimits {
		l := &c.rlimits[i]
		if _, _, err = syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, l.resource, uintptr(unsafe.Pointer(&l.value)), 0, 0, 0); err != 0 {
			goto failed
		}
	}
	// Best effort: whoever lacks CAP_SETPCAP keeps a set that is of no use
	// without privileges.
	for _, capability := range c.bounding {
		syscall.RawSyscall6(syscall.SYS_PRCTL, prCapbsetDrop, capability, 0, 0, 0, 0)
	}
	if c.switchUser {
		if _, _, err = syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); err != 0 {
			goto failed
		}
		if _, _, err = syscall.RawSyscall(syscall.SYS_SETRESGID, c.gid, c.gid, c.gid); err != 0 {
			goto failed
		}
		if _, _, err = syscall.RawSyscall(syscall.SYS_SETRESUID, c.uid, c.uid, c.uid); err != 0 {
			goto failed
		}
	}
	if !c.newPrivileges {
		if _, _, err = syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); err != 0 {
			goto failed
		}
	}

	if c.filter != nil {
		if _, _, err = syscall.RawSyscall6(syscall.SYS_PRCTL, prSetSeccomp, seccompFilter, uintptr(unsafe.Pointer(c.filter)), 0, 0, 0); err != 0 {
			goto failed
		}
	}

	// As the user, who may not be able to enter it.
	at = stageDir
	if _, _, err = syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(c.dir)), 0, 0); err != 0 {
		goto failed
	}

	at = stageExec
	err = syscall.ENOENT
	for i := range c.paths {
		_, _, e := syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(c.paths[i])),
			uintptr(unsafe.Pointer(&c.argv[0])), uintptr(unsafe.Pointer(&c.envv[0])))
		if e == syscall.ENOENT || e == syscall.ENOTDIR {
			continue
		}
		// Like a shell: go on after a file that may not be run, but remember it.
		err = e
		if e != syscall.EACCES {
			break
		}
	}

failed:
	c.failure = [2]int32{int32(at), int32(err)}
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(c.report), uintptr(unsafe.Pointer(&c.failure)), unsafe.Sizeof(c.failure))
	for {
		syscall.RawSyscall(syscall.SYS_EXIT, 253, 0, 0)
	}
}
