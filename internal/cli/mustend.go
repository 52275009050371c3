// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// What keeps this process when it was told to end can be a sandbox, or whatever ends
// one: a program that no signal reaches, an engine that does not answer. All of them
// have limits; these are for what has none. Processes of sandboxes end with this one, or
// are ended by the next, which also takes away what they leave. They are variables for
// tests.
var (
	daemonLimit = 45 * time.Second // of serve and mcp, from the first signal
	runLimit    = 15 * time.Second // of run, from the second signal
)

// sayLimit is how long a last word may take to who does not read it.
const sayLimit = time.Second

// mustEnd ends this process, whatever keeps it, daemonLimit after ctx has ended. The
// function that it returns takes that back.
func (a *app) mustEnd(ctx context.Context) (stop func()) {
	over := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-over:
			return
		}
		select {
		case <-time.After(daemonLimit):
			a.abandon(exitCannot, "not everything has ended "+daemonLimit.String()+" after that was asked for"+unended)
		case <-over:
		}
	}()
	return func() { close(over) }
}

// unended is what comes of it.
const unended = ": what is left ends with this process, or the next caisson takes it away"

// giveUp is what listen wants: it leaves the terminal as it was, where there is one.
func (a *app) giveUp(terminal *atomic.Pointer[tty]) func(syscall.Signal) {
	return func(got syscall.Signal) {
		if t := terminal.Load(); t != nil {
			t.restore()
		}
		a.abandon(128+int(got), "the sandbox has not ended"+unended)
	}
}

// abandon ends this process at once.
func (a *app) abandon(code int, why string) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		a.say("%s", why)
	}()
	select {
	case <-said:
	case <-time.After(sayLimit):
	}
	os.Exit(code)
}
