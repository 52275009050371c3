// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/operation"
)

// admitted is a call that was allowed, with the environment that was made for it.
type admitted struct {
	driver  sandbox.Driver
	posture sandbox.Posture
	env     *environment.Environment
	op      *operation.Operation // its intent is on disk
}

// admit takes a call as far as its intent. Where that is nil the call went no
// further; what came of it is recorded, and is the answer.
func (r *run) admit(ctx context.Context) (*admitted, *sandbox.Result, error) {
	stop := func(res *sandbox.Result, err error) (*admitted, *sandbox.Result, error) { return nil, res, err }
	verdict, err := r.verdict()
	if err != nil {
		return stop(r.fail(ctx, err))
	}
	if verdict.Decision == policy.Deny {
		return stop(r.refuse(ctx, verdict.Err()))
	}
	r.plan, r.question = verdict.Plan, verdict.Question
	if err := r.s.takeRates(ctx, cmp.Or(r.call.account, r.call.Actor), &verdict, r.call.Actor, r.call.Approval); err != nil {
		return stop(r.fail(ctx, err))
	}
	if err := r.readInput(ctx); err != nil {
		return stop(r.fail(ctx, err))
	}
	r.intent.Isolation, r.intent.Network, r.intent.Limits, r.intent.Overrides = r.plan.Isolation, r.plan.Network.String(), r.plan.Limits, r.plan.Overridden
	r.intent.Mounts = r.mountsForRecord()
	if n := r.plan.Network; n != nil {
		for _, s := range n.Secrets {
			r.intent.Secrets = append(r.intent.Secrets, s.Name)
		}
	}
	if p := r.plan.Image; p != nil {
		r.intent.Image = p.Ref // with its digest, once it is known
	}
	if r.call.AllowDangerousMounts {
		r.intent.Overrides = append(r.intent.Overrides, "dangerous mounts allowed")
	}
	r.intent.Env = append(r.intent.Env, slices.Sorted(maps.Keys(r.plan.Env))...)
	a := &admitted{}
	if a.driver, a.posture, err = r.level(ctx); err != nil {
		return stop(r.fail(ctx, err))
	}
	r.made = r.environmentDigest()
	if r.plan.Image == nil || r.prog != nil { // what an image starts is known when it is there
		if err := r.readCode(ctx, r.call.Argv, r); err != nil {
			return stop(r.fail(ctx, err))
		}
	}
	if err := r.build(ctx, a); err != nil {
		if p := (*Pending)(nil); errors.As(err, &p) {
			return nil, nil, p // that it waits is recorded
		}
		return stop(r.fail(ctx, err))
	}
	if a.env.Spec.Executables != nil {
		a.posture.Commands = commandsEnforced
	}
	if a.op, err = operation.Begin(ctx, r.s.o.Journal, r.intent); err != nil {
		return nil, nil, err // nothing runs unrecorded, and there is nowhere to record that
	}
	r.openNetwork(a.op)
	return a, nil, nil
}

// build makes the environment of an allowed call, and has it approved where the policy
// asks.
func (r *run) build(ctx context.Context, a *admitted) (err error) {
	if m := r.takeReady(); m != nil {
		a.env, err = r.adopt(m)
		return err
	}
	if m := r.spare(); m != nil {
		a.env = r.settle(m)
		return nil
	}
	mark, question, intent := r.undo.Mark(), r.question, r.intent
	if a.env, err = r.prepare(ctx); err != nil || r.question == nil {
		return err
	}
	// Nothing is held while people think: the environment is made anew when they have
	// answered, and is compared with the one that they were asked about.
	approved, err := r.asking().settle(ctx, func(ctx context.Context) (*approval.Subject, error) {
		if a.env == nil {
			r.question, r.intent = question, intent
			if a.env, err = r.prepare(ctx); err != nil {
				return nil, err
			}
		}
		return r.subject(ctx, a.env)
	}, func(ctx context.Context) error {
		a.env = nil
		return r.forget(ctx, mark)
	})
	r.intent.Approval = approved
	return err
}

// forget undoes an environment that was made, back to a mark of r.undo.
func (r *run) forget(ctx context.Context, mark int) error {
	err := r.undo.Back(ctx, mark)
	r.env, r.net, r.hosts, r.without = nil, nil, nil, nil
	r.credentials = r.newCredentials()
	return err
}

