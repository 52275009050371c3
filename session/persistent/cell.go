// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// RunCell runs call.Source in a context of the sandbox, which keeps the state that it leaves,
// and calls on with each event as it comes. The context is the one with the ID in; where that is
// empty, it is the default context of the source's language, which is made when it is first
// needed. Source.MakeContext has one made of the ID in, too. Cells of one context run one after the other.
//
// Each cell is a call of its own: decided by the key's policy, by its code alone, since what
// earlier cells have left is not known; recorded with its code and what it told. The wall limit
// is the cell's time, after which it is interrupted and the state kept. The output limit is of
// all that it writes and shows together. A cell that ran is a Result, however it ended; its last
// event is End. When ctx ends, or on fails, which is returned, the cell is interrupted.
//
// Errors: ErrDenied with the rule; ErrNotFound for a context that is not there; ErrUnsupported
// for a language that has no kernel in the sandbox.
func (h *Handle) RunCell(ctx context.Context, call *session.Call, in string, on func(interpreter.Event) error) (*sandbox.Result, error) {
	if err := h.cellLanguage(ctx, call, in); err != nil {
		return nil, err
	}
	a, err := newAction(ctx, h, call, session.IO{})
	if err != nil {
		return nil, err
	}
	wait := a.Limits.Wall + cellGrace
	c := &cell{action: a, kill: h.overran, on: on, turn: maxTurn * wait, wait: wait, told: newTold(a.maxTold())}
	began := time.Now()
	res, err := c.run(ctx, in)
	if res != nil {
		res.WallMS = time.Since(began).Milliseconds()
	}
	return res, errors.Join(err, a.end(ctx, res, err, c.told.out, c.told.errs))
}

// cellLanguage completes a cell with the language of its context, by which the policy reads it.
func (h *Handle) cellLanguage(ctx context.Context, call *session.Call, in string) error {
	s := call.Source
	s.Cell = true
	s.Context = in
	if in == "" {
		if s.Language = interpreter.Language(s.Language); !token().MatchString(s.Language) {
			return &sandbox.Error{Op: "run cell", Kind: sandbox.ErrInvalid, Problem: "its language is no name of a kernel", Hint: "python, javascript, typescript and bash are known everywhere"}
		}
		return nil
	}
	all, err := h.Contexts(ctx, call.User)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.ID != in {
			continue
		}
		want := cmp.Or(s.Language, c.Language)
		if want = interpreter.Language(want); want != c.Language && !(want == interpreter.TypeScript && c.Language == interpreter.JavaScript) {
			return &sandbox.Error{Op: "context " + sandbox.Quoted(in), Kind: sandbox.ErrInvalid, Problem: "its language is " + c.Language + ", and not " + sandbox.Quoted(want), Hint: "leave the language out, or the context"}
		}
		s.Language, s.MakeContext = want, false
		return nil
	}
	if !s.MakeContext {
		return noContext(in)
	}
	s.Language = interpreter.Language(s.Language)
	return checkOptions(&interpreter.ContextOptions{ID: in, Language: s.Language})
}

// maxTold is how many bytes an agent may tell of the cell: what it is told to hand on at most,
// and some more for how it counts.
func (a *action) maxTold() int64 { return 2*a.maxOutput() + 1<<20 }

// maxOutput is how much of the cell's output is handed on.
func (a *action) maxOutput() int64 {
	switch l := a.Limits.Output; {
	case l <= 0 || l > maxCellOutput:
		return maxCellOutput
	case a.Limits.OutputKill:
		return 2 * l // what is beyond it ends the cell
	default:
		return l
	}
}

// cellGrace is how long an agent may take beyond a cell's time to have it ended: it interrupts
// first, and kills what does not hear. One that takes longer loses its sandbox.
const cellGrace = 30 * time.Second

// maxTurn is how many cells an agent has waiting in a context, and the one that runs. Their time
// is not that of a cell behind them.
const maxTurn = 65

// overran ends a sandbox whose agent lets a cell run on.
func (h *Handle) overran() {
	ctx := context.Background()
	_, _ = h.change(ctx, func(l locked) error {
		return l.endFor(ctx, &session.Ending{Status: sandbox.StatusTimeout, Resource: sandbox.LimitWall, Reason: "a cell in it ran on when its time was over"})
	})
}

// execution is a cell that runs, as an agent tells of it.
type execution interface {
	Next() (interpreter.Event, error)
	Close() error // interrupts a cell that has not ended
}

// cell is one that runs.
type cell struct {
	*action
	kill func() // ends the sandbox
	on   func(interpreter.Event) error
	told *told
	// How long may still be waited for the agent, where there is a wall limit: until the cell's
	// turn comes, and then.
	turn, wait time.Duration
}

