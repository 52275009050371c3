// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The runtime's side of a fork. syscall.forkExec uses the same two; the
// linker lets others have them because gVisor does (runtime/proc.go). They stay by the rule
// of speed: another way costs each command 15-20 ms inside gVisor (see child).
//
//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

// stage is how far a child got.
type stage int32

const (
	stageSetup stage = iota + 1
	stageDir
	stageExec
)

// child is a program that is to be started.
//
// os/exec cannot be used: it sets neither rlimits nor no_new_privs, and a
// second exec of the agent to set them costs 15-20 ms inside gVisor. Nor is it
// forked: a copy of the agent's memory, which is not needed, is 9 of 28 ms of
// processor time that starting /bin/true took there.
type child struct {
	paths []*byte // what to try, in order
	argv  []*byte // ends with nil
	envv  []*byte // ends with nil
	dir   *byte

	stdio    [3]int // each ≥ 3
	further  []int  // fd 3 and on; each ≥ firstFree
	report   int    // where a failure is written
	terminal bool   // stdio[0] becomes the controlling terminal

	switchUser    bool
	uid, gid      uintptr
	newPrivileges bool
	bounding      []uintptr // capabilities that no program may ever have
	rlimits       []rlimit
	filter        *unix.SockFprog // nil: none

	// What the new process works on until it executes the program; it shares the
	// agent's memory, so none of it may go before.
	steps  []step
	stages []stage // of each step
	record record
	over   record // the last that it says when nothing could be executed
	stack  []byte
	args   cloneArgs
	pin    runtime.Pinner // of the child itself, which must be no part of a stack
	noAct  [4]uint64
	noMask uint64
}

type rlimit struct {
	resource uintptr
	value    syscall.Rlimit
}

// step is one system call of the new process. The assembly knows its layout.
type step struct {
	trap uintptr
	args [4]uintptr
	mode uintptr
}

// What a step's failure means.
const (
	must uintptr = iota // the program cannot be started
	may                 // nothing
	try                 // that the next is tried, for some errors; all are told
)

// record is what the new process tells of a failure, by fd.
type record struct {
	fd   uintptr
	step uintptr // its address
	//lint:ignore U1000 the assembly writes it, and the other end of the pipe reads it
	errno uintptr
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
	toldBytes         = 16 // of a record, without fd
	firstFree         = 16 // what a child gets as fd 3 and on lies at or above it before
)

// startSteps makes a process by clone or clone3, which shares this one's memory and
// nothing else, and which carries out the steps on its own; its end is told by SIGCHLD.
// It returns the process id, or a negative error number.
//
//go:noescape
func startSteps(trap, arg0, arg1 uintptr, r *record, s *step) uintptr

func pointer[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// cloneArgs is clone3's struct clone_args, as its first version has it.
type cloneArgs struct {
	flags                        uint64
	_                            [3]uint64 // pidfd, child_tid, parent_tid
	exitSignal, stack, stackSize uint64
	_                            uint64 // tls
}

// oldClone says that this kernel, or what filters its calls, has no clone3: Linux
// before 5.5, and containers.
var oldClone atomic.Bool

// ignored are the signals that the agent ignores, which a program would inherit: by
// the kernel's word, and all where it has none. The agent itself ignores none; who
// started it may have.
var ignored = sync.OnceValue(func() (all []uintptr) {
	mask := ^uint64(0)
	if b, err := os.ReadFile("/proc/self/status"); err == nil {
		if _, rest, ok := strings.Cut(string(b), "\nSigIgn:"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			if m, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64); err == nil {
				mask = m
			}
		}
	}
	for s := uintptr(1); s <= lastSignal; s++ {
		if mask&(1<<(s-1)) != 0 {
			all = append(all, s)
		}
	}
	return all
})

// every are all signals.
var every = func() (all []uintptr) {
	for s := uintptr(1); s <= lastSignal; s++ {
		all = append(all, s)
	}
	return all
}()