// verdict decides the call, once. A caller that has to know the verdict before admit, to
// reserve what a sandbox takes, gets here the one that admit goes by.
func (r *run) verdict() (policy.Verdict, error) {
	if r.decided == nil {
		v, err := r.decide()
		if err != nil {
			return v, err
		}
		r.decided = &v
	}
	return *r.decided, nil
}

// decide reads what is to run and asks the policy.
func (r *run) decide() (policy.Verdict, error) {
	c := r.call
	c.ID = r.id
	c.Kind = policy.RunCommand
	if c.fetches {
		c.Kind = policy.CallHTTP
	}
	if r.kind != "" {
		c.Kind = r.kind
	}
	c.Terminal = c.TTY != nil
	c.Stdin = r.io.Stdin != nil
	r.intent = audit.Intent{
		Actor: c.Actor, Account: c.account, Kind: string(c.Kind), Sandbox: cmp.Or(r.name, r.id), Argv: c.Argv, Dir: c.Cwd, Env: slices.Sorted(maps.Keys(c.Env)),
		Policy: r.s.o.PolicyName, PolicySHA: r.s.o.Policy.Digest(), Isolation: c.Isolation,
	}
	toolIntent(&r.intent, r.s.o.Policy, c.Tool)
	if c.argv != nil {
		r.intent.Argv = c.argv
	}
	if c.File != "" {
		r.intent.Argv = append([]string{c.File}, c.Argv...)
	}
	if c.File != "" && !c.Operator { // before it is opened
		return policy.Verdict{}, &sandbox.Error{Op: "policy", Kind: sandbox.ErrDenied, Problem: "only the operator names paths of this host", Hint: "send the source itself", Rule: "built-in: host paths"}
	}
	if err := r.loadSource(); err != nil {
		return policy.Verdict{}, err
	}
	if c.Source != nil {
		r.intent.Kind, r.intent.Code = string(c.Kind), c.Source.Code
	}
	v := r.s.o.Policy.Decide(&c.Call)
	if v.Plan.Argv != nil {
		c.Argv, c.argv, r.intent.Argv = v.Plan.Argv, nil, v.Plan.Argv
	}
	return v, nil
}

// mountsForRecord names the host paths that the call is given.
func (r *run) mountsForRecord() []audit.Mount {
	var out []audit.Mount
	add := func(source, target, access string) {
		out = append(out, audit.Mount{Name: source, Target: target, Access: access})
	}
	mount := func(m *policy.PlanMount, target string) {
		add(m.Source, target, m.Access.String())
		if m.GitWrite {
			out[len(out)-1].Git = string(policy.GitWrite)
		}
	}
	if m := r.plan.Workspace; m != nil {
		mount(m, environment.WorkspaceTarget(m))
	}
	for _, m := range r.plan.Mounts {
		mount(&m, m.Target)
	}
	for _, p := range r.plan.Toolchains {
		add(p.Source, p.Source, sandbox.ReadOnly.String())
	}
	if p := r.plan.Rootfs; p != nil {
		add(p.Source, "/", sandbox.ReadOnly.String())
	}
	return out
}

// refuse records a refusal, by policy or by a rule that is built in. It is a
// Result: the caller's question was answered. What cannot be meant is recorded, too,
// and is an error.
func (r *run) refuse(ctx context.Context, why error) (*sandbox.Result, error) {
	res := &sandbox.Result{Status: sandbox.StatusDenied, Reason: why.Error(), Findings: r.findings}
	var e *sandbox.Error
	if errors.As(why, &e) {
		res.Rule, res.Hint = e.Rule, e.Hint
	}
	out := audit.Outcome{Status: audit.Refused, Result: res, Error: why.Error()}
	if err := operation.Refuse(ctx, r.s.o.Journal, r.intent, out); err != nil {
		return nil, err
	}
	if errors.Is(why, sandbox.ErrInvalid) {
		return nil, why
	}
	return res, nil
}

// offerRoot takes the root that a template offers off a call whose policy has none: one
// that goes on with it already insists. The call without root is another call, and is
// decided by itself.
func (r *run) offerRoot() {
	if v, _ := r.verdict(); r.call.Sudo && v.Decision != policy.Allow {
		r.call.Sudo, r.decided = false, nil
	}
}
