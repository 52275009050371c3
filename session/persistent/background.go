// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"sync"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// background is what goes on by itself until everything is stopped. Lock order: its mu is
// taken last.
type background struct {
	life   context.Context // ends when everything is stopped
	finish context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	timers  []func() bool // stop the next turn of each repeat
}

func newBackground() *background {
	g := &background{}
	g.life, g.finish = context.WithCancel(context.Background())
	return g
}

// open says whether new work may begin.
func (g *background) open() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return &sandbox.Error{Op: "sandboxes", Kind: sandbox.ErrUnavailable, Problem: "caisson is being stopped", Hint: "try again in a moment"}
	}
	return nil
}

// hold counts something that goes on by itself, until work.Done. It is false when everything
// is being stopped.
func (g *background) hold() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return false
	}
	g.work.Add(1)
	return true
}

// repeat calls do after d, and each time again after what do returns, until everything is
// stopped.
func (g *background) repeat(clock Clock, d time.Duration, do func() (again time.Duration)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timers = append(g.timers, nil)
	g.turn(len(g.timers)-1, clock, d, do)
}

// turn sets the timer of one repeat. The caller holds mu.
func (g *background) turn(timer int, clock Clock, d time.Duration, do func() time.Duration) {
	if g.stopped {
		return
	}
	g.timers[timer] = clock.AfterFunc(d, func() {
		if !g.hold() {
			return
		}
		defer g.work.Done()
		again := do()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.turn(timer, clock, again, do)
	})
}

// stop lets nothing new begin, and ends life.
func (g *background) stop() {
	g.mu.Lock()
	g.stopped = true
	for _, stop := range g.timers {
		stop()
	}
	g.mu.Unlock()
	g.finish()
}