// plan writes down what the new process does, in order. It sets these signals to
// their default.
func (c *child) plan(signals []uintptr) {
	c.steps, c.stages = c.steps[:0], c.stages[:0]
	at := stageSetup
	add := func(mode, trap uintptr, args ...uintptr) {
		s := step{trap: trap, mode: mode}
		copy(s.args[:], args)
		c.steps, c.stages = append(c.steps, s), append(c.stages, at)
	}
	// A program starts with every signal at its default and none blocked,
	// whatever the agent inherited. Until here all are blocked, and none of the
	// agent's handlers ever runs in the new process.
	for _, s := range signals {
		add(may, syscall.SYS_RT_SIGACTION, s, pointer(&c.noAct), 0, sizeofSigset)
	}
	add(may, syscall.SYS_RT_SIGPROCMASK, sigSetmask, pointer(&c.noMask), 0, sizeofSigset)
	add(may, syscall.SYS_UMASK, 0o022)
	add(must, syscall.SYS_SETSID)
	for fd := range c.stdio {
		add(must, syscall.SYS_DUP3, uintptr(c.stdio[fd]), uintptr(fd))
	}
	for i, fd := range c.further {
		add(must, syscall.SYS_DUP3, uintptr(fd), uintptr(len(c.stdio)+i))
	}
	if c.terminal {
		add(must, syscall.SYS_IOCTL, 0, syscall.TIOCSCTTY)
	}
	// Everything the agent opens closes on exec as it is. This is for what it
	// was started with; a kernel without the call has only the former.
	add(may, sysCloseRange, uintptr(len(c.stdio)+len(c.further)), uintptr(maxFD), closeRangeCloexec)
	for i := range c.rlimits {
		l := &c.rlimits[i]
		add(must, syscall.SYS_PRLIMIT64, 0, l.resource, pointer(&l.value))
	}
	// Best effort: a process without CAP_SETPCAP keeps a set that is of no use
	// without privileges.
	for _, capability := range c.bounding {
		add(may, syscall.SYS_PRCTL, prCapbsetDrop, capability)
	}
	if c.switchUser {
		add(must, syscall.SYS_SETGROUPS)
		add(must, syscall.SYS_SETRESGID, c.gid, c.gid, c.gid)
		add(must, syscall.SYS_SETRESUID, c.uid, c.uid, c.uid)
	}
	if !c.newPrivileges {
		add(must, syscall.SYS_PRCTL, prSetNoNewPrivs, 1)
	}
	if c.filter != nil {
		add(must, syscall.SYS_PRCTL, prSetSeccomp, seccompFilter, pointer(c.filter))
	}
	// As the user, who may not be able to enter it.
	at = stageDir
	add(must, syscall.SYS_CHDIR, pointer(c.dir))
	at = stageExec
	for _, p := range c.paths {
		add(try, syscall.SYS_EXECVE, pointer(p), pointer(&c.argv[0]), pointer(&c.envv[0]))
	}
	add(may, syscall.SYS_WRITE, uintptr(c.report), pointer(&c.over)+unsafe.Offsetof(c.over.step), toldBytes)
	add(may, syscall.SYS_EXIT, 253)
	c.record.fd = uintptr(c.report)
	const small = 4096
	c.stack = make([]byte, small)
}

// start makes the process. Until it has executed the program or ended, which is
// when its end of c.report is closed everywhere, c must stay; failure lets it go.
//
// It runs beside the agent and in its memory, as code inside runs: what it is
// told is all it looks at. The agent's memory is closed to those who have its user
// id, by then the program's, because the agent cannot be dumped (see hide).
func (c *child) start() (pid int, errno syscall.Errno) {
	c.pin.Pin(c)
	var r uintptr
	if !oldClone.Load() {
		// Signals that are handled are set to their default by the kernel at once, and
		// not by a system call each: 60 of 90 that a program's start takes.
		c.plan(ignored())
		c.args = cloneArgs{
			flags: syscall.CLONE_VM | unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(syscall.SIGCHLD),
			stack: uint64(pointer(&c.stack[0])), stackSize: uint64(len(c.stack) &^ 15),
		}
		beforeFork()
		r = startSteps(unix.SYS_CLONE3, pointer(&c.args), unsafe.Sizeof(c.args), &c.record, &c.steps[0])
		afterFork()
		oldClone.Store(lacksClone3(r))
	}
	if oldClone.Load() {
		c.plan(every)
		top := (pointer(&c.stack[0]) + uintptr(len(c.stack))) &^ 15
		beforeFork()
		r = startSteps(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD)|syscall.CLONE_VM, top, &c.record, &c.steps[0])
		afterFork()
	}
	if int(r) < 0 {
		c.pin.Unpin()
		return 0, syscall.Errno(-int(r))
	}
	return int(r), 0
}

// lacksClone3 says whether a call of clone3 failed since there is none, none that
// knows the flag, or none that may be called.
func lacksClone3(r uintptr) bool {
	e := syscall.Errno(-int(r))
	return e == syscall.ENOSYS || e == syscall.EINVAL || e == syscall.EPERM
}

// failure reads what the new process told: at which stage it gave up, and why. A
// program was executed when at is 0.
func (c *child) failure(told []byte) (at stage, errno syscall.Errno) {
	defer c.pin.Unpin()
	errno = syscall.ENOENT
	for ; len(told) >= toldBytes; told = told[toldBytes:] {
		address, e := uintptr(binary.NativeEndian.Uint64(told)), syscall.Errno(binary.NativeEndian.Uint64(told[8:]))
		if address == 0 {
			return stageExec, errno
		}
		i := (address - pointer(&c.steps[0])) / unsafe.Sizeof(step{})
		if i >= uintptr(len(c.stages)) {
			return stageSetup, syscall.EPROTO
		}
		switch {
		case c.steps[i].mode == must:
			return c.stages[i], e
		// Like a shell: go on after a file that may not be run, but remember it.
		case e != syscall.ENOENT && e != syscall.ENOTDIR:
			if errno = e; e != syscall.EACCES {
				return stageExec, errno
			}
		}
	}
	return 0, 0
}
