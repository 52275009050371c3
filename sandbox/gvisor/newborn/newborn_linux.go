// SPDX-License-Identifier: Apache-2.0

// Package newborn starts the process that will keep a gVisor sandbox while the
// program that will ask for one is still initialising its packages.
//
// That process, the shim, needs longer until its main runs than all that its owner
// has to find out for it, and needs none of that before its order comes. Nothing of
// the caller's can run by it: it waits, and ends when its owner does.
//
// It is born where its owner is, and steps into the sandbox's control group by
// itself, thread by thread, which on cgroup version 1 waits for nothing. Version 2
// has no such way: there [Begin] does nothing, and the shim is started later, in its
// group. Next to nothing is imported, so that this package is initialised before
// most others.
package newborn

import (
	"os"
	"path"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/engine/shelf"
)

// What package wire says about how a shim is started, which this one does not
// import, and the word that tells it that it was started so.
const (
	FD       = 3
	LastFile = 255
	Argv0    = "caisson-shim"
	Word     = "newborn"
	Slack    = 300_000 // nanoseconds
)

// Shim is one that was started early. Its socket and program are the taker's.
type Shim struct {
	Process *os.Process
	Socket  *os.File  // the owner's end
	program *os.File  // of one that waits to be taken
	born    *likeness // of a spare: what its owner was like then
}

// expected is a shim that waits to be taken, or will.
type expected struct {
	shim chan *Shim    // closed with nothing in it: there is none
	over chan struct{} // closed when there is something in it, or will not be
	late *time.Timer   // ends a spare that nobody takes
}

func expect() *expected {
	return &expected{shim: make(chan *Shim, 1), over: make(chan struct{})}
}

var (
	mu    sync.Mutex
	begun *expected // nil: none was begun, or it was taken
)

// Begin starts a shim in the background, out of the engine that is kept below a
// state directory. Where it is not kept yet, or anything else is in the way, there
// will be none. It may be called while packages are initialised, once.
func Begin(state string) { begin(func() (*os.File, error) { return shelf.Kept(state) }) }

// BeginWith is Begin with an engine that is open already, and the caller's to close.
func BeginWith(program *os.File) {
	name := "/proc/self/fd/" + strconv.Itoa(int(program.Fd()))
	begin(func() (*os.File, error) { return os.OpenFile(name, unix.O_PATH, 0) })
}

func begin(open func() (*os.File, error)) {
	if unified() {
		return
	}
	e := expect()
	mu.Lock()
	begun = e
	mu.Unlock()
	go e.make(open, "")
}

// make makes it; of a spare it notes what its owner is like, with sandboxes in dir.
func (e *expected) make(open func() (*os.File, error), dir string) {
	defer close(e.over)
	defer close(e.shim) // none, unless there is one in it
	program, err := open()
	if err != nil {
		return
	}
	var born *likeness
	if dir != "" {
		born, err = look(dir)
	}
	var s *Shim
	if err == nil {
		s, err = Start(program)
	}
	if err != nil {
		program.Close()
		return
	}
	s.program, s.born = program, born
	e.shim <- s
}

// Start starts a shim out of an open program, for whoever knows what for but has not
// made all of it yet.
func Start(program *os.File) (*Shim, error) {
	s := &Shim{}
	if err := s.start(program); err != nil {
		return nil, err
	}
	return s, nil
}

// Take gives the shim to its owner, if there is one, it is that very program, and its
// owner is as it was; else nil. It is for a sandbox in the directory stateDir. At most
// one caller gets it.
func Take(program *os.File, stateDir string) *Shim {
	e := take()
	if e == nil {
		return nil
	}
	s := <-e.shim
	if s == nil {
		return nil
	}
	defer s.program.Close()
	want, err := program.Stat()
	if err == nil {
		var got os.FileInfo
		if got, err = s.program.Stat(); err == nil && os.SameFile(want, got) && s.still(path.Clean(stateDir)) {
			return s
		}
	}
	s.End()
	return nil
}

// Discard ends a shim that nobody has taken. It returns when it is gone.
func Discard() {
	if e := take(); e != nil {
		e.discard()
	}
}

// take makes what was begun the caller's, if there is something.
func take() *expected {
	mu.Lock()
	defer mu.Unlock()
	e := begun
	begun = nil
	if e != nil && e.late != nil {
		e.late.Stop()
	}
	return e
}

// discard ends it, when it has started.
func (e *expected) discard() {
	if s := <-e.shim; s != nil {
		s.program.Close()
		s.End()
	}
}

// End kills a shim that has no order, and waits for it.
func (s *Shim) End() {
	s.Socket.Close()
	_ = s.Process.Kill()
	_, _ = s.Process.Wait()
}

// unified says whether this host has control groups of version 2 alone, or at
// least where they are looked for first.
func unified() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

func (s *Shim) start(program *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(fds[1]), "shim")
	defer theirs.Close()
	s.Socket = os.NewFile(uintptr(fds[0]), "owner")
	files := make([]*os.File, LastFile+1) // what is nil is closed
	files[0], files[1], files[2], files[FD], files[LastFile] = null, null, null, theirs, program
	attr := &os.ProcAttr{Dir: "/", Env: Env, Files: files, Sys: Attributes()}
	err = withSlack(func() error {
		s.Process, err = os.StartProcess("/proc/self/fd/"+strconv.Itoa(LastFile), []string{Argv0, Word}, attr)
		return err
	})
	if err != nil {
		s.Socket.Close()
	}
	return err
}

// withSlack calls f in a thread whose timers may be late by Slack: what it starts has
// that from its first instruction (prctl(2)), where setting it later means stopping each
// of its threads.
func withSlack(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Prctl(unix.PR_SET_TIMERSLACK, Slack, 0, 0, 0) == nil {
		defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // what it was when the thread began
	}
	return f()
}

// Env is all of a shim's environment: it waits most of the time. gVisor does not
// pass it on.
var Env = []string{"GOMAXPROCS=1"}

// Attributes are those of every shim, early or not: a terminal's signals are not
// for it, and as root it has mounts of its own, where it lays out what gVisor
// mounts.
func Attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		a.Cloneflags = syscall.CLONE_NEWNS
	}
	return a
}
