// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/policy/code"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
)

// PoolOptions say for which calls sandboxes are made ahead, and how many.
type PoolOptions struct {
	// Like is a call of the kind. What runs and with what (Argv, Env, the code of
	// Source), its streams and its hooks are left aside, and so are the limits of
	// wall, cpu_time and output. Those of memory, cpus and processes may be
	// tighter; a sandbox is held to them when it is given away. A call that differs
	// in anything else, who asks included, gets a sandbox of its own as always.
	Like Call
	// Ready is how many sandboxes wait at most: 1 to 64, 4 when it is 0.
	Ready int
	// Age is how long one waits at most: from a second to a day, 5 minutes when it
	// is 0. It shows the host's toolchain as it was when it was made.
	Age time.Duration
	// Memory is how many bytes all that wait may hold together, as their control
	// groups count them; 0 is no bound.
	Memory int64
}

// Pool keeps sandboxes ready for calls like one. Each is used once. They are
// made beside the runs, one for each that was taken; a call that finds none
// ready gets a sandbox of its own at once. It may be used from many goroutines.
type Pool struct {
	s     *Session
	o     PoolOptions
	shape Shape
	of    *Invocation // the run whose texts its sandboxes read; nil: they are for calls
	reads *Pool       // of those that read the texts of p's calls; nil without

	tightens atomic.Bool // its sandboxes take tighter limits, as far as is known

	ctx    context.Context
	end    context.CancelFunc
	wake   chan struct{}
	makers sync.WaitGroup
	ending chan struct{} // bounds how many are taken away at a time
	ends   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	ready  []*made // oldest first
	making int
	state  PoolState
	left   error // what could not be taken away
}

// PoolState is how a pool does.
type PoolState struct {
	Waiting int   // sandboxes
	Taken   int64 // sandboxes that calls have got
	Missed  int64 // calls that found none
	Err     error // why the last one could not be made; nil when it could
}

// made is a sandbox that waits for a call.
type made struct {
	pool   *Pool
	run    *Invocation // which prepared it; what it undoes goes last
	env    *environment.Environment
	box    sandbox.Prepared
	born   time.Time
	memory int64
}

const (
	MaxReady    = 64
	defaultAge  = 5 * time.Minute
	FirstRefill = 100 * time.Millisecond // after a failure; doubled each time
	LastRefill  = time.Minute
)

// Keep makes sandboxes ahead for calls like o.Like until the pool is closed. The
// first one is ready when it returns. Where the policy refuses such calls, or
// the level, or what they ask for is nothing that can be made ahead, that is the
// error (ErrDenied, ErrUnsupported), by name.
func (s *Session) Keep(ctx context.Context, o PoolOptions) (*Pool, error) {
	if o.Ready == 0 {
		o.Ready = 4
	}
	if o.Age == 0 {
		o.Age = defaultAge
	}
	if o.Ready < 1 || o.Ready > MaxReady || o.Age < time.Second || o.Age > 24*time.Hour || o.Memory < 0 {
		return nil, &sandbox.Error{Op: "pool", Kind: sandbox.ErrInvalid, Problem: "its bounds cannot be meant",
			Hint: fmt.Sprintf("from 1 to %d sandboxes, for a second to a day", MaxReady)}
	}
	o.Like = withoutHooks(o.Like)
	p, first, err := s.keep(ctx, o, nil)
	if err == nil && first.Plan.Code.For(code.PythonLanguage) {
		if p.reads, _, err = s.keep(ctx, o, first); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, err
}

// keep begins a pool, and gives the run of its first sandbox.
func (s *Session) keep(ctx context.Context, o PoolOptions, of *Invocation) (*Pool, *Invocation, error) {
	p := &Pool{s: s, o: o, of: of, wake: make(chan struct{}, 1), ending: make(chan struct{}, o.Ready)}
	m, err := p.make(ctx)
	if err != nil {
		return nil, nil, err
	}
	p.shape = m.run.shape()
	_, tightens := m.box.(sandbox.Tightener)
	p.tightens.Store(tightens)
	p.ready = append(p.ready, m)
	p.ctx, p.end = context.WithCancel(context.WithoutCancel(ctx))
	for range min(o.Ready, runtime.GOMAXPROCS(0)) {
		p.makers.Go(p.refill)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools = append(s.pools, p)
	return p, m.run, nil
}

// make makes one sandbox, the way a call's is made.
func (p *Pool) make(ctx context.Context) (_ *made, err error) {
	call := p.o.Like
	r := &Invocation{Session: p.s, Call: &call, ID: NewID(), Origin: Origin{Ahead: true}}
	if p.of != nil {
		r = p.of.reader(code.Python(true), nil, p.of)
		r.Ahead = true
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Undo.Run(ctx))
		}
	}()
	if p.of == nil {
		verdict, err := r.Decide()
		if err != nil {
			return nil, err
		}
		if verdict.Decision != policy.Allow {
			return nil, verdict.Err()
		}
		r.Plan = verdict.Plan
	}
	d, _, err := r.Level(ctx)
	if err != nil {
		return nil, err
	}
	preparer, ok := d.(sandbox.Preparer)
	if !ok {
		return nil, &sandbox.Error{Op: "pool", Kind: sandbox.ErrUnsupported, Problem: r.Plan.Isolation + " makes no sandboxes ahead",
			Hint: "take a level that does: process"}
	}
	if err := r.CheckLasting(); err != nil {
		return nil, err
	}
	w, err := r.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	box, err := preparer.Prepare(ctx, w.Spec)
	if err != nil {
		return nil, err
	}
	r.Undo.Add(WithLimit(r.Session.o.EndLimit, box.Destroy))
	m := &made{pool: p, run: r, env: w, box: box, born: p.s.o.Now()}
	if u, err := box.Usage(ctx); err == nil && u.Memory != nil {
		m.memory = *u.Memory
	}
	return m, nil
}

