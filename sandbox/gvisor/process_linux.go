// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// process is a shim as a process: a child of this one, or one that was adopted.
type process interface {
	slay()       // kills it; one that is gone stays gone
	wait()       // until it is gone
	how() string // how it ended, once it has been waited for
	pid() int
	forget() // it stays without this process
}

// child is a shim that this process started.
type child exec.Cmd

func (c *child) slay() { _ = c.Process.Kill() } // one that was waited for is not signalled
func (c *child) wait() { _ = (*exec.Cmd)(c).Wait() }

func (c *child) pid() int { return c.Process.Pid }

func (c *child) forget() { go c.wait() } // whose child it stays, and who waits for it when it ends

func (c *child) how() string { return c.ProcessState.String() }

// stranger is a shim that another process started, by its pidfd, which means no
// other process when the number does.
type stranger struct {
	fd     *os.File
	number int
}

func newStranger(pid int) (*stranger, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("the process around the sandbox: %w", err)
	}
	return &stranger{os.NewFile(uintptr(fd), "shim"), pid}, nil
}

func (s *stranger) slay() {
	s.use(func(fd int) { _ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) })
}

func (s *stranger) wait() {
	s.use(func(fd int) {
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	s.fd.Close()
}

// use calls f unless the process has been waited for.
func (s *stranger) use(f func(fd int)) {
	if raw, err := s.fd.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

func (s *stranger) pid() int { return s.number }
func (s *stranger) forget()  { s.fd.Close() }

func (*stranger) how() string { return "it was adopted, so that its exit status is unknown" }
