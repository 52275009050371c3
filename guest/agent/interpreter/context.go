// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"fmt"
	"maps"
	"sync"

	"github.com/caisson-run/caisson/interpreter"
)

// maxWaiting is how many cells of one context wait at most.
const maxWaiting = 64

// context is one context.
type context struct {
	id       string
	language string
	dir      string
	env      map[string]string
	user     User
	number   int
	timeouts timeouts
	turn     chan struct{} // holds one element while a cell runs or a kernel starts; those who wait get it in order

	mu         sync.Mutex
	kernel     *kernel
	executions int
	waiting    int
	running    *execution
	removed    bool
	seed       string // for the next cell's generators; "" is none
}

func newContext(u User, o interpreter.ContextOptions, number int, p timeouts) *context {
	c := &context{
		id: o.ID, language: o.Language, dir: o.Dir, env: maps.Clone(o.Env), user: u, number: number,
		turn: make(chan struct{}, 1), timeouts: p,
	}
	if c.dir == "" {
		c.dir = u.Home()
	}
	return c
}

func (c *context) describe() interpreter.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return interpreter.Context{ID: c.id, Language: c.language, Dir: c.dir, Executions: c.executions, Busy: c.running != nil}
}

// speaks refuses a cell of another language: its text was judged as what it says it is.
func (c *context) speaks(language string) error {
	if family(interpreter.Language(language)) == family(c.language) {
		return nil
	}
	return &fault{ErrInvalid, fmt.Sprintf("the context %s is one of %s, and the cell is not", c.id, c.language)}
}

// unused says whether no cell has ever had a kernel here.
func (c *context) unused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kernel == nil && c.executions == 0
}

// warm sees to it that there is a kernel, unless a cell runs or waits, which sees to it.
func (c *context) warm() error {
	c.mu.Lock()
	have := c.running != nil || c.waiting > 0 || c.kernel.living()
	c.mu.Unlock()
	if have {
		return nil
	}
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	_, err := c.ready()
	return err
}

// ready is the kernel, which is started where there is none. The caller has the turn.
func (c *context) ready() (*kernel, error) {
	c.mu.Lock()
	k, removed := c.kernel, c.removed
	c.mu.Unlock()
	if removed {
		return nil, &fault{ErrNotFound, "the context was removed"}
	}
	if k.living() {
		return k, nil
	}
	k, err := launch(c.user, family(c.language), c.dir, c.env)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		k.kill("its context was removed")
		return nil, &fault{ErrNotFound, "the context was removed"}
	}
	c.kernel, c.executions, c.seed = k, 0, "" // it has random numbers of its own
	return k, nil
}

// end ends the kernel, and so what it runs.
func (c *context) end(why string) {
	c.mu.Lock()
	k := c.kernel
	c.kernel, c.executions = nil, 0
	c.mu.Unlock()
	if k != nil {
		k.kill(why)
	}
}

func (c *context) remove() {
	c.mu.Lock()
	c.removed = true
	c.mu.Unlock()
	c.end("its context was removed")
}

// interrupt interrupts the cell that runs.
func (c *context) interrupt() {
	c.mu.Lock()
	x := c.running
	c.mu.Unlock()
	if x != nil {
		x.interrupt(interpreter.Interrupted, "it was interrupted")
	}
}

func (c *context) reseed(seed string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seed = seed
}
