// SPDX-License-Identifier: Apache-2.0

// Package stdio connects a program's three streams with who runs it: by pipes,
// whose other ends the program has. A file is never handed over itself, so a
// program can neither reach it nor move its offset.
package stdio

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	pipeSize = 1 << 20 // what Linux lets every user have (pipe(7))
	copySize = 128 << 10
)

// drainLimit is how long Drain waits for a stream to end. It ends at once where no
// process has the program's end any more. A program can pass its end on, to one that
// stays (SCM_RIGHTS, by a socket in a directory that both have). It is a variable for
// tests.
var drainLimit = time.Second

// buffers are lent to copies. What one run wrote stays in its buffer and is not
// read: io.CopyBuffer passes on what it has just read.
var buffers = sync.Pool{New: func() any { b := make([]byte, copySize); return &b }}

// Pipes are the three streams of one program.
type Pipes struct {
	// Theirs are the program's ends, as its fd 0, 1 and 2; Release and Copy close
	// them.
	Theirs [3]*os.File

	ours   [3]*os.File
	copies sync.WaitGroup
}

// New makes the pipes. The caller hands Theirs to the program, then calls Copy,
// then, when the program and all that has its ends are gone, Drain, and in any
// case Close.
func New() (*Pipes, error) {
	p := &Pipes{}
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			p.Close()
			return nil, &sandbox.Error{Op: "run", Kind: sandbox.ErrUnavailable, Problem: "no pipe can be made", Cause: err}
		}
		widen(r)
		p.ours[i], p.Theirs[i] = r, w
		if i == 0 {
			p.ours[i], p.Theirs[i] = w, r
		}
	}
	return p, nil
}

// widen makes a pipe hold more, for fewer and larger turns between the kernel,
// the program and us. It is not asked whether it could.
func widen(pipe *os.File) {
	// Not Fd, which would make the file block.
	if c, err := pipe.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}

// Release closes the program's ends, which it has by now.
func (p *Pipes) Release() {
	for _, f := range p.Theirs {
		f.Close()
	}
}

// Copy starts moving bytes from and to exec's streams. The channel is closed when
// an output cannot be written any more, which ends the program.
func (p *Pipes) Copy(exec *sandbox.Exec) <-chan struct{} {
	p.Release()
	if exec.Stdin == nil {
		p.ours[0].Close()
	} else {
		// Not waited for: a reader such as a terminal may block for ever.
		go func() {
			_, _ = io.Copy(p.ours[0], onlyReader{exec.Stdin})
			p.ours[0].Close()
		}()
	}
	broken := make(chan struct{})
	var once sync.Once
	for i, w := range []io.Writer{exec.Stdout, exec.Stderr} {
		if w == nil {
			w = io.Discard
		}
		p.copies.Go(func() {
			buf := buffers.Get().(*[]byte)
			_, err := io.CopyBuffer(onlyWriter{w}, onlyReader{p.ours[i+1]}, *buf)
			buffers.Put(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = copyRest(w, p.ours[i+1])
			}
			if err != nil && !errors.Is(err, os.ErrClosed) {
				once.Do(func() { close(broken) })
				// The program may still write until it is gone.
				_, _ = io.Copy(io.Discard, p.ours[i+1])
			}
		})
	}
	return broken
}

// Drain waits until everything that was written has been passed on. Everything that
// should have the program's ends is gone.
func (p *Pipes) Drain() {
	for _, f := range p.ours[1:] {
		_ = f.SetReadDeadline(time.Now().Add(drainLimit)) // pipes have one
	}
	p.copies.Wait()
}

// copyRest passes on what is in a pipe whose deadline is over. It is as much as the
// pipe holds, whatever is written meanwhile.
func copyRest(w io.Writer, pipe *os.File) error {
	c, err := pipe.SyscallConn()
	if err != nil {
		return err
	}
	var rest []byte
	failed := c.Control(func(fd uintptr) {
		n := 0
		if n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil && n > 0 {
			rest = make([]byte, min(n, pipeSize))
			n, err = unix.Read(int(fd), rest)
			rest = rest[:max(n, 0)]
		}
	})
	if err = errors.Join(failed, err); err == nil && len(rest) > 0 {
		_, err = w.Write(rest)
	}
	return err
}

// Close closes all that is open. It may be called at any time.
func (p *Pipes) Close() {
	for i := range 3 {
		if p.ours[i] != nil {
			p.ours[i].Close()
			p.Theirs[i].Close()
		}
	}
}

// onlyReader and onlyWriter keep io.Copy from splicing between files by
// itself: the session's writers count what passes.
type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }
