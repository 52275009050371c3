// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/seccomp"
	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox"
)

// launch is one sandbox about to be made: the three scripts and the children
// that act them out.
type launch struct {
	builder, init, program child
	scripts                [3]*script
	slots                  [maxSlots]uintptr
	args                   cloneArgs // of the builder, on cgroup version 2
	enter                  int       // the program's step into its working directory
	dir                    string    // which that is
	ordinary               int       // the builder\'s steps that give up what its maker\'s thread hands down
	score                  slot      // a descriptor among them
	unshare                int       // the builder's step that makes its namespaces, where it is born in ours; else 0

	mapper *mapper // for root
}

// namespaces that the builder is born in. Those of pids and control groups it
// makes later, for the other two.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET

// sharing is how every child is made. The exit signal is the builder's own and
// its siblings'.
const sharing = unix.CLONE_VM | unix.CLONE_VFORK

// ready gives the children their scripts. The builder is born in the control
// group, if there is one of version 2: as another user it could not enter it.
func (l *launch) ready(group *os.File) {
	for i, c := range []*child{&l.builder, &l.init, &l.program} {
		s := l.scripts[i]
		if len(s.steps) > 0 {
			c.steps, c.count = &s.steps[0], len(s.steps)
		}
		c.slots = &l.slots
	}
	flags := uintptr(namespaces | sharing | unix.CLONE_PARENT_SETTID)
	if l.unshare != 0 {
		flags &^= namespaces
	}
	l.builder.clone = [4]uintptr{unix.SYS_CLONE, flags | uintptr(unix.SIGCHLD), 0, uintptr(unsafe.Pointer(&l.builder.tid))}
	if group != nil {
		l.args = cloneArgs{
			flags: uint64(flags | unix.CLONE_INTO_CGROUP), exitSignal: uint64(unix.SIGCHLD),
			parentTID: uint64(uintptr(unsafe.Pointer(&l.builder.tid))), cgroup: uint64(group.Fd()),
		}
		l.builder.clone = [4]uintptr{unix.SYS_CLONE3, uintptr(unsafe.Pointer(&l.args)), unsafe.Sizeof(l.args)}
	}
	if rewrite != nil {
		rewrite(l)
	}
}

// rewrite is nil but in tests, which take a protection out to see that it is
// missed.
var rewrite func(*launch)

// cloneArgs is struct clone_args (clone3(2)).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// start makes the sandbox and returns when the program is executed. The calling
// goroutine must be locked to its thread, and the thread must live as long as
// the sandbox: its end kills the sandbox, as its process's does.
//
// When it returns 0 init and program are children that must be waited for;
// otherwise clear does that, and explain says what is wrong. The builder must be
// buried in either case.
func (l *launch) start() syscall.Errno {
	dumpable()
	if l.mapper != nil {
		go l.mapper.serve(&l.builder.tid)
	}
	l.fork()
	if l.mapper != nil {
		l.mapper.stop()
	}
	keepDumpable()
	runtime.KeepAlive(l)
	return l.builder.outcome()
}

// reapBuilder waits until the builder, which has done its work, is gone.
func (l *launch) reapBuilder() {
	if l.builder.pid < maxPID {
		reap(int(l.builder.pid), nil)
	}
}

// clear takes away what a start that failed has made.
func (l *launch) clear() {
	for _, c := range []*child{&l.program, &l.init} {
		if c.pid > 0 && c.pid < maxPID {
			_ = unix.Kill(int(c.pid), unix.SIGKILL)
			reap(int(c.pid), nil)
		}
	}
}

// dumpable says whether this process was dumpable before it made the first
// sandbox (prctl(2), PR_SET_DUMPABLE).
var dumpable = sync.OnceValue(func() bool {
	now, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	return err == nil && now == 1
})

// keepDumpable undoes what a child does that changes its user: it makes the
// memory that it shares with us undumpable, which would take our own files in
// /proc from us.
func keepDumpable() {
	if now, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err == nil && now != 1 && dumpable() {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
}

// fork runs the builder from its making to its end. That may be long: another
// thread takes over this one's share of Go's work at once.
//
//go:nosplit
//go:norace
func (l *launch) fork() {
	// No handler of ours may run in a child: the signal waits for its program,
	// or for us.
	all, before := ^uint64(0), uint64(0)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&before)), sizeofSigset, 0, 0)
	entersyscallblock()
	l.builder.spawnBuilder()
	exitsyscall()
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(&before)), 0, sizeofSigset, 0, 0)
}

