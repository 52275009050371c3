// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Foresee is what would become of a call, as far as that is decided before it runs:
// the policy's verdict, its rules about code included. The texts that the call would
// run are read as they are for the call itself, in sandboxes that are recorded. Of the
// call nothing is run, counted or recorded. What comes on its standard input, and what
// an image runs by itself, is not known.
func (s *Session) Foresee(ctx context.Context, w policy.Wish) (_ policy.Verdict, err error) {
	w, err = Carried(s.o.Policy, w)
	if err != nil {
		return policy.Verdict{}, err
	}
	call, err := Judged(w)
	if err != nil {
		return policy.Verdict{}, err
	}
	v := s.o.Policy.Decide(call)
	if !NeedsReading(&v) || call.Kind == policy.CallTool {
		return v, nil
	}
	r := &Invocation{Session: s, Call: &Call{Call: *call}, ID: NewID(), Plan: v.Plan}
	defer func() { err = errors.Join(err, r.Undo.Run(ctx)) }()
	if call.Kind == policy.RunCode {
		r.Call.Source = &Source{Name: w.File, Language: call.Language, Code: []byte(w.Source)}
		if err := r.loadSource(); err != nil {
			return v, err
		}
	}
	if v.Plan.Image != nil && r.Program == nil {
		return v, nil
	}
	err = r.ReadCode(ctx, call.Argv, r)
	var e *sandbox.Error
	if errors.Is(err, sandbox.ErrDenied) && errors.As(err, &e) {
		return policy.Verdict{Decision: policy.Deny, Rule: e.Rule, Reason: e.Problem, Hint: e.Hint}, nil
	}
	return v, err
}

// Carried is what the call of a tool has made: the program or the request that it
// starts, which is decided with the tool. Another call is itself, and so is that of a
// tool that starts nothing, or that the policy refuses.
//
// Errors: ErrInvalid for arguments that have no place in a declared command or request.
func Carried(p *policy.Policy, w policy.Wish) (policy.Wish, error) {
	if w.Call.Kind != policy.CallTool || p.DecideTool(&w.Call).Decision == policy.Deny {
		return w, nil
	}
	known, ok := p.Tools().Lookup(w.Call.Tool.Name)
	if !ok { // another carries it out, and the policy says so
		return w, nil
	}
	use := *w.Call.Tool
	t := &toolRun{use: &use}
	t.args, _ = use.Args.(map[string]any) // the schema wants one
	c := &w.Call
	c.Tool = t.use
	switch {
	case known.Command != nil:
		argv, err := known.Command.Argv(t.args)
		c.Kind, c.Argv = policy.RunCommand, argv
		return w, err
	case known.HTTP != nil:
		_, err := known.HTTP.Request(t.args)
		c.Kind, c.Network, c.Cwd = policy.CallHTTP, []string{known.HTTP.Endpoint()}, "/"
		return w, err
	}
	use.Sandbox = t.args.Text("sandbox_id")
	var made *Call
	switch known.Name {
	case "run_code":
		made = t.code()
		c.Kind, c.Language, w.Source = policy.RunCode, made.Source.Language, string(made.Source.Code)
	case "run_command":
		made = t.command()
		c.Kind = policy.RunCommand
	default:
		return w, nil
	}
	t.around(made)
	c.Argv, c.Env, c.Cwd = made.Argv, made.Env, made.Cwd
	if made.Limits.Wall > 0 {
		c.Limits = made.Limits
	}
	return w, nil
}

// NeedsReading says that a verdict leaves a part to rules about code.
func NeedsReading(v *policy.Verdict) bool { return v.Decision != policy.Deny && v.Plan.Code != nil }
