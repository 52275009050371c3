// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/internal/linux/engine"
)

// launch is what a router's process is started with.
type launch struct {
	order          *wire.Order
	owner, program *os.File
}

// await starts the process when it is needed, or tells one that was started before to
// read.
func (r *Router) await(order *wire.Order, theirs *os.File) {
	defer close(r.settled)
	defer r.began()
	defer theirs.Close()
	program, err := engine.OpenRouter(r.o.StateDir)
	if err != nil {
		err = cannot("its program cannot be opened", err)
		r.mu.Lock()
		r.failed = err
		r.mu.Unlock()
		close(r.opened)
		close(r.over)
		return
	}
	defer program.Close()
	l := &launch{order, theirs, program}
	r.launching.Lock()
	r.launch = l
	r.launching.Unlock()
	close(r.opened)
	came := r.first.wait(r.far, order.Device)
	r.launching.Lock()
	defer r.launching.Unlock()
	r.launch = nil
	r.mu.Lock()
	r.came, r.waits = came, false
	runs, stands, none := r.runs, r.stands, r.closing && !r.wanted && !came
	if none && !runs { // nothing goes through
		r.done = true
		close(r.over)
	}
	r.mu.Unlock()
	if none {
		return
	}
	if !runs {
		err = r.start(l)
	}
	if err == nil && (came || stands) { // there is something to read, so nothing to wait for
		if err = r.begin(); err != nil {
			r.process.kill()
			if errors.Is(err, unix.EPIPE) {
				return // it has ended by itself, and follow tells why
			}
			err = cannot("the router takes no order", err)
		}
	}
	if err == nil {
		return
	}
	r.mu.Lock()
	runs = r.runs
	r.mu.Unlock()
	r.lost(err)
	if !runs {
		close(r.over)
	}
}

// Foresee starts the router in a while, if nothing has until then, and has it wait for
// the first packet: a program that is still running may well have a use for the network,
// and does not wait for a process then. Where no process is to be had, the first packet
// tries again; the death of one closes the network, as ever. It does not wait.
func (r *Router) Foresee(in time.Duration) { time.AfterFunc(in, r.ahead) }

// ahead starts the process before anything asks for it.
func (r *Router) ahead() {
	<-r.opened
	r.launching.Lock()
	defer r.launching.Unlock()
	r.mu.Lock()
	idle := r.launch != nil && !r.runs && !r.closing
	r.waits = r.waits || idle
	r.mu.Unlock()
	if idle {
		_ = r.start(r.launch)
	}
}