const sigSetmask = 2

// reap waits for a child of ours.
func reap(pid int, usage *unix.Rusage) (ws unix.WaitStatus) {
	for {
		if _, err := unix.Wait4(pid, &ws, 0, usage); !errors.Is(err, unix.EINTR) {
			return ws
		}
	}
}

// explain says what could not be done, by the script of the child that failed.
func (l *launch) explain(e syscall.Errno) error {
	at := func(i int, c *child) string {
		s := l.scripts[i]
		if c.at >= len(s.what) {
			return "end"
		}
		if call := seccomp.Name(s.steps[c.at].call); call != "" {
			return s.what[c.at] + " (" + call + ")"
		}
		return s.what[c.at]
	}
	what := at(0, &l.builder)
	for i, c := range []*child{&l.init, &l.program} {
		if c.pid > 0 && c.pid < maxPID && !c.begun {
			what = at(i+1, c)
		}
	}
	if c := &l.program; c.pid > 0 && c.pid < maxPID && !c.begun && c.at == l.enter && e != syscall.EINTR {
		return sandbox.NoDirectory(l.dir, e.Error())
	}
	err := &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the kernel does not let caisson " + what, Cause: e,
		Hint: "caisson doctor tells what this host does not allow and how to mend it"}
	if l.builder.pid >= maxPID {
		err.Problem = "no namespaces can be made"
		if e == syscall.ENOSPC || e == syscall.EUSERS {
			err.Problem = "this host lets no more namespaces be made"
		}
	}
	switch {
	case e == syscall.EINTR:
		err.Problem = "it was killed while it was made"
		err.Hint = "the memory limit may be too small, or another process killed it; try again"
	case errors.Is(e, syscall.ENOMEM):
		err.Hint = "raise --memory, or stop something else"
	case errors.Is(e, syscall.EAGAIN):
		err.Hint = "too many processes or namespaces; stop something else"
	case errors.Is(e, syscall.ESTALE):
		err.Kind, err.Hint = sandbox.ErrConflict, "another process changes what is mounted; try again"
	}
	return err
}

// mapper writes the id maps of a sandbox that root makes: only who has rights
// over the ids outside may, and the builder has given those up. It waits on a
// thread of its own, because the one that makes the builder waits for it.
type mapper struct {
	ask, answer *os.File // eventfds
	uids, gids  string
	unprotect   bool // the kernel would kill it later than others
	done        chan struct{}
	err         error
}

func newMapper(id identity) (*mapper, error) {
	m := &mapper{uids: id.uidMap, gids: id.gidMap, done: make(chan struct{})}
	for _, f := range []**os.File{&m.ask, &m.answer} {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			m.close()
			return nil, fmt.Errorf("start sandbox: %w", err)
		}
		*f = os.NewFile(uintptr(fd), "eventfd")
	}
	return m, nil
}

func (m *mapper) close() {
	for _, f := range []*os.File{m.ask, m.answer} {
		if f != nil {
			f.Close()
		}
	}
}

// What is said over the eventfds. The kernel adds up what is not read yet.
const (
	mapMe = 1
	over  = 1 << 32

	mapped  = 1
	refused = 2
)

// serve waits until the builder asks and writes its maps.
func (m *mapper) serve(tid *int32) {
	defer close(m.done)
	n, err := readCounter(m.ask)
	if err != nil || n != mapMe {
		return
	}
	proc := fmt.Sprintf("/proc/%d/", *tid)
	m.err = errors.Join(writeFile(proc+"uid_map", m.uids), writeFile(proc+"gid_map", m.gids))
	if m.unprotect {
		m.err = errors.Join(m.err, writeFile(proc+"oom_score_adj", threads.Unprotected))
	}
	reply := uint64(mapped)
	if m.err != nil {
		reply = refused
	}
	writeCounter(m.answer, reply)
}

// stop ends serve where no child asked.
func (m *mapper) stop() {
	writeCounter(m.ask, over)
	<-m.done
}

func readCounter(f *os.File) (uint64, error) {
	var n uint64
	for {
		_, err := unix.Read(int(f.Fd()), unsafe.Slice((*byte)(unsafe.Pointer(&n)), 8))
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func writeCounter(f *os.File, n uint64) {
	_, _ = unix.Write(int(f.Fd()), unsafe.Slice((*byte)(unsafe.Pointer(&n)), 8))
}

// writeFile writes a file of /proc in one go.
func writeFile(name, text string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return &os.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}
