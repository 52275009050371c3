// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson/interpreter"
)

// Sink takes the events of one cell.
type Sink struct {
	// Event takes one; one call at a time. An error means that there is no listener any
	// more: what follows is read and thrown away, so that the cell does not wait.
	Event func(*interpreter.Event) error
	// Abort makes a call of Event that waits for its listener fail.
	Abort func()
}

// maxHeld is how much output is put together into one event, in bytes, while the kernel
// has more to say.
const maxHeld = 64 << 10

// cell is a cell that a kernel runs.
type cell struct {
	id   string
	sink Sink

	mu     sync.Mutex // held while an event goes out
	max    int64      // of output and results, in bytes; 0 is no limit
	handed int64
	cut    int64 // behind the first byte that is cut nothing is handed on
	deaf   bool  // there is no listener
	held   []byte
	stream interpreter.EventType // of held
	rest   map[interpreter.EventType][]byte

	end  *interpreter.Ending // what the kernel says; written before done is closed
	done chan struct{}
}

func newCell(id string, max int64, sink Sink) *cell {
	return &cell{id: id, sink: sink, max: max, rest: map[interpreter.EventType][]byte{}, done: make(chan struct{})}
}

// take takes an event of the kernel. more says that another follows at once.
func (c *cell) take(e *interpreter.Event, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Type {
	case interpreter.Stdout, interpreter.Stderr:
		c.write(e.Type, []byte(e.Text), more)
		return
	}
	c.flush()
	switch e.Type {
	case interpreter.End:
		select {
		case <-c.done:
		default:
			c.end = e.End
			close(c.done)
		}
		return
	case interpreter.Display:
		n := int64(0)
		for _, form := range e.Result.Data {
			n += int64(len(form))
		}
		if !c.fits(n) {
			c.cut += n
			return
		}
		c.handed += n
	}
	c.emit(e)
}

// output takes what was written to fd 1 or 2.
func (c *cell) output(stream interpreter.EventType, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A piece may end within a character.
	if rest := c.rest[stream]; len(rest) > 0 {
		b = append(rest, b...)
		c.rest[stream] = nil
	}
	whole := b[:len(b)-partial(b)]
	if len(whole) < len(b) {
		c.rest[stream] = append([]byte(nil), b[len(whole):]...)
	}
	c.write(stream, whole, false)
}

// partial is how many bytes at the end of b begin a character that is not whole.
func partial(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

func (c *cell) fits(n int64) bool { return c.max == 0 || c.cut == 0 && n <= c.max-c.handed }

// write puts output together with what was written to the same stream before.
func (c *cell) write(stream interpreter.EventType, b []byte, more bool) {
	if len(b) == 0 {
		return
	}
	if !c.fits(int64(len(b))) {
		fit := c.max - c.handed
		if c.cut > 0 {
			fit = 0
		}
		for fit > 0 && !utf8.RuneStart(b[fit]) {
			fit--
		}
		c.cut += int64(len(b)) - fit
		b = b[:fit]
	}
	c.handed += int64(len(b))
	if stream != c.stream {
		c.flush()
	}
	c.stream, c.held = stream, append(c.held, b...)
	if !more || len(c.held) >= maxHeld {
		c.flush()
	}
}

// flush sends what is held.
func (c *cell) flush() {
	if len(c.held) > 0 {
		c.emit(&interpreter.Event{Type: c.stream, Text: strings.ToValidUTF8(string(c.held), "\ufffd")})
		c.held = c.held[:0]
	}
}

// finish sends what is left of output that ended within a character.
func (c *cell) finish() (cut int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, stream := range []interpreter.EventType{interpreter.Stdout, interpreter.Stderr} {
		c.write(stream, c.rest[stream], false)
		c.rest[stream] = nil
	}
	c.flush()
	return c.cut
}

func (c *cell) emit(e *interpreter.Event) {
	if c.deaf {
		return
	}
	e.Time = time.Now()
	c.deaf = c.sink.Event(e) != nil
}

// send sends an event of the agent's own.
func (c *cell) send(e *interpreter.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.emit(e)
}

// alive says that nothing has happened, unless an event is stuck.
func (c *cell) alive() {
	if c.mu.TryLock() {
		defer c.mu.Unlock()
		c.emit(&interpreter.Event{Type: interpreter.Alive})
	}
}
