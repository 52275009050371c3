// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/internal/linux/engine"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// shimProcess is the owner's end of a shim.
type shimProcess struct {
	process // itself
	conn    *net.UnixConn
	in      *json.Decoder
	ordered bool // it has its order; set before the shim is shared

	sending sync.Mutex

	lateOnce, stopOnce sync.Once
	stuck              error // why end gave up; nil: it has ended
}

// startShim starts the shim of the sandbox in stateDir, as a member of group unless that
// is nil. The shim waits for its order. The caller ends it.
func startShim(stateDir string, group *cgroup.Group) (*shimProcess, error) {
	msg := &protocol.InitMessage{StateDir: stateDir}
	if group != nil {
		outside, err := group.Outside()
		if err != nil {
			return nil, err
		}
		msg.Cgroup = &protocol.Cgroup{Dirs: group.Dirs(), Outside: outside}
	}
	program, err := engine.Open(stateDir)
	if err != nil {
		return nil, unstarted(err)
	}
	defer program.Close()
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("start shim: %w", err)
	}
	defer theirs.Close()
	// Before the shim is there, so that there is no moment in which it does not
	// know what to take away.
	if err := protocol.Send(conn, msg, nil); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start shim: %w", err)
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/fd/" + strconv.Itoa(protocol.LastFile), Args: []string{protocol.Argv0}, Dir: "/",
		Env: shimEnv, ExtraFiles: fill(theirs, program), SysProcAttr: shimAttributes(),
	}
	start := cmd.Start
	if group != nil {
		start = func() error { return group.Start(cmd) }
	}
	if err := start(); err != nil {
		conn.Close()
		return nil, unstarted(err)
	}
	return newShimProcess((*child)(cmd), conn), nil
}

// shimEnv is the whole environment of a shim, which waits most of the time. gVisor does
// not pass it on.
var shimEnv = []string{"GOMAXPROCS=1"}

// shimAttributes keeps a terminal's signals from the shim. As root the shim has mounts of
// its own, where it lays out what gVisor mounts.
func shimAttributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if euid == 0 {
		a.Cloneflags = syscall.CLONE_NEWNS
	}
	return a
}

func unstarted(err error) error {
	e := &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the program around it cannot be started", Cause: err, Hint: sandbox.Hint(err)}
	switch {
	case e.Hint != "":
	case errors.Is(err, syscall.EBADF), errors.Is(err, syscall.EMFILE): // protocol.LastFile is one that it may have
		e.Hint = "let caisson have more open files: ulimit -n 1024"
	default:
		e.Hint = "caisson doctor tells what this host does not allow and how to mend it"
	}
	return e
}

func newShimProcess(p process, conn *net.UnixConn) *shimProcess {
	return &shimProcess{process: p, conn: conn, in: json.NewDecoder(bufio.NewReader(conn))}
}

// socketPair is what owner and shim talk over.
func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs = os.NewFile(uintptr(fds[1]), "shim")
	f := os.NewFile(uintptr(fds[0]), "owner")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// give gives the shim its order: with the first process's standard input,
// output and error output, and what the spec's mounts are made of.
func (b *box) give(stdin, stdout, stderr *os.File) error {
	mounts, done, err := b.handOver()
	if err != nil {
		return err
	}
	defer done()
	files := append([]*os.File{stdin, stdout, stderr}, mounts...)
	if b.exec != nil {
		b.order.ExecFile = len(files)
		files = append(files, b.exec)
	}
	if n := b.spec.Network; n != nil {
		b.order.Network = &protocol.Network{NIC: len(files), Address: n.Address.String(), Gateway: n.Gateway.String(), MTU: n.MTU}
		files = append(files, n.NIC)
	}
	for i, l := range b.layers.all {
		b.order.Changes.Layers[i].File = len(files)
		files = append(files, l.write)
	}
	if b.bequest != nil {
		files = b.bequest.handOver(b.order, files)
	}
	b.began, b.shim.ordered = time.Now(), true
	if err := protocol.Send(b.shim.conn, b.order, files); err != nil {
		return b.shim.lastWord(err)
	}
	for _, l := range b.layers.all {
		l.write.Close() // so that its reader sees the kernel's end
	}
	return nil
}

// fill puts the socket where the shim looks for it, and the program that is to
// be executed at number protocol.LastFile. The numbers in between are closed in the
// shim, whatever this process has there that is not close-on-exec. And the
// table of descriptors is large from the start: growing it later, in a process with several threads, waits for the kernel's RCU
// grace period, which gVisor's gofer and sentry would each pay for when they move their
// stdio to the numbers below 256.
func fill(socket, program *os.File) []*os.File {
	const first = 3 // what exec.Cmd counts ExtraFiles from
	filled := make([]*os.File, protocol.LastFile-first+1)
	filled[protocol.FD-first], filled[protocol.LastFile-first] = socket, program
	return filled
}

// command sends one command; a shim that is gone is noticed by next.
func (s *shimProcess) command(c protocol.Command) error { return s.commandWith(c, nil) }

// commandWith sends one with a file, unless that is nil.
func (s *shimProcess) commandWith(c protocol.Command, f *os.File) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return protocol.SendCommand(s.conn, c, f)
}

// next waits for the next event.
func (s *shimProcess) next() (*protocol.Event, error) {
	var e protocol.Event
	if err := s.in.Decode(&e); err != nil {
		return nil, s.lost(err)
	}
	return &e, nil
}

// lastWord is why something could not be sent to a shim: where that is gone, it may have
// said so before, which was not read yet.
func (s *shimProcess) lastWord(err error) error {
	if !hungUp(err) {
		return s.lost(err)
	}
	ev, err := s.next()
	switch {
	case err != nil:
		return err
	case ev.Kind == protocol.Failed:
		return errors.Join(explain(ev), s.end())
	}
	return s.lost(nil)
}

// lost explains a shim that is gone.
func (s *shimProcess) lost(err error) error {
	if stuck := s.end(); stuck != nil {
		return stuck
	}
	if hungUp(err) {
		err = nil
	}
	return &sandbox.Error{
		Op: "run sandbox", Kind: sandbox.ErrUnavailable, Cause: err,
		Problem: "its keeper process ended early (" + s.how() + ")",
		Hint:    "another process killed it, or the host is out of memory; try again",
	}
}

// endGrace is how long a shim may take to take everything away when it is
// told to, or hung up on; killGrace how long when it is killed after that. Longer takes
// only what no signal reaches: a process that waits for a disk or a file server.
var (
	endGrace  = 10 * time.Second
	killGrace = 5 * time.Second
)

// kill makes the shim end everything. A shim that does not (it was stopped) is
// killed, and the kernel kills the sandbox with it.
func (s *shimProcess) kill() {
	s.lateOnce.Do(func() {
		time.AfterFunc(endGrace, func() {
			s.slay()
			_ = s.conn.SetReadDeadline(time.Now().Add(killGrace)) // for next, where even that does not end it
		})
	})
	_ = s.command(protocol.Command{Kind: protocol.Kill}) // it may block, for as long as that
}

// end hangs up, which makes the shim end everything, and waits for it, as long
// as kill would. A shim that has no order has nothing to end. One that does not end
// is an error.
func (s *shimProcess) end() error {
	s.stopOnce.Do(func() {
		if !s.ordered {
			s.slay()
		}
		s.conn.Close()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			s.wait()
		}()
		select {
		case <-gone:
			return
		case <-time.After(endGrace):
		}
		s.slay()
		select {
		case <-gone:
		case <-time.After(killGrace):
			s.stuck = sandbox.Unended("end sandbox", fmt.Sprintf("%s after it was killed its keeper process %d is left", killGrace, s.pid()))
		}
	})
	return s.stuck
}
