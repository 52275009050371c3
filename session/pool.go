// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/policy/code"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/warmpool"
)

// PoolOptions say for which calls sandboxes are made ahead, and how many.
type PoolOptions struct {
	// Like is a call of the kind. What runs and with what (Argv, Env, the code of
	// Source), its streams and its hooks are left aside, and so are the limits of
	// wall, cpu_time and output. Those of memory, cpus and processes may be
	// tighter, where the level takes that; a sandbox is held to them when it is given away. A call that differs
	// in anything else, who asks included, gets a sandbox of its own as always.
	Like Call
	// Ready is how many sandboxes wait at most: 1 to 128, 4 when it is 0.
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
	warm     *warmpool.Pool[struct{}, *made]
}

// PoolState is how a pool does.
type PoolState = warmpool.State

// made is a sandbox that waits for a call.
type made struct {
	pool   *Pool
	run    *Invocation // which prepared it; what it undoes goes last
	env    *environment.Environment
	box    aheadBox
	memory int64
}

// MaxReady is how many sandboxes of a kind are kept ready at most.
const (
	MaxReady   = 128
	defaultAge = 5 * time.Minute
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
	p := &Pool{s: s, o: o, of: of}
	m, err := p.make(ctx)
	if err != nil {
		return nil, nil, err
	}
	p.shape = shapeOf(m.run.Call, &m.run.Decision, m.run.Program)
	p.tightens.Store(m.box.tightener() != nil)
	p.warm = warmpool.New(context.WithoutCancel(ctx), warmpool.Options[struct{}, *made]{
		Make:    func(ctx context.Context, _ struct{}) (*made, error) { return p.make(ctx) },
		Destroy: func(m *made) error { return m.run.Undo.Run(context.Background()) },
		Alive:   (*made).alive,
		Ready:   o.Ready, Makers: min(o.Ready, runtime.GOMAXPROCS(0)), Age: o.Age,
		MaxMemory: o.Memory, Memory: func(m *made) int64 { return m.memory },
	})
	p.warm.Add(struct{}{}, m)
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
		r = newReader(p.of.Call, p.of, code.Python(true), nil)
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
	d, _, err := r.Level(ctx, r.Session, r.Call)
	if err != nil {
		return nil, err
	}
	if err := shapeOf(r.Call, &r.Decision, r.Program).CheckPristine(); err != nil {
		return nil, err
	}
	w, err := r.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	box, err := prepare(ctx, r, d, w)
	if err != nil {
		return nil, err
	}
	m := &made{pool: p, run: r, env: w, box: box}
	if u, err := box.Usage(ctx); err == nil && u.Memory != nil {
		m.memory = *u.Memory
	}
	return m, nil
}

func (m *made) alive() bool {
	select {
	case <-m.box.Ended():
		return false
	default:
		return m.box.answers()
	}
}

// State says how the pool does.
func (p *Pool) State() PoolState { return p.warm.State() }

// Close takes away every sandbox that waits and waits for those that are being
// taken away. Calls go on without it. Its error says what was left behind, which
// the next start sweeps.
func (p *Pool) Close() error {
	p.s.mu.Lock()
	p.s.pools = slices.DeleteFunc(slices.Clone(p.s.pools), func(q *Pool) bool { return p == q })
	p.s.mu.Unlock()
	err := p.warm.Close()
	if p.reads != nil {
		err = errors.Join(err, p.reads.Close())
	}
	return err
}
