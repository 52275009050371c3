// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"path"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// The contexts of a sandbox live inside it: they go on over a pause and into a fork, and the
// host knows of them what its agent says. Making one of ours starts nothing: only cells
// are calls in the record, and contexts that start what their caller chose.

// maxContexts is how many contexts a sandbox has at most, as far as the host is concerned.
const maxContexts = 64

// CreateContext makes a context. One with variables, and one of a kernel that is not caisson's
// own, is a call: decided by the key's policy as code of its language without a line, and
// recorded. call names the frontend, and whose rights the context has.
//
// Errors: ErrExhausted where there are 64; ErrUnsupported for a language that has no kernel in
// the sandbox; ErrInvalid for an ID that is taken.
func (h *Handle) CreateContext(ctx context.Context, call *session.Call, o interpreter.ContextOptions) (interpreter.Context, error) {
	o.Language = interpreter.Language(o.Language)
	if err := checkOptions(&o); err != nil {
		return interpreter.Context{}, err
	}
	all, err := h.Contexts(ctx, call.User)
	if err == nil && len(all) >= maxContexts {
		err = &sandbox.Error{Op: "create context", Kind: sandbox.ErrExhausted, Problem: "the sandbox has 64 contexts, and may have no more", Hint: "remove one that is not needed"}
	}
	if err != nil {
		return interpreter.Context{}, err
	}
	var made interpreter.Context
	if interpreter.Own(o.Language) && len(o.Env) == 0 {
		err = h.withAgent(ctx, call.User, func(c *guest.Client) error {
			made, err = c.CreateContext(ctx, o)
			return err
		})
	} else {
		made, err = h.decideContext(ctx, call, o)
	}
	if err != nil {
		return interpreter.Context{}, err
	}
	shown, ok := contextOf(made)
	if !ok {
		return shown, &sandbox.Error{Op: "create context", Kind: sandbox.ErrUnavailable, Problem: "what the sandbox says of it cannot be read", Hint: "make another sandbox"}
	}
	return shown, nil
}

// checkOptions refuses what cannot be meant.
func checkOptions(o *interpreter.ContextOptions) error {
	problem := ""
	switch {
	case !token().MatchString(o.Language):
		problem = "its language is no name of a kernel"
	case o.ID != "" && interpreter.CheckID(o.ID) != nil:
		problem = "its ID is not 1 to 64 of letters, digits, and . _ -, with no dot first"
	case o.Dir != "" && !absolute(o.Dir):
		problem = "its directory is no absolute path without . and .."
	default:
		return nil
	}
	return &sandbox.Error{Op: "create context", Kind: sandbox.ErrInvalid, Problem: problem}
}

// decideContext makes a context as a call.
func (h *Handle) decideContext(ctx context.Context, call *session.Call, o interpreter.ContextOptions) (made interpreter.Context, err error) {
	call.Source, call.Env, call.Cwd = &session.Source{Language: o.Language, Cell: true}, o.Env, o.Dir
	a, err := newAction(ctx, h, call, session.IO{})
	if err != nil {
		return made, err
	}
	env := map[string]string{}
	for name := range o.Env {
		if v, ok := a.run.Plan.Env[name]; ok {
			env[name] = v
		}
	}
	o.Env = env
	made, err = a.agent.CreateContext(ctx, o)
	var res *sandbox.Result
	if err == nil {
		res = &sandbox.Result{Status: sandbox.StatusSuccess}
	}
	return made, errors.Join(err, a.end(ctx, res, err, nil, nil))
}

// Contexts lists the contexts of a user of the sandbox; the empty name is its own user.
func (h *Handle) Contexts(ctx context.Context, user string) (out []interpreter.Context, err error) {
	err = h.withAgent(ctx, user, func(c *guest.Client) error {
		all, err := c.Contexts(ctx)
		for _, c := range all {
			if shown, ok := contextOf(c); ok && len(out) < maxContexts {
				out = append(out, shown)
			}
		}
		return err
	})
	return out, err
}

// RestartContext gives a context a fresh kernel, which knows nothing of what was.
func (h *Handle) RestartContext(ctx context.Context, user, id string) error {
	return h.ofContext(ctx, user, id, (*guest.Client).RestartContext)
}

// InterruptContext interrupts the cell that a context runs, if it does.
func (h *Handle) InterruptContext(ctx context.Context, user, id string) error {
	return h.ofContext(ctx, user, id, (*guest.Client).InterruptContext)
}

// RemoveContext ends a context, with the cell that it runs.
func (h *Handle) RemoveContext(ctx context.Context, user, id string) error {
	return h.ofContext(ctx, user, id, (*guest.Client).RemoveContext)
}

func (h *Handle) ofContext(ctx context.Context, user, id string, do func(*guest.Client, context.Context, string) error) error {
	if interpreter.CheckID(id) != nil {
		return noContext(id)
	}
	return h.withAgent(ctx, user, func(c *guest.Client) error { return do(c, ctx, id) })
}

// withAgent enters the sandbox for a call of its agent, with the rights of a user.
func (h *Handle) withAgent(ctx context.Context, user string, do func(*guest.Client) error) error {
	in, leave, err := h.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	as, err := in.as(user)
	if err != nil {
		return err
	}
	return do(as.agent)
}

func noContext(id string) error {
	return &sandbox.Error{Op: "context " + sandbox.Quoted(sandbox.Clip(id, 64)), Kind: sandbox.ErrNotFound, Problem: "the sandbox has none of that ID", Hint: "list its contexts, or make one"}
}

// token is the name of a kernel.
var token = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`) })

func absolute(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) <= maxPath && utf8.ValidString(p) && !strings.Contains(p, "\x00")
}

// contextOf is what an agent says of a context, if it can be one.
func contextOf(c interpreter.Context) (interpreter.Context, bool) {
	if !absolute(c.Dir) {
		c.Dir = ""
	}
	c.Executions = max(0, c.Executions)
	return c, interpreter.CheckID(c.ID) == nil && token().MatchString(c.Language)
}
