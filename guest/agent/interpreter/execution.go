// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	stdcontext "context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/caisson-run/caisson/interpreter"
)

const (
	aliveEvery = 10 * time.Second
	// lookEvery is how often it is looked whether a cell can be interrupted yet.
	lookEvery = 20 * time.Millisecond
)

// timeouts are how long an interrupt may take.
type timeouts struct {
	insist time.Duration // until it is sent again
	kill   time.Duration // from then on, until the kernel is killed
}

var defaultTimeouts = timeouts{2 * time.Second, 3 * time.Second}

// Execution is a cell that has a context.
type Execution struct {
	context *context
	cell    interpreter.Cell
}

// Prepare finds the context of a cell, and makes the default one where there is none.
// Run must follow when it succeeds.
func (s *Contexts) Prepare(u User, cell interpreter.Cell) (*Execution, error) {
	c, err := s.choose(u, &cell)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting >= maxWaiting {
		return nil, &fault{ErrExhausted, fmt.Sprintf("%d cells wait in the context %s already", maxWaiting, c.id)}
	}
	c.waiting++
	return &Execution{c, cell}, nil
}

// Run runs the cell when its turn has come. Its last event is its end. When ctx ends the
// cell is interrupted.
func (x *Execution) Run(ctx stdcontext.Context, sink Sink) {
	c := x.context
	mine := newCell("", x.cell.MaxOutput, sink)
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for got := false; !got; {
		select {
		case c.turn <- struct{}{}:
			got = true
		case <-ctx.Done():
			c.leave()
			return
		case <-alive.C:
			mine.alive()
		}
	}
	c.leave()
	defer func() { <-c.turn }()
	started := time.Now()
	end := x.run(ctx, mine, alive)
	end.Cut = mine.finish()
	if dir := x.dir(); end.Status != interpreter.Lost || dir != "" {
		end.Files, end.More = changed(c.user, dir, started)
	}
	if end.Status == interpreter.Lost {
		c.forget()
	}
	c.settle()
	mine.send(&interpreter.Event{Type: interpreter.End, End: end})
}

func (x *Execution) dir() string {
	if x.cell.Dir != "" {
		return x.cell.Dir
	}
	return x.context.dir
}

// leave ends the waiting.
func (c *context) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
}

// settle says that no cell runs.
func (c *context) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = nil
}

// forget takes a kernel out that has ended: the next cell gets a fresh one.
func (c *context) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kernel != nil && !c.kernel.living() {
		c.kernel, c.executions = nil, 0
	}
}

// run runs the cell in its context's kernel.
func (x *Execution) run(ctx stdcontext.Context, mine *cell, alive *time.Ticker) *interpreter.Ending {
	c := x.context
	k, err := c.ready()
	if err != nil {
		return &interpreter.Ending{Status: interpreter.Lost, Reason: err.Error()}
	}
	e := &execution{kernel: k, cell: mine, timeouts: c.timeouts}
	c.mu.Lock()
	if c.kernel != k {
		c.mu.Unlock()
		return &interpreter.Ending{Status: interpreter.Lost, Reason: "its context was restarted"}
	}
	c.executions++
	k.count++
	mine.id = strconv.Itoa(k.count)
	count, seed := c.executions, c.seed
	c.running, c.seed = e, ""
	c.mu.Unlock()

	mine.send(&interpreter.Event{Type: interpreter.Started, Count: count})
	cmd := &command{ID: mine.id, Code: x.cell.Code, Env: x.cell.Env, Dir: x.cell.Dir}
	if cmd.Language = interpreter.Language(x.cell.Language); x.cell.Language == "" {
		cmd.Language = c.language
	}
	go func() { // a kernel may not read before it has written
		if seed != "" {
			k.talk.reseed(seed)
		}
		k.begin(mine, cmd)
	}()
	e.wait(ctx, x.cell.Timeout, alive)
	k.settle()
	return e.ending()
}

// execution is a cell that a kernel runs.
type execution struct {
	kernel   *kernel
	cell     *cell
	timeouts timeouts

	mu     sync.Mutex
	status string // it was interrupted, and why; "" is not
	reason string
}

// wait waits for the end of the cell or of its kernel.
func (e *execution) wait(ctx stdcontext.Context, timeout time.Duration, alive *time.Ticker) {
	var late <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		late = t.C
	}
	gone := ctx.Done()
	for {
		select {
		case <-e.cell.done:
			return
		case <-e.kernel.over:
			return
		case <-gone:
			gone = nil
			e.interrupt(interpreter.Interrupted, "its caller went away")
		case <-late:
			e.interrupt(interpreter.TimedOut, fmt.Sprintf("its time of %v was over", timeout))
		case <-alive.C:
			e.cell.alive()
		}
	}
}

// interrupt ends the cell: by asking twice, and then by killing its kernel.
func (e *execution) interrupt(status, reason string) {
	e.mu.Lock()
	first := e.status == ""
	if first {
		e.status, e.reason = status, reason
	}
	e.mu.Unlock()
	if !first {
		return
	}
	go func() {
		if e.ask(e.timeouts.insist, e.timeouts.insist) {
			return
		}
		// It may wait for its listener, who reads nothing.
		e.cell.sink.Abort()
		if !e.ask(e.timeouts.kill, againEvery) {
			e.kernel.kill(reason + ", and it did not honour the interrupt")
		}
	}()
}

// againEvery is how often an interrupt is sent that was not honoured at once: Bash drops one
// that comes while it starts a program.
const againEvery = 200 * time.Millisecond

// ask interrupts, again and again, and says whether the cell ended within d.
func (e *execution) ask(d, again time.Duration) bool {
	select {
	case <-e.cell.done:
		return true
	case <-e.kernel.over:
		return true
	default:
	}
	late := time.NewTimer(d)
	defer late.Stop()
	soon := time.NewTicker(lookEvery)
	defer soon.Stop()
	for sent := (time.Time{}); ; {
		if time.Since(sent) >= again && e.kernel.talk.begun(e.cell.id) {
			e.kernel.interrupt(e.cell)
			sent = time.Now()
		}
		select {
		case <-e.cell.done:
			return true
		case <-e.kernel.over:
			return true
		case <-soon.C:
		case <-late.C:
			return false
		}
	}
}

// ending is how the cell ended.
func (e *execution) ending() *interpreter.Ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.cell.done:
		end := &interpreter.Ending{Status: e.cell.end.Status}
		switch {
		case e.status != "":
			end.Status, end.Reason = e.status, e.reason
		case end.Status == interpreter.Interrupted:
			end.Reason = "it was interrupted from inside"
		}
		return end
	default:
	}
	e.kernel.mu.Lock()
	defer e.kernel.mu.Unlock()
	return &interpreter.Ending{Status: interpreter.Lost, Reason: e.kernel.reason()}
}
