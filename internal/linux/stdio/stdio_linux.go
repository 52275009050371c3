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

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	pipeSize = 1 << 20 // what Linux lets anybody have (pipe(7))
	copySize = 128 << 10
)

// Pipes are the three streams of one program.
type Pipes struct {
	// Theirs are the program's ends, as its fd 0, 1 and 2; Copy closes them.
	Theirs [3]*os.File

	exec   *sandbox.Exec
	ours   [3]*os.File
	copies sync.WaitGroup
}

// New makes the pipes. The caller hands Theirs to the program, then calls Copy,
// then, when the program and all that has its ends are gone, Drain, and in any
// case Close.
func New(exec *sandbox.Exec) (*Pipes, error) {
	p := &Pipes{exec: exec}
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

// Copy starts moving bytes. The channel is closed when an output cannot be
// written any more, which ends the program.
func (p *Pipes) Copy() <-chan struct{} {
	for _, f := range p.Theirs {
		f.Close()
	}
	if p.exec.Stdin == nil {
		p.ours[0].Close()
	} else {
		// Not waited for: a reader such as a terminal may block for ever.
		go func() {
			_, _ = io.Copy(p.ours[0], onlyReader{p.exec.Stdin})
			p.ours[0].Close()
		}()
	}
	broken := make(chan struct{})
	var once sync.Once
	for i, w := range []io.Writer{p.exec.Stdout, p.exec.Stderr} {
		if w == nil {
			w = io.Discard
		}
		p.copies.Go(func() {
			_, err := io.CopyBuffer(onlyWriter{w}, onlyReader{p.ours[i+1]}, make([]byte, copySize))
			if err != nil && !errors.Is(err, os.ErrClosed) {
				once.Do(func() { close(broken) })
				// The program may still write until it is gone.
				_, _ = io.Copy(io.Discard, p.ours[i+1])
			}
		})
	}
	return broken
}

// Drain waits until everything that was written has been passed on.
func (p *Pipes) Drain() { p.copies.Wait() }

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
