// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Cell is code to run in a context of a [Sandbox], which keeps its state: variables, imports,
// functions, and where a shell is.
type Cell struct {
	Code string
	// Language is "python" (the zero value), "javascript", "typescript", "bash", or the name
	// of a Jupyter kernel that the sandbox has.
	Language string
	// Context is the ID of one that CreateContext made; empty is the default context of the
	// language, which is made when it is first needed.
	Context string

	Dir string            // while it runs; where the context is when empty
	Env map[string]string // while it runs
	// Timeout interrupts it; the context keeps its state. 0 is as long as the policy lets it.
	Timeout time.Duration

	// On, where it is not nil, gets each event as it comes. An error of it interrupts the cell,
	// and is RunCell's.
	On func(interpreter.Event) error
}

// CellResult is what came of a Cell: what it wrote and showed, in an
// [interpreter.Execution], and what the policy's rules about code say of its text.
type CellResult struct {
	interpreter.Execution
	Findings []sandbox.Finding
}

// RunCell runs code in a context of the sandbox and waits for its end. A cell that ran is a
// CellResult, however it ended: Status is "ok", "error" (it raised), "timeout", "interrupted"
// or "lost" (its kernel ended, and the state with it), and Reason says why. Cells of one
// context run one after the other. When ctx ends the cell is interrupted, and the state stays.
//
// Errors: ErrDenied with the rule where the policy refuses it; ErrNotFound for a context that
// is not there; ErrInvalid or ErrUnsupported for a language that has no kernel in the sandbox,
// with a hint what it needs.
func (s *Sandbox) RunCell(ctx context.Context, c Cell) (*CellResult, error) {
	call := &session.Call{Frontend: frontend, Source: &session.Source{Language: c.Language, Code: []byte(c.Code)}}
	call.Cwd, call.Env = c.Dir, c.Env
	if c.Timeout != 0 {
		call.Limits = explicit(Limits{Wall: c.Timeout})
	}
	out := &CellResult{}
	res, err := s.handle.RunCell(ctx, call, c.Context, func(e interpreter.Event) error {
		out.Add(e)
		if c.On != nil {
			return c.On(e)
		}
		return nil
	})
	if err != nil {
		return nil, forGo("RunCell", err)
	}
	if out.Findings = res.Findings; out.Status == "" { // ended from outside
		out.Status, out.Reason = interpreter.Interrupted, res.Reason
	}
	return out, nil
}

// CreateContext makes a context beside the default ones. The zero value of o is Python in the
// home directory. A sandbox has 64 at most. They end with Kill, go on over Pause, and can be
// removed.
func (s *Sandbox) CreateContext(ctx context.Context, o interpreter.ContextOptions) (interpreter.Context, error) {
	c, err := s.handle.CreateContext(ctx, &session.Call{Frontend: frontend}, o)
	return c, forGo("CreateContext", err)
}

// Contexts lists the contexts of the sandbox, the oldest first.
func (s *Sandbox) Contexts(ctx context.Context) ([]interpreter.Context, error) {
	return s.handle.Contexts(ctx, "")
}

// RestartContext gives a context a fresh kernel, which knows nothing of what was.
func (s *Sandbox) RestartContext(ctx context.Context, id string) error {
	return s.handle.RestartContext(ctx, "", id)
}

// InterruptContext interrupts the cell that a context runs, if it does.
func (s *Sandbox) InterruptContext(ctx context.Context, id string) error {
	return s.handle.InterruptContext(ctx, "", id)
}

// RemoveContext ends a context, with the cell that it runs.
func (s *Sandbox) RemoveContext(ctx context.Context, id string) error {
	return s.handle.RemoveContext(ctx, "", id)
}
