// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

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
	t := &run{use: &use}
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
	var made *session.Call
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

// TakeRates is [Session.TakeRates].
func (s *Tools) TakeRates(ctx context.Context, account string, rates []policy.PlanRate) (full int, wait time.Duration, err error) {
	return s.session.TakeRates(ctx, account, rates)
}

// Do is [Session.Do].
func (s *Tools) Do(ctx context.Context, call *session.Call, io session.IO) (*sandbox.Result, error) {
	return s.session.Do(ctx, call, io)
}
