// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"os"
	"sync"
	"syscall"
)

// pipe is the agent's end of a kernel's fd 1 or 2.
type pipe struct {
	file *os.File
	raw  syscall.RawConn
	emit func([]byte) // not nil; one call at a time

	mu  sync.Mutex // held while it is read and emitted, so that pieces keep their order
	buf []byte
	end bool
}

const (
	pipeBuffer = 64 << 10
	pipeSize   = 256 << 10
)

// newPipe makes a pipe. theirs is the kernel's end.
func newPipe(emit func([]byte)) (p *pipe, theirs *os.File, err error) {
	ours, theirs, err := ends(true)
	if err != nil {
		return nil, nil, err
	}
	raw, err := ours.SyscallConn()
	if err != nil {
		ours.Close()
		theirs.Close()
		return nil, nil, err
	}
	return &pipe{file: ours, raw: raw, emit: emit, buf: make([]byte, pipeBuffer)}, theirs, nil
}

// ends makes a pipe of which only our end is non-blocking: a program that finds its own
// so breaks.
func ends(weRead bool) (ours, theirs *os.File, err error) {
	var fd [2]int
	if err := syscall.Pipe2(fd[:], syscall.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe", err)
	}
	mine, other := fd[1], fd[0]
	if weRead {
		mine, other = fd[0], fd[1]
	}
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(mine), syscall.F_SETPIPE_SZ, pipeSize) // best effort
	if err := syscall.SetNonblock(mine, true); err != nil {
		syscall.Close(mine)
		syscall.Close(other)
		return nil, nil, err
	}
	return os.NewFile(uintptr(mine), "pipe"), os.NewFile(uintptr(other), "pipe"), nil
}

// follow reads until no process holds the other end, or the pipe is closed.
func (p *pipe) follow() {
	p.raw.Read(func(fd uintptr) bool {
		for p.take(fd) { // the poller tells of what comes, not of what is left
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.end
	})
	p.file.Close()
}

// flush emits what lies in the pipe.
func (p *pipe) flush() { p.raw.Control(func(fd uintptr) { p.take(fd) }) }

// take reads what a pipe can hold at most, and says whether there may be more: a program
// that writes all the time must not keep flush.
func (p *pipe) take(fd uintptr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for left := pipeSize; left > 0; {
		if p.end {
			return false
		}
		n, err := syscall.Read(int(fd), p.buf)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return false
		case err != nil || n == 0:
			p.end = true
		default:
			p.emit(p.buf[:n])
			left -= n
		}
	}
	return true
}