// run has the agent run the cell, and hears its events until the end.
func (c *cell) run(ctx context.Context, in string) (*sandbox.Result, error) {
	call := c.action.run.Call
	q := interpreter.Cell{
		Context: in, Language: call.Source.Language, Code: string(call.Source.Code), Env: map[string]string{}, Dir: call.Cwd,
		Timeout: c.Limits.Wall, MaxOutput: c.maxOutput(),
	}
	for name, v := range c.action.run.Plan.Env {
		if _, own := call.Env[name]; own {
			q.Env[name] = v // the policy's others were the sandbox's from the start
		}
	}
	ctx, cancel := context.WithCancel(ctx) // what is not read to its end is interrupted
	defer cancel()
	if call.Source.MakeContext {
		if _, err := c.agent.CreateContext(ctx, interpreter.ContextOptions{ID: in, Language: call.Source.Language}); err != nil {
			return c.lost(ctx, err)
		}
	}
	ex, err := c.agent.Execute(ctx, q)
	if err != nil {
		return c.lost(ctx, err)
	}
	defer ex.Close()
	return c.hear(ctx, ex)
}

// hear passes on what ex tells, until the end.
func (c *cell) hear(ctx context.Context, ex execution) (*sandbox.Result, error) {
	for {
		e, err := c.next(ex)
		if err != nil {
			return c.lost(ctx, err)
		}
		shown, err := c.told.event(e)
		if err != nil { // nothing inside is trusted with a limit
			_ = ex.Close()
			return &sandbox.Result{Status: sandbox.StatusResourceExceeded, Resource: sandbox.LimitOutput, Reason: err.Error()}, nil
		}
		if l := c.Limits; l.OutputKill && l.Output > 0 && c.told.seen > l.Output {
			_ = ex.Close()
			return &sandbox.Result{Status: sandbox.StatusResourceExceeded, Resource: sandbox.LimitOutput, Reason: session.Sentence(sandbox.LimitOutput, l)}, nil
		}
		if shown == nil {
			continue
		}
		if err := c.on(*shown); err != nil {
			_ = ex.Close()
			return &sandbox.Result{Status: sandbox.StatusError, Reason: "it was interrupted: its caller took no more of it"}, err
		}
		if shown.Type == interpreter.End {
			return c.result(shown.End), nil
		}
	}
}

// next waits for the agent, and counts the time that it takes. What its caller takes to read is
// not the agent's.
func (c *cell) next(ex execution) (interpreter.Event, error) {
	if c.Limits.Wall <= 0 {
		return ex.Next()
	}
	left, begun := &c.turn, c.told.begun
	if begun {
		left = &c.wait
	}
	late := time.AfterFunc(*left, func() {
		if begun {
			c.kill()
		}
		_ = ex.Close()
	})
	began := time.Now()
	e, err := ex.Next()
	if !late.Stop() {
		return e, session.TimedOut(c.Limits)
	}
	*left -= time.Since(began)
	return e, err
}

// lost is what came of a cell of which nothing more is heard.
func (c *cell) lost(ctx context.Context, err error) (*sandbox.Result, error) {
	if e := (*session.Ending)(nil); errors.As(err, &e) {
		return &sandbox.Result{Status: e.Status, Resource: e.Resource, Rule: e.Rule, Reason: e.Reason}, nil
	}
	if ctx.Err() != nil {
		return &sandbox.Result{Status: sandbox.StatusError, Reason: "it was interrupted: its caller went away"}, nil
	}
	if errors.Is(err, sandbox.ErrUnavailable) || errors.Is(err, io.EOF) {
		return c.ended(ctx, guest.Exit{}, err)
	}
	return nil, err
}

// result is a cell's end as records have it.
func (c *cell) result(e *interpreter.Ending) *sandbox.Result {
	res := &sandbox.Result{Status: sandbox.StatusError, Reason: e.Reason}
	if e.Cut > 0 {
		res.LimitsHit = []sandbox.LimitName{sandbox.LimitOutput}
	}
	switch e.Status {
	case interpreter.Done:
		res.Status, res.Reason = sandbox.StatusSuccess, ""
	case interpreter.TimedOut:
		res.Status, res.Resource = sandbox.StatusTimeout, sandbox.LimitWall
	case interpreter.Interrupted:
		res.Reason = cmp.Or(e.Reason, "it was interrupted")
	case interpreter.Lost:
		res.Reason = cmp.Or(e.Reason, "its kernel ended, and its state with it")
	}
	return res
}
