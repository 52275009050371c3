// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
)

// aliveEvery is how often an exec that has nothing to say says so.
const aliveEvery = 10 * time.Second

// serveExec runs one program over one stream of frames each way. The program
// and its tree end with the request.
func (a *Agent) serveExec(w http.ResponseWriter, r *http.Request) {
	frames := wire.NewReader(r.Body)
	var start wire.StartRequest
	if k, _, err := frames.Next(); err != nil || k != wire.Start {
		http.Error(w, "the first frame must be a start", http.StatusBadRequest)
		return
	}
	if err := frames.JSON(&start); err != nil {
		http.Error(w, "start: "+err.Error(), http.StatusBadRequest)
		return
	}
	out := newFrameWriter(w)
	p, o, err := a.spawn(&start)
	var fault *startError
	if errors.As(err, &fault) {
		out.json(wire.Exit, wire.ExitEvent{Code: fault.code(), Failure: fault.failure, Message: fault.message})
		return
	}
	out.json(wire.Started, wire.StartedEvent{PID: p.pid})
	if p.stdin != nil {
		go p.feed(frames)
	}
	a.follow(r.Context(), p, o, out)
}

// follow copies a program's output until its end.
func (a *Agent) follow(ctx context.Context, p *process, o output, out *frameWriter) {
	// A host that went away takes its program with it.
	stop := context.AfterFunc(ctx, func() { a.table.signal(p, syscall.SIGKILL, wire.Tree) })
	defer stop()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()

	var copying sync.WaitGroup
	copying.Go(func() { drain(o.stdout, p.done, p.done, func(b []byte) error { return out.data(wire.Stdout, b) }) })
	if o.stderr != nil {
		copying.Go(func() { drain(o.stderr, p.done, p.done, func(b []byte) error { return out.data(wire.Stderr, b) }) })
	}
	copied := make(chan struct{})
	go func() { copying.Wait(); close(copied) }()
	for done := false; !done; {
		select {
		case <-alive.C:
			out.alive()
		case <-copied:
			done = true
		}
	}
	<-p.done
	if p.stdin != nil && p.stdin != p.terminal {
		p.stdin.Close()
	}
	out.json(wire.Exit, exitEvent(p.status))
}

// exitEvent is how a program ended.
func exitEvent(ws syscall.WaitStatus) wire.ExitEvent {
	if ws.Signaled() {
		return wire.ExitEvent{Code: 128 + int(ws.Signal()), Signal: int(ws.Signal())}
	}
	return wire.ExitEvent{Code: ws.ExitStatus()}
}

// feed writes Stdin frames to the program until EOF, or until the program has
// closed its end.
func (p *process) feed(frames *wire.Reader) {
	buf := make([]byte, 32<<10)
	for {
		k, _, err := frames.Next()
		switch {
		case err != nil || k == wire.EOF:
			p.endInput(err == nil)
			return
		case k != wire.Stdin:
			continue
		}
		p.input.Lock()
		_, err = io.CopyBuffer(struct{ io.Writer }{p.stdin}, frames, buf)
		p.input.Unlock()
		if err != nil {
			return // EPIPE: there is no reader any more. The rest is the host's to throw away.
		}
	}
}

// endInput is an end of file for the program. On a terminal that is a
// character, which the host sends only when it means it.
func (p *process) endInput(meant bool) {
	p.input.Lock()
	defer p.input.Unlock()
	if p.terminal == nil {
		p.stdin.Close()
	} else if meant {
		p.stdin.Write([]byte{4}) // ^D
	}
}

// drain hands what comes out of f to emit, and returns at its end, or when done
// is closed and all that was written until then was read. Something the program
// left behind may hold the other end for ever; what that writes is thrown away,
// and it is not hurt. drain closes f, but a terminal only when its program has
// ended: that would be a hangup.
func drain(f *os.File, done, ended <-chan struct{}, emit func([]byte) error) {
	stopped := make(chan struct{})
	interrupted := make(chan struct{})
	go func() {
		defer close(interrupted)
		select {
		case <-done:
			f.SetReadDeadline(time.Unix(1, 0))
		case <-stopped:
		}
	}()
	buf := make([]byte, leastRead)
	broken := false
	var b burst
	for {
		n, err := f.Read(buf)
		if n > 0 && !broken {
			// After a failure the program is being killed, or outlives its
			// host: keep it from waiting for a reader.
			broken = emit(buf[:n]) != nil
			b.gather(n)
		}
		if n == len(buf) && n < pipeSize {
			buf = make([]byte, 2*n)
		}
		if errors.Is(err, syscall.EIO) && !closed(ended) {
			// No process holds the terminal, as at the very end, or until the
			// program opens it again. Nothing tells when.
			select {
			case <-ended:
			case <-time.After(reopenEvery):
			}
			continue
		}
		if err != nil {
			break
		}
	}
	close(stopped)
	<-interrupted
	f.SetReadDeadline(time.Time{})
	select {
	case <-done:
	default: // an end of file before the program's
		f.Close()
		return
	}
	// A terminal shows a part of what was written at a time. What is more than
	// its buffers hold comes from programs that were left behind.
	for more, left := 0, pending(f); left > 0 && more < terminalBuffers; left = pending(f) {
		more += left
		for left > 0 {
			n, err := f.Read(buf[:min(left, len(buf))])
			if n > 0 && !broken {
				broken = emit(buf[:n]) != nil
			}
			if err != nil {
				break
			}
			left -= n
		}
	}
	go func() { io.Copy(io.Discard, f); f.Close() }()
}

