// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"syscall"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
)

const (
	// chunk is how much of a stream is under way to a slow reader at most.
	chunk = 32 << 10
	// keepMax bounds what a Result holds when the output limit is off.
	keepMax = 64 << 20
)

// stream is one output stream of a program: it counts everything, lets limit bytes
// through, the beginning at once and the end once there is no more (Ends), and throws the
// rest away. Where they go to is the caller's writer, or the Result when there is none.
//
// A writer that blocks holds the program back, as a pipe would, but never the
// end of the run: when ctx ends, Write returns at once.
type stream struct {
	name  string
	limit int64  // bytes; 0 is no limit
	over  func() // called once when the limit is passed; may be nil
	// broken is called when the caller's writer failed; may be nil
	broken func()

	ctx  context.Context
	pump *pump // nil: keep
	mu   sync.Mutex
	n    int64          // bytes seen
	kept *Ends          // without a pump
	tail ring           // with one: what waits for the end
	seen *audit.Capture // for the record
}

func newStream(ctx context.Context, name string, to io.Writer, limits sandbox.Limits, over func()) *stream {
	s := &stream{name: name, limit: limits.Output, over: over, ctx: ctx, seen: audit.NewCapture()}
	if to == nil {
		s.kept = NewEnds(cmp.Or(limits.Output, keepMax))
	} else {
		s.pump, s.tail.max = newPump(to), int(tailOf(limits.Output))
	}
	return s
}

// Write takes what the program wrote. It fails when the caller's writer
// failed or the run is over, which ends the program.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	before := s.n
	s.n += int64(len(p))
	s.seen.Write(p)
	pass := p
	switch {
	case s.pump == nil:
		_, _ = s.kept.Write(p)
	case s.limit > 0:
		pass = p[:min(int64(len(p)), max(0, s.limit-int64(s.tail.max)-before))]
		s.tail.write(p[len(pass):])
	}
	crossed := s.limit > 0 && before <= s.limit && s.n > s.limit
	s.mu.Unlock()

	if s.pump != nil {
		for len(pass) > 0 {
			n := min(len(pass), chunk)
			if err := s.pump.send(s.ctx, pass[:n]); err != nil {
				if s.broken != nil && s.ctx.Err() == nil {
					s.broken()
				}
				return 0, err
			}
			pass = pass[n:]
		}
	}
	if crossed && s.over != nil {
		s.over()
	}
	return len(p), nil
}

// atOnce has everything go through when it is written, and nothing at the end: a person
// sits at a terminal. It is called before the first Write.
func (s *stream) atOnce() { s.tail.max = 0 }

// cut is how many bytes did not get through, and where in the others they are missing.
func (s *stream) cut() (n, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pump == nil:
		_, n, at = s.kept.Bytes()
	case s.limit > 0:
		n, at = max(0, s.n-s.limit), s.limit-int64(s.tail.max)
	}
	return n, at
}

// end writes what has waited for the end. The program must be gone.
func (s *stream) end(ctx context.Context) {
	s.mu.Lock()
	b := s.tail.bytes()
	s.tail.b, s.tail.start = nil, 0
	s.mu.Unlock()
	for len(b) > 0 {
		n := min(len(b), chunk)
		if s.pump.send(ctx, b[:n]) != nil {
			return // which drain tells
		}
		b = b[n:]
	}
}

// captured is what the record holds of the stream. The program must be gone.
func (s *stream) captured() *audit.Capture {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func (s *stream) bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, _, _ := s.kept.Bytes()
	return b
}

// pump writes to the caller's writer from a goroutine of its own, so that a
// writer that blocks for ever costs one goroutine and not the run. One chunk
// is under way at a time: nothing is buffered beyond it.
type pump struct {
	to   io.Writer
	free chan []byte // the buffer, when nothing is under way
	work chan []byte
	done chan struct{}
	err  error // valid once done is closed
}

func newPump(to io.Writer) *pump {
	p := &pump{to: to, free: make(chan []byte, 1), work: make(chan []byte), done: make(chan struct{})}
	p.free <- make([]byte, 0, chunk)
	go p.loop()
	return p
}

func (p *pump) loop() {
	defer close(p.done)
	for b := range p.work {
		if _, err := p.to.Write(b); err != nil {
			p.err = err
			return
		}
		p.free <- b[:0]
	}
}

func (p *pump) send(ctx context.Context, b []byte) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.done:
		return p.err
	case buf := <-p.free:
		select {
		case p.work <- append(buf, b...):
			return nil
		case <-p.done:
			return p.err
		}
	}
}

// drain waits until the last chunk is written, or ctx ends. No send may
// follow. It returns the error of the caller's writer, if it had one by then.
func (p *pump) drain(ctx context.Context) error {
	close(p.work)
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return nil
	}
}

// unwritten is the error of a call whose output a file of the caller's did not
// take: a full disk, say. A reader that went away is none. It ends the program as a
// closed pipe does, and the reader that left knows.
func unwritten(name string, err error) error {
	var file *fs.PathError
	if !errors.As(err, &file) || errors.Is(err, fs.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return &sandbox.Error{Op: "run", Kind: sandbox.ErrUnavailable, Problem: "the program's " + name + " could not be written",
		Hint: "what it wrote is not complete; see where the output goes to", Cause: file.Err}
}
