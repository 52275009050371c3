// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/wire"
)

// shimProcess is the owner's end of a shim.
type shimProcess struct {
	cmd  *exec.Cmd
	conn net.Conn
	in   *json.Decoder

	mu  sync.Mutex
	out *json.Encoder

	lateOnce, stopOnce sync.Once
}

// startShim starts the shim with the first process's stdio and gives it its
// order.
func (b *box) startShim(stdin, stdout, stderr *os.File) error {
	files, done, err := b.handOver()
	if err != nil {
		return err
	}
	defer done()
	if b.exec != nil {
		b.order.ExecFile = wire.FirstFile + len(files)
		files = append(files, b.exec)
	}
	if n := b.spec.Network; n != nil {
		b.order.Network = &wire.Network{NIC: wire.FirstFile + len(files), Address: n.Address.String(), Gateway: n.Gateway.String(), MTU: n.MTU}
		files = append(files, n.NIC)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("start shim: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "shim")
	defer theirs.Close()
	ours := os.NewFile(uintptr(fds[0]), "owner")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return fmt.Errorf("start shim: %w", err)
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{wire.Argv0}, Dir: "/",
		Env:   []string{"GOMAXPROCS=1"}, // it waits most of the time; gVisor does not pass it on
		Stdin: stdin, Stdout: stdout, Stderr: stderr,
		ExtraFiles:  fill(append([]*os.File{theirs}, files...)),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // a terminal's signals are not for it
	}
	if euid == 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS // where it lays out what gVisor mounts
	}
	b.began = time.Now()
	begin := cmd.Start
	if b.group != nil {
		begin = func() error { return b.group.Start(cmd) }
	}
	if err := begin(); err != nil {
		conn.Close()
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the binary cannot start itself again", Cause: err}
	}
	s := &shimProcess{cmd: cmd, conn: conn, in: json.NewDecoder(bufio.NewReader(conn)), out: json.NewEncoder(conn)}
	b.shim = s
	if err := s.out.Encode(b.order); err != nil {
		return s.lost(err)
	}
	return nil
}

// fill adds a last file at number wire.LastFile. The numbers in between are
// closed in the shim, whatever this process has there that is not
// close-on-exec. And the table of descriptors is large from the start: growing
// it later, in a process with several threads, waits for the kernel's RCU
// grace period, which gVisor's halves would each pay for when they move their
// stdio to the numbers below 256.
func fill(files []*os.File) []*os.File {
	const first = 3 // what exec.Cmd counts ExtraFiles from
	if last := wire.LastFile - first; len(files) <= last {
		filled := make([]*os.File, last+1)
		copy(filled, files)
		filled[last] = files[0]
		return filled
	}
	return files
}

// command sends one command; a shim that is gone is noticed by next.
func (s *shimProcess) command(c wire.Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(c)
}

// next waits for the next event.
func (s *shimProcess) next() (*wire.Event, error) {
	var e wire.Event
	if err := s.in.Decode(&e); err != nil {
		return nil, s.lost(err)
	}
	return &e, nil
}

// lost explains a shim that is gone.
func (s *shimProcess) lost(err error) error {
	s.end()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		err = nil
	}
	return &sandbox.Error{
		Op: "run sandbox", Kind: sandbox.ErrUnavailable, Cause: err,
		Problem: "its keeper process ended early (" + s.cmd.ProcessState.String() + ")",
		Hint:    "somebody killed it, or the host is out of memory; try again",
	}
}

// endGrace is how long a shim may take to take everything away when it is
// told to, or hung up on.
var endGrace = 10 * time.Second

// kill makes the shim end everything. A shim that does not (somebody has
// stopped it) is killed, and the kernel kills the sandbox with it.
func (s *shimProcess) kill() {
	s.command(wire.Command{Kind: wire.Kill})
	// A process that has been waited for is not signalled (os.ErrProcessDone).
	s.lateOnce.Do(func() { time.AfterFunc(endGrace, func() { _ = s.cmd.Process.Kill() }) })
}

// end hangs up, which makes the shim end everything, and waits for it, as long
// as kill would.
func (s *shimProcess) end() {
	s.stopOnce.Do(func() {
		s.conn.Close()
		late := time.AfterFunc(endGrace, func() { _ = s.cmd.Process.Kill() })
		defer late.Stop()
		_ = s.cmd.Wait()
	})
}