// A pipe holds pipeSize bytes where the kernel lets it, and who reads it takes
// more at a time the more there is, from leastRead on: each piece costs several
// turns of scheduling, which inside gVisor are most of what output costs.
const (
	leastRead = 32 << 10
	pipeSize  = 256 << 10
)

// burst is output that comes without a pause. What a program writes in small pieces
// would cost more to pass on than to write: each of them wakes the agent, the host
// and the listener.
type burst struct {
	bytes int
	last  time.Time
}

const (
	burstPause = 10 * time.Millisecond // a longer one ends a burst
	burstLeast = 128 << 10             // bytes until it is one: what is shorter is never late
	gatherFor  = 2 * time.Millisecond
)

// gather waits for more, a little, where a piece of n bytes belongs to a burst and is
// a small one.
func (b *burst) gather(n int) {
	now := time.Now()
	if now.Sub(b.last) > burstPause {
		b.bytes = 0
	}
	b.bytes += n
	if n < leastRead && b.bytes >= burstLeast {
		time.Sleep(gatherFor)
		now = time.Now()
	}
	b.last = now
}

// reopenEvery is how often a terminal is looked at that no process holds while
// its program lives.
const reopenEvery = 50 * time.Millisecond

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// frameWriter writes frames.
type frameWriter struct {
	*writer
	buf []byte
}

func newFrameWriter(w http.ResponseWriter) *frameWriter {
	return &frameWriter{writer: newWriter(w, "application/octet-stream")}
}

func (f *frameWriter) data(k wire.Kind, b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = f.buf[:0]
	for {
		n := min(len(b), wire.MaxData)
		f.buf = wire.AppendFrame(f.buf, k, b[:n])
		if b = b[n:]; len(b) == 0 {
			return f.send(f.buf)
		}
	}
}

func (f *frameWriter) json(k wire.Kind, v any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := wire.AppendJSON(f.buf[:0], k, v)
	if err != nil {
		return err
	}
	f.buf = b
	return f.send(f.buf)
}

// alive says that the program still runs, unless a frame is stuck, which the
// host then knows better.
func (f *frameWriter) alive() {
	if f.mu.TryLock() {
		defer f.mu.Unlock()
		f.buf = wire.AppendFrame(f.buf[:0], wire.Alive, nil)
		f.send(f.buf)
	}
}

// serveSignal delivers a signal.
func (a *Agent) serveSignal(_ *http.Request, r *wire.SignalRequest) (*struct{}, error) {
	if err := r.Check(); err != nil {
		return nil, &connectError{codeInvalid, err.Error()}
	}
	s := syscall.Signal(r.Signal)
	if r.Scope == wire.All {
		if err := signalAll(s); err != nil {
			return nil, &connectError{codePrecondition, err.Error()}
		}
		return &struct{}{}, nil
	}
	p := a.table.find(func(p *process) bool { return p.id == r.ID })
	if p == nil {
		return nil, &connectError{codeNotFound, errGone.Error()}
	}
	return &struct{}{}, a.table.signal(p, s, r.Scope)
}

// serveResize changes a terminal's size.
func (a *Agent) serveResize(_ *http.Request, r *wire.ResizeRequest) (*struct{}, error) {
	p := a.table.find(func(p *process) bool { return r.ID != "" && p.id == r.ID })
	switch {
	case p == nil:
		return nil, &connectError{codeNotFound, errGone.Error()}
	case p.terminal == nil:
		return nil, &connectError{codePrecondition, "the program has no terminal"}
	}
	return &struct{}{}, resize(p.terminal, r.Size)
}