// refill is a goroutine that makes what is missing. What cannot be made is tried
// again after a pause.
func (p *Pool) refill() {
	pause := FirstRefill
	for p.ctx.Err() == nil {
		p.expire()
		again := p.o.Age / 4
		if p.wants() {
			m, err := p.make(p.ctx)
			if p.add(m, err); err == nil {
				pause = FirstRefill
				continue
			}
			again, pause = pause, min(2*pause, LastRefill)
		}
		select {
		case <-p.ctx.Done():
		case <-p.wake:
		case <-time.After(again):
		}
	}
}

// wants says whether another sandbox is to be made, and that it is being made.
func (p *Pool) wants() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var memory, largest int64
	for _, m := range p.ready {
		memory, largest = memory+m.memory, max(largest, m.memory)
	}
	full := len(p.ready)+p.making >= p.o.Ready
	if full || p.o.Memory > 0 && memory+int64(p.making+1)*largest > p.o.Memory {
		return false
	}
	p.making++
	if len(p.ready)+p.making < p.o.Ready {
		p.poke() // there is work for another
	}
	return true
}

// poke wakes one goroutine that refills.
func (p *Pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// add takes what a make gave.
func (p *Pool) add(m *made, err error) {
	p.mu.Lock()
	p.making--
	p.state.Err = err
	if err == nil && !p.closed {
		p.ready, m = append(p.ready, m), nil
	}
	p.mu.Unlock()
	if m != nil {
		p.retire(m)
	}
}

// expire takes away what is too old or has died.
func (p *Pool) expire() {
	p.mu.Lock()
	var old []*made
	p.ready = slices.DeleteFunc(p.ready, func(m *made) bool {
		if p.fresh(m) {
			return false
		}
		old = append(old, m)
		return true
	})
	p.mu.Unlock()
	for _, m := range old {
		p.retire(m)
	}
}

// fresh says whether a sandbox may still be used.
func (p *Pool) fresh(m *made) bool {
	select {
	case <-m.box.Ended():
		return false
	default:
		return p.s.o.Now().Sub(m.born) < p.o.Age
	}
}

// take gives the oldest sandbox away; nil when there is none.
func (p *Pool) take() *made {
	p.expire()
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.poke()
	if len(p.ready) == 0 {
		p.state.Missed++
		return nil
	}
	m := p.ready[0]
	p.ready = p.ready[1:]
	p.state.Taken++
	return m
}

// retire takes a sandbox away, beside the caller while the pool is open.
func (p *Pool) retire(m *made) {
	p.mu.Lock()
	open := !p.closed
	if open {
		p.ends.Go(func() {
			p.ending <- struct{}{}
			p.destroy(m)
			<-p.ending
		})
	}
	p.mu.Unlock()
	if !open {
		p.destroy(m)
	}
}

func (p *Pool) destroy(m *made) {
	if err := m.run.Undo.Run(context.Background()); err != nil {
		p.mu.Lock()
		p.left = errors.Join(p.left, err)
		p.mu.Unlock()
	}
}

// State says how the pool does.
func (p *Pool) State() PoolState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
	s.Waiting = len(p.ready)
	return s
}

// Close takes away every sandbox that waits and waits for those that are being
// taken away. Calls go on without it. Its error says what was left behind, which
// the next start sweeps.
func (p *Pool) Close() error {
	p.s.mu.Lock()
	p.s.pools = slices.DeleteFunc(slices.Clone(p.s.pools), func(q *Pool) bool { return p == q })
	p.s.mu.Unlock()
	p.end()
	p.makers.Wait()
	p.mu.Lock()
	ready := p.ready
	p.ready = nil
	p.mu.Unlock()
	for _, m := range ready {
		p.retire(m)
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.ends.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reads != nil {
		return errors.Join(p.left, p.reads.Close())
	}
	return p.left
}
