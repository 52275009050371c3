// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
)

// CreateContext makes a context. One of caisson's own kernels starts with the first cell, a
// Jupyter kernel before this returns. It runs as the client's user, under its limits, until
// the context is removed or the sandbox ends. A
// language that the sandbox has no kernel for is ErrInvalid with a hint what it needs; so
// is an ID that exists.
func (c *Client) CreateContext(ctx context.Context, o interpreter.ContextOptions) (interpreter.Context, error) {
	const op = "create context"
	o.Language = interpreter.Language(o.Language)
	if err := o.Check(); err != nil {
		return interpreter.Context{}, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: err.Error()}
	}
	var a interpreter.Context
	if err := c.call(ctx, op, wire.PathContext, wire.ContextRequest{ContextOptions: o, Limits: c.options.limits()}, &a); err != nil {
		return interpreter.Context{}, withKernelHint(err, o.Language)
	}
	if err := checkContext(&a); err != nil {
		return interpreter.Context{}, c.lost(op, err)
	}
	return a, nil
}

// Contexts lists the contexts of the client's user, the oldest first.
func (c *Client) Contexts(ctx context.Context) ([]interpreter.Context, error) {
	const op = "list contexts"
	var a wire.ContextList
	if err := c.call(ctx, op, wire.PathContextList, struct{}{}, &a); err != nil {
		return nil, err
	}
	for i := range a.Contexts {
		if err := checkContext(&a.Contexts[i]); err != nil {
			return nil, c.lost(op, err)
		}
	}
	return a.Contexts, nil
}

// RestartContext ends a context's kernel, and a cell that it runs, and starts a fresh one
// under the same ID. One that there is not is ErrNotFound.
func (c *Client) RestartContext(ctx context.Context, id string) error {
	return c.atContext(ctx, "restart context", wire.PathContextRestart, id)
}

// InterruptContext interrupts the cell that a context runs, which does not have to be
// there. The cells that wait go on.
func (c *Client) InterruptContext(ctx context.Context, id string) error {
	return c.atContext(ctx, "interrupt context", wire.PathContextInterrupt, id)
}

// RemoveContext ends a context and everything that it runs.
func (c *Client) RemoveContext(ctx context.Context, id string) error {
	return c.atContext(ctx, "remove context", wire.PathContextRemove, id)
}

// atContext does not wait for others to end: cells may be what it ends.
func (c *Client) atContext(ctx context.Context, op, path, id string) error {
	op += " " + printable(id)
	if interpreter.CheckID(id) != nil {
		return sandbox.Errorf(sandbox.ErrNotFound, op, "there is no such context")
	}
	return c.urgent(ctx, op, path, wire.ContextRef{ID: id}, &struct{}{})
}

// checkContext holds an answer to its bounds.
func checkContext(c *interpreter.Context) error {
	if err := interpreter.CheckID(c.ID); err != nil {
		return err
	}
	o := interpreter.ContextOptions{Language: c.Language, Dir: c.Dir}
	if err := o.Check(); err != nil || c.Language == "" || c.Executions < 0 {
		return fmt.Errorf("the context %s is described wrongly", printable(c.ID))
	}
	return nil
}

// kernelHints are what a root needs for a language.
var kernelHints = map[string]string{
	interpreter.Python:     "its root needs python3 in its PATH; use a template that has it",
	interpreter.JavaScript: "its root needs node in its PATH; use a template that has it",
	interpreter.TypeScript: "its root needs node 22.13 or later, or node and the esbuild package; use a template that has them",
	interpreter.Bash:       "its root needs bash in its PATH; use a template that has it",
}

// withKernelHint says what a root needs whose agent has no kernel for a language.
func withKernelHint(err error, language string) error {
	var r *sandbox.AgentError
	if !errors.As(err, &r) || r.Code != "unimplemented" {
		return err
	}
	hinted := *r.Err
	if hinted.Hint = kernelHints[language]; hinted.Hint == "" {
		hinted.Hint = "install a Jupyter kernel of that name in the template; python, javascript, typescript and bash need none"
	}
	r.Err = &hinted
	return err
}
