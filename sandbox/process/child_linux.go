// SPDX-License-Identifier: Apache-2.0

package process

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawClone is clone or clone3 for a child that shares our memory and stack and
// runs while we wait (CLONE_VM, CLONE_VFORK). It returns a negative errno.
//
// It is called by spawn alone.
func rawClone(trap, a1, a2, a3 uintptr) uintptr

// The runtime's own brackets around a system call: meanwhile the thread holds up no
// other one. The linker lets others have them because gVisor does (runtime/proc.go).
// They stay because the level rests on them: a child that shares our memory runs while
// we wait, and without them a collection of garbage waits for it, too.
//
//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// child is one of the processes that make or are a sandbox. All of them share
// our memory until they execute a program or end, and write here how far they
// got.
type child struct {
	clone [4]uintptr // the system call that makes it

	steps *step
	count int
	slots *[maxSlots]uintptr

	// What it executes after its steps: the file that is open as fd 3, or the
	// first of paths that is there. The builder executes nothing.
	file  bool
	paths *uintptr
	tries int
	argv  uintptr
	envv  uintptr

	tid   int32   // written by the kernel before it runs, where clone was asked to
	pid   uintptr // once it was made; a negative errno where it was not
	at    int     // the step that it is at
	errno syscall.Errno
	begun bool // all steps are done: what comes now is its program

	noAct [4]uint64 // the default, for every signal
}

// The functions below run in a process whose memory is ours and whose only
// thread the Go runtime does not know. Until it executes something it makes raw
// system calls and nothing else: no allocation, no growth of the stack (nosplit),
// no write barrier, no lock. syscall.forkAndExecInChild has the same rules.

// spawn makes the child and returns when it has executed its program or ended.
// The child uses this very stack in the meantime, from this frame down: so it
// never returns to this frame, and nothing is kept here.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) spawn() {
	r := rawClone(c.clone[0], c.clone[1], c.clone[2], c.clone[3])
	if r == 0 {
		c.become()
	}
	c.pid = r
}

// spawnBuilder is spawn for the child that spawns the others. They are two
// functions because the linker adds up the stack of nosplit functions, and
// could not for one that calls itself.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) spawnBuilder() {
	r := rawClone(c.clone[0], c.clone[1], c.clone[2], c.clone[3])
	if r == 0 {
		c.build()
	}
	c.pid = r
}

// build is the life of the builder.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) build() {
	var started uintptr // the first child, which dies with all others where a later step fails
	for c.at = 0; c.at < c.count; c.at++ {
		s := (*step)(unsafe.Add(unsafe.Pointer(c.steps), uintptr(c.at)*unsafe.Sizeof(step{})))
		if s.call != callSpawn {
			c.errno = c.perform(s)
		} else {
			sub := s.child
			sub.spawn()
			c.errno = sub.outcome()
			if started == 0 && sub.pid < maxPID {
				started = sub.pid
			}
		}
		if c.errno != 0 {
			if started != 0 {
				syscall.RawSyscall(syscall.SYS_KILL, started, uintptr(syscall.SIGKILL), 0)
			}
			end()
		}
	}
	c.begun = true
	end()
}

// maxPID is above every process id and below every negative errno.
const maxPID = 1 << 31

// outcome is why the child's program does not run: the error of its making or
// of one of its steps, or EINTR where it was killed on the way. That its
// program could not be executed is the program's end, not the sandbox's.
//
//go:nosplit
//go:norace
func (c *child) outcome() syscall.Errno {
	switch {
	case c.pid >= maxPID:
		return syscall.Errno(-c.pid)
	case c.begun:
		return 0
	case c.errno != 0:
		return c.errno
	}
	return syscall.EINTR
}

// become is the life of init and of the program, up to execve.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) become() {
	for c.at = 0; c.at < c.count; c.at++ {
		s := (*step)(unsafe.Add(unsafe.Pointer(c.steps), uintptr(c.at)*unsafe.Sizeof(step{})))
		if c.errno = c.perform(s); c.errno != 0 {
			end()
		}
	}
	c.begun = true
	if c.file {
		_, _, c.errno = syscall.RawSyscall6(unix.SYS_EXECVEAT, programFD, uintptr(unsafe.Pointer(&noName)), c.argv, c.envv, unix.AT_EMPTY_PATH, 0)
		end()
	}
	why := syscall.ENOENT
	for i := 0; i < c.tries; i++ {
		path := *(*uintptr)(unsafe.Add(unsafe.Pointer(c.paths), uintptr(i)*unsafe.Sizeof(uintptr(0))))
		_, _, e := syscall.RawSyscall(syscall.SYS_EXECVE, path, c.argv, c.envv)
		if e == syscall.ENOENT || e == syscall.ENOTDIR {
			continue
		}
		// Like a shell: go on after a file that may not be run, but remember it.
		why = e
		if e != syscall.EACCES {
			break
		}
	}
	c.errno = why
	end()
}

const programFD = 3 // where init and the agent find themselves

var noName [1]byte

// perform makes one step.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (c *child) perform(s *step) syscall.Errno {
	switch s.call {
	case callSame:
		if *s.value != uint64(s.arg[0]) {
			return syscall.ESTALE
		}
		return 0
	case callPut:
		*s.number = int32(c.slots[s.arg[0]%maxSlots])
		return 0
	case callWait:
		for {
			n, _, e := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(s.ends)), 2, 0, 0, 0, 0)
			switch {
			case e != 0 && e != syscall.EINTR:
				return e
			case e == 0 && n > 0 && s.ends[1].Revents != 0:
				return syscall.ESRCH
			case e == 0 && n > 0:
				return 0
			}
		}
	case callDefaults:
		// What was ignored stays ignored over execve, and what was blocked blocked.
		for sig := uintptr(1); sig <= lastSignal; sig++ {
			syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&c.noAct)), 0, sizeofSigset, 0, 0)
		}
		return 0
	}
	var a [6]uintptr
	for i := range a {
		a[i] = s.arg[i]
		if s.slots&(1<<i) != 0 {
			a[i] = c.slots[a[i]%maxSlots]
		}
	}
	r, _, e := syscall.RawSyscall6(s.call, a[0], a[1], a[2], a[3], a[4], a[5])
	if e != 0 && (e == s.pass || s.pass == passAll) {
		e = 0
	}
	c.slots[s.into%maxSlots] = r
	if s.call == syscall.SYS_GETPPID && s.arg[0] != r && e == 0 {
		return syscall.ESRCH
	}
	return e
}

// end ends the calling child.
//
//go:nosplit
//go:norace
func end() {
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, exitUnborn, 0, 0)
	}
}

const (
	exitUnborn   = 120 // never read: how far a child got is in memory
	lastSignal   = 64
	sizeofSigset = 8
)
