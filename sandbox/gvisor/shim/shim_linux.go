// SPDX-License-Identifier: Apache-2.0

// Package shim is the keeper of one gVisor sandbox: a small process between
// caisson and gVisor's gofer and sentry.
//
// It exists because gVisor's packages change the process that uses them: on
// cgroup v1 the creator moves itself into the sandbox's groups, the first
// process's stdio is the creator's own, every descriptor becomes
// close-on-exec, and sandboxes are tied to the thread that forked them. All
// of that is harmless in a process that makes one sandbox and ends with it.
//
// When the socket to its owner closes (the owner ended, by SIGKILL too) the shim
// kills the sandbox, removes its control group and directory, and exits. Where the
// owner of a persistent sandbox has said so, it waits for the next owner before
// that, for as long as it was told (survive_linux.go). When the shim itself is killed, the kernel kills the
// sandbox (PDEATHSIG) and the next start of caisson sweeps the rest.
package shim

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// name is what ps shows.
var name = []byte(protocol.Argv0 + "\x00")

// Main runs the shim and does not return. It is called first thing in main.
func Main() {
	// The sandbox dies with the thread that forked it (PDEATHSIG), so this
	// goroutine keeps its thread for as long as the process lives.
	runtime.LockOSThread()
	debug.SetGCPercent(-1) // lives for one sandbox, allocates little
	debug.SetMemoryLimit(32 << 20)
	// gVisor's packages log to stderr, which is the program's.
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	log.SetLevel(log.Warning)
	// A terminal's signals are for the owner; it tells us what to do.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)

	// A kernel that crashes must not leave its sandbox's memory on the disk.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})

	// What is made here says itself who may read it; as root, gVisor's gofer and sentry have
	// another uid and execute some of it. All of it lies where no other user can look.
	unix.Umask(0o022)

	// It was executed by the number of a descriptor, which would be its name.
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)

	conn, err := ownerConn()
	if err == nil {
		err = letGoOfProgram()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "caisson-shim is started by caisson, not by hand:", err)
		os.Exit(125)
	}
	k := newKeeper(conn)
	e, err := k.run()
	if err == nil {
		os.Exit(0)
	}
	ev := protocol.Event{Kind: protocol.Failed}
	ev.Fail(err)
	if !k.last(ev) && e != nil {
		e.run()
	}
	os.Exit(1)
}

// ownerConn takes over the socket to the owner.
func ownerConn() (*net.UnixConn, error) {
	syscall.CloseOnExec(protocol.FD)
	f := os.NewFile(protocol.FD, "owner")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	if unix, ok := conn.(*net.UnixConn); ok {
		return unix, nil
	}
	return nil, errors.New("its descriptor 3 is not a Unix socket")
}

// letGoOfProgram puts /dev/null where this process's program is open. Something
// must stay there: gVisor's gofer and sentry, which are forked from here, would have to
// make their tables of descriptors large again.
func letGoOfProgram() error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	return unix.Dup3(null, protocol.LastFile, unix.O_CLOEXEC)
}

// letTimersBeLate is for all threads: gVisor forks its gofer and sentry from which it likes.
func letTimersBeLate() {
	_, _, _ = threads.Call(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, protocol.Slack, 0)
}

// run does everything from the init message to the end of the sandbox. With an error comes
// the cleanup that is left, if the owner does not do it; nil is none.
func (k *keeper) run() (*cleanup, error) {
	if err := threads.ResetAttributes(); err != nil {
		return nil, err
	}
	letTimersBeLate()
	var msg protocol.InitMessage
	if _, err := protocol.Receive(k.owner, &msg); err != nil {
		return nil, fmt.Errorf("reading the init message: %w", err)
	}
	e, err := openCleanup(&msg)
	if err != nil {
		return e, err
	}
	r := getReady()
	if r.err == nil && os.Geteuid() == 0 {
		r.err = showState(msg.StateDir, r.hidden)
	}
	var order protocol.Order
	files, err := protocol.Receive(k.owner, &order)
	if err != nil {
		return e, fmt.Errorf("reading the order: %w", err) // an owner that has thought better of it kills this process
	}
	if r.err != nil {
		return e, r.err
	}
	if k.handover, err = newHandover(&order, files, &msg); err != nil {
		return e, err
	}
	if k.w, err = newInstance(&order, files, e.group, r, k.tell); err != nil {
		return e, err
	}
	k.cleanup = e
	// From here on the owner may hang up or ask at any time.
	go k.serve(k.owner)
	if k.handover != nil {
		go k.await()
	}
	ev, err := k.w.runToEnd()
	k.w.cleanUp()
	if err != nil {
		ev = &protocol.Event{Kind: protocol.Failed}
		ev.Fail(err)
	}
	// A kernel that ends with a snapshot has said before that it is written. That must
	// not be heard after the end; and no caller waits for one that is dead.
	k.saving.Lock()
	defer k.saving.Unlock()
	if !k.last(*ev) {
		e.run()
	}
	return nil, nil
}
