// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/interpreter"
)

const (
	// startTimeout is how long a kernel may take until it is ready.
	startTimeout = time.Minute
	// lastWords is how long what an ended kernel has said is waited for, and listenTimeout
	// how long its listener may take to hear it.
	lastWords     = time.Second
	listenTimeout = 5 * time.Second
	// silence is how long a kernel may live that can say nothing more.
	silence  = 5 * time.Second
	maxEarly = 2 << 10
)

// kernel is a process that runs cells.
type kernel struct {
	process Process
	talk    talk
	out     *pipe // its fd 1
	err     *pipe // its fd 2
	ready   chan struct{}
	heard   chan struct{} // closed when it says nothing more
	over    chan struct{} // closed when it has ended, and what it said was taken

	mu    sync.Mutex
	cell  *cell  // that it runs
	early []byte // what it wrote to fd 2 before it was ready
	why   string // it was ended
	count int    // of its cells
}

// startKernel starts a kernel and waits until it is ready.
func startKernel(u User, p Program, t talk, theirs func()) (*kernel, error) {
	k := &kernel{talk: t, ready: make(chan struct{}), heard: make(chan struct{}), over: make(chan struct{})}
	defer theirs()
	var err error
	if k.out, p.Stdout, err = newPipe(func(b []byte) { k.output(interpreter.Stdout, b) }); err != nil {
		t.close()
		return nil, err
	}
	defer p.Stdout.Close()
	if k.err, p.Stderr, err = newPipe(func(b []byte) { k.output(interpreter.Stderr, b) }); err != nil {
		k.out.file.Close()
		t.close()
		return nil, err
	}
	defer p.Stderr.Close()
	if k.process, err = u.Start(p); err != nil {
		k.out.file.Close()
		k.err.file.Close()
		t.close()
		return nil, err
	}
	go k.out.follow()
	go k.err.follow()
	go k.listen()
	go k.mourn()
	late := time.NewTimer(startTimeout)
	defer late.Stop()
	select {
	case <-k.ready:
		return k, nil
	case <-k.over:
	case <-late.C:
		k.kill("it did not start in time")
		<-k.over
		return nil, &fault{ErrFailed, fmt.Sprintf("the kernel was not ready within %v", startTimeout)}
	}
	k.err.flush()
	k.mu.Lock()
	defer k.mu.Unlock()
	said := strings.TrimSpace(string(k.early))
	if said == "" {
		said = k.reason()
	}
	return nil, &fault{ErrFailed, "the kernel did not start: " + said}
}

// listen hands on what the kernel says, until it says nothing more.
func (k *kernel) listen() {
	defer close(k.heard)
	for {
		m, err := k.talk.next()
		if err == nil {
			err = k.take(m)
		}
		if errors.Is(err, errProtocol) {
			k.kill(err.Error())
		}
		if err != nil {
			return
		}
	}
}

func (k *kernel) take(m *message) error {
	// What was written before it was said belongs before it.
	k.out.flush()
	k.err.flush()
	k.mu.Lock()
	c, why := k.cell, k.why
	k.mu.Unlock()
	switch {
	case why != "":
		return io.EOF
	case m.ready != "":
		select {
		case <-k.ready:
			return fmt.Errorf("%w: it is ready twice", errProtocol)
		default:
			close(k.ready)
			return nil
		}
	case c == nil || m.id != c.id:
		return fmt.Errorf("%w: it speaks of a cell that does not run", errProtocol)
	}
	c.take(m.event, k.talk.more())
	return nil
}

// output takes what was written to fd 1 or 2. Without a cell it is thrown away.
func (k *kernel) output(stream interpreter.EventType, b []byte) {
	k.mu.Lock()
	c := k.cell
	if c == nil && stream == interpreter.Stderr && len(k.early) < maxEarly {
		k.early = append(k.early, b[:min(len(b), maxEarly-len(k.early))]...)
	}
	k.mu.Unlock()
	if c != nil {
		c.output(stream, b)
	}
}

// mourn closes what belongs to the kernel when it has ended.
func (k *kernel) mourn() {
	defer close(k.over)
	select {
	case <-k.process.Done():
		wait(k.heard, lastWords) // what it left behind may hold the other end
	case <-k.heard: // it has closed its end: as a rule because it is about to end
		if !wait(k.process.Done(), silence) {
			k.kill(errProtocol.Error())
			<-k.process.Done()
		}
	}
	k.talk.close()
	if !wait(k.heard, listenTimeout) {
		k.abort()
	}
	<-k.heard
}

// abort gives up the listener of the cell that runs.
func (k *kernel) abort() {
	k.mu.Lock()
	c := k.cell
	k.mu.Unlock()
	if c != nil {
		c.sink.Abort()
	}
}

// wait says whether c was closed within d.
func wait(c <-chan struct{}, d time.Duration) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-c:
		return true
	case <-late.C:
		return false
	}
}

// living says whether it can run a cell.
func (k *kernel) living() bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.process.Done():
		return false
	case <-k.heard:
		return false
	default:
		return k.why == ""
	}
}

// begin has the kernel run a cell.
func (k *kernel) begin(c *cell, cmd *command) error {
	k.mu.Lock()
	k.cell = c
	k.mu.Unlock()
	return k.talk.start(cmd)
}

// settle ends the kernel's part in a cell.
func (k *kernel) settle() {
	k.out.flush()
	k.err.flush()
	k.mu.Lock()
	k.cell = nil
	k.mu.Unlock()
}

// interrupt asks for the end of a cell.
func (k *kernel) interrupt(c *cell) {
	if k.talk.interrupt(c.id) {
		k.process.Interrupt()
		k.talk.interrupted(c.id)
	}
}

// kill ends the kernel, and says why; the first reason stays.
func (k *kernel) kill(why string) {
	k.mu.Lock()
	if k.why == "" {
		k.why = why
	}
	k.mu.Unlock()
	k.process.Kill()
}

// reason says why the kernel has ended. The caller holds mu.
func (k *kernel) reason() string {
	if k.why != "" {
		return k.why
	}
	select {
	case <-k.process.Done():
	default:
		return "its kernel fell silent"
	}
	ws := k.process.Status()
	switch {
	case k.process.OutOfMemory():
		return "memory limit"
	case ws.Exited():
		return fmt.Sprintf("exited with code %d", ws.ExitStatus())
	case ws.Signal() == syscall.SIGKILL:
		return "killed"
	}
	return "ended by " + wire.SignalName(int(ws.Signal()))
}
