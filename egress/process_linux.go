// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/internal/linux/idmap"
)

// process is a router's. os.Process would look first, once, how the kernel gets along
// with descriptors of processes, by another process: that is half a millisecond of the
// first packet's.
type process struct {
	pid int

	mu     sync.Mutex
	reaped bool
}

// kill ends it, unless it was waited for.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = unix.Kill(p.pid, unix.SIGKILL)
	}
}

// wait waits for its end. Its number becomes another process's only when it is
// not asked for any more.
func (p *process) wait() {
	for unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	for {
		if _, err := unix.Wait4(p.pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}

// start starts the process and gives it its order.
func (r *Router) start(l *launch) error {
	// A terminal's signals are not for it.
	attr := &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		uid, err := idmap.PrivateID()
		if err != nil {
			return cannot("no uid can be drawn", err)
		}
		l.order.UID = int(uid)
		attr.Credential = as(uid, l.program)
		attr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	}
	pid, err := r.fork(attr, l.owner, l.program)
	if err != nil {
		return cannot("its program cannot be started", err)
	}
	l.owner.Close() // so that its end is seen at this one
	r.mu.Lock()
	r.process, r.runs = &process{pid: pid}, true
	r.mu.Unlock()
	r.began()
	go r.follow()
	if err = r.send(l.order); err != nil {
		r.process.kill()
		return cannot("the router takes no order", err)
	}
	return nil
}

// fork starts it. The numbers between the wire's and its program's are closed in it: what
// the caller of this process may have left open for everybody.
func (r *Router) fork(attr *syscall.SysProcAttr, owner, program *os.File) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	const none = ^uintptr(0)
	files := slices.Repeat([]uintptr{none}, wire.Program+1)
	files[0], files[1], files[2] = null.Fd(), null.Fd(), null.Fd()
	files[wire.FD], files[wire.NIC], files[wire.Program] = owner.Fd(), r.far.Fd(), program.Fd()
	dumpable()
	defer keepDumpable()
	defer unhurried()()
	return syscall.ForkExec("/proc/self/fd/"+strconv.Itoa(wire.Program), []string{wire.Argv0}, &syscall.ProcAttr{
		Dir: "/", Files: files, Sys: attr,
		// What comes has one way through, and who sends it waits: with more, each packet
		// wakes threads that have nothing to do. A sandbox keeps no more than one busy, too.
		Env: []string{"GOMAXPROCS=1"},
	})
}

// slack is for how long the kernel may put off a router's timers, in nanoseconds: Go's
// runtime looks after its threads every 20 µs as long as one has work, which was a
// seventh of a router's processor time (sandbox/gvisor/shim has the same).
const slack = 300_000

// unhurried has a process that is started from here, until undo, inherit that.
func unhurried() (undo func()) {
	runtime.LockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0)
	}
	return func() {
		if err == nil {
			_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
		}
		runtime.UnlockOSThread()
	}
}

// as has a router begin as the user that it is to be. It would become that one by
// itself, but in a program that has threads already each step of it waits for all of
// them. A program that others may not execute begins as root.
func as(uid uint32, program *os.File) *syscall.Credential {
	var st unix.Stat_t
	if unix.Fstat(int(program.Fd()), &st) != nil || st.Mode&0o001 == 0 {
		return nil
	}
	return &syscall.Credential{Uid: uid, Gid: uid}
}

// dumpable says whether this process was dumpable before it started the first router
// (prctl(2), PR_SET_DUMPABLE).
var dumpable = sync.OnceValue(func() bool {
	now, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	return err == nil && now == 1
})

// keepDumpable undoes what a child does that changes its user before it executes
// anything: it makes the memory that it shares with us undumpable, which would take our
// own files in /proc from us.
func keepDumpable() {
	if dumpable() {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
}
