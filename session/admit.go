// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/question"
)

// Admission is a call that was allowed, with the environment that was made for it.
type Admission struct {
	Driver    sandbox.Driver
	Posture   sandbox.Posture
	Env       *environment.Environment
	Operation *audit.Operation // its intent is on disk
}

// Admit takes a call as far as its intent. Where that is nil the call went no
// further; what came of it is recorded, and is the answer.
func (r *Invocation) Admit(ctx context.Context) (*Admission, *sandbox.Result, error) {
	// What a rule refused (a path that no sandbox may see) is a denial, and so a result.
	stop := func(why error) (*Admission, *sandbox.Result, error) {
		if byRule(why) {
			res, err := r.refuse(ctx, r.Session.o.Journal, why)
			return nil, res, err
		}
		return nil, nil, r.Failed(ctx, r.Session.o.Journal, why)
	}
	verdict, err := r.Verdict()
	if err != nil {
		return stop(err)
	}
	if verdict.Decision == policy.Deny {
		res, err := r.refuse(ctx, r.Session.o.Journal, verdict.Err())
		return nil, res, err
	}
	r.Plan, r.Question = verdict.Plan, verdict.Question
	if err := r.findBeginning(); err != nil {
		return stop(err)
	}
	if err := r.Session.ChargeRates(ctx, cmp.Or(r.Call.Account, r.Call.Actor), &verdict, r.Call.Actor, r.Call.Approval); err != nil {
		return stop(err)
	}
	if err := r.ReadInput(ctx); err != nil {
		return stop(err)
	}
	r.Intent.Isolation, r.Intent.Network, r.Intent.Limits, r.Intent.Overrides = r.Plan.Isolation, r.Plan.Network.String(), r.Plan.Limits, r.Plan.Overridden
	r.Intent.Mounts = mountsForRecord(&r.Plan)
	if n := r.Plan.Network; n != nil {
		for _, s := range n.Secrets {
			r.Intent.Secrets = append(r.Intent.Secrets, s.Name)
		}
	}
	if p := r.Plan.Image; p != nil {
		r.Intent.Image = p.Ref // with its digest, once it is known
	}
	if r.Call.AllowDangerousMounts {
		r.Intent.Overrides = append(r.Intent.Overrides, "dangerous mounts allowed")
	}
	r.Intent.Env = append(r.Intent.Env, slices.Sorted(maps.Keys(r.Plan.Env))...)
	a := &Admission{}
	if a.Driver, a.Posture, err = r.Level(ctx, r.Session, r.Call); err != nil {
		return stop(err)
	}
	if r.Session.o.Outlive || r.Life != nil { // else nothing asks for it
		r.Digest = EnvironmentDigest(r.Call, &r.Plan, r.Caps)
	}
	if r.Plan.Image == nil || r.Program != nil { // what an image starts is known when it is there
		if err := r.ReadCode(ctx, r.Call.Argv, r); err != nil {
			return stop(err)
		}
	}
	if err := r.build(ctx, a); err != nil {
		if p := (*question.Pending)(nil); errors.As(err, &p) {
			return nil, nil, p // that it waits is recorded
		}
		return stop(err)
	}
	if err := r.begins.fit(a.Env.Spec); err != nil {
		return stop(err)
	}
	a.tellToolchains(&r.Plan, &r.Intent)
	if a.Env.Spec.Executables != nil {
		a.Posture.Commands = commandsEnforced
	}
	if a.Operation, err = audit.Begin(ctx, r.Session.o.Journal, r.Intent); err != nil {
		return nil, nil, err // nothing runs unrecorded, and there is nowhere to record that
	}
	r.Network.Open(Connections(&r.Intent, a.Operation))
	return a, nil, nil
}

// tellToolchains says in posture and record which toolchains there are.
func (a *Admission) tellToolchains(p *policy.Plan, in *audit.Intent) {
	for _, t := range p.Toolchains {
		a.Posture.Toolchains = append(a.Posture.Toolchains, t.Source)
	}
	t := a.Env.PathTools
	if t == nil {
		return
	}
	for _, name := range t.Names() {
		a.Posture.Toolchains = append(a.Posture.Toolchains, name)
		in.Mounts = append(in.Mounts, audit.Mount{Name: name, Target: name, Access: sandbox.ReadOnly.String()})
	}
}

// build makes the environment of an allowed call, and has it approved where the policy
// asks.
func (r *Invocation) build(ctx context.Context, a *Admission) (err error) {
	if r.Question == nil { // people are asked about an environment that is made for them
		if r.Kind == "" && r.Name == "" { // it does not go on between calls
			if m := r.takeReady(ctx); m != nil {
				a.Env, err = m.adopt(r)
				return err
			}
		}
		if r.Spares != nil {
			if m := r.Spares(r); m != nil {
				a.Env = m.settle(r)
				return nil
			}
		}
	}
	mark, asks, intent := r.Undo.Mark(), r.Question, r.Intent
	if a.Env, err = r.Prepare(ctx); err != nil || r.Question == nil {
		return err
	}
	// Nothing is held while people think: the environment is made anew when they have
	// answered, and is compared with the one that they were asked about.
	approved, err := r.Asking().Settle(ctx, func(ctx context.Context) (*approval.Subject, error) {
		if a.Env == nil {
			r.Question, r.Intent = asks, intent
			if a.Env, err = r.Prepare(ctx); err != nil {
				return nil, err
			}
		}
		return r.Asking().Subject(ctx, a.Env, r.Intent.Image)
	}, func(ctx context.Context) error {
		a.Env = nil
		err := r.Undo.Back(ctx, mark)
		r.Made, r.Network, r.Hosts, r.Denied = nil, nil, nil, nil
		r.Credentials = r.NewCredentials()
		return err
	})
	r.Intent.Approval = approved
	return err
}

// Verdict decides the call, once. A caller that has to know the verdict before admit, to
// reserve what a sandbox takes, gets here the one that admit goes by.
func (r *Invocation) Verdict() (policy.Verdict, error) {
	if r.decided == nil {
		v, err := r.Decide()
		if err != nil {
			return v, err
		}
		r.decided = &v
	}
	return *r.decided, nil
}

// Decide reads what is to run and asks the policy.
func (r *Invocation) Decide() (policy.Verdict, error) {
	c := r.Call
	c.ID = r.ID
	c.Kind = policy.RunCommand
	if c.Fetches {
		c.Kind = policy.CallHTTP
	}
	if r.Kind != "" {
		c.Kind = r.Kind
	}
	c.Terminal = c.TTY != nil
	c.Stdin = r.IO.Stdin != nil
	r.Intent = audit.Intent{
		Actor: c.Actor, Account: c.Account, Kind: string(c.Kind), Sandbox: cmp.Or(r.Name, r.ID), Argv: c.Argv, Dir: c.Cwd, Env: slices.Sorted(maps.Keys(c.Env)),
		Policy: r.Session.o.PolicyName, PolicySHA: r.Session.o.Policy.Digest(), Isolation: c.Isolation,
	}
	ToolIntent(&r.Intent, r.Session.o.Policy, c.Tool)
	if c.RecordArgv != nil {
		r.Intent.Argv = c.RecordArgv
	}
	if c.File != "" {
		r.Intent.Argv = append([]string{c.File}, c.Argv...)
	}
	if c.File != "" && !c.Operator { // before it is opened
		return policy.Verdict{}, &sandbox.Error{Op: "policy", Kind: sandbox.ErrDenied, Problem: "only the operator names paths of this host", Hint: "send the source itself", Rule: "built-in: host paths"}
	}
	if err := r.source.load(c, r.Session.host(c, &r.Undo)); err != nil {
		return policy.Verdict{}, err
	}
	if c.Source != nil {
		r.Intent.Kind, r.Intent.Code = string(c.Kind), c.Source.Code
	}
	v := r.Session.o.Policy.Decide(&c.Call)
	if v.Plan.Argv != nil {
		c.Argv, c.RecordArgv, r.Intent.Argv = v.Plan.Argv, nil, v.Plan.Argv
	}
	return v, nil
}

// mountsForRecord names the host paths that the call is given.
func mountsForRecord(p *policy.Plan) []audit.Mount {
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
	if m := p.Workspace; m != nil {
		mount(m, environment.WorkspaceTarget(m))
	}
	for _, m := range p.Mounts {
		mount(&m, m.Target)
	}
	for _, v := range p.Volumes {
		add("volume "+v.Name, v.Target, sandbox.ReadWrite.String())
	}
	for _, t := range p.Toolchains {
		add(t.Source, t.Source, sandbox.ReadOnly.String())
	}
	if root := p.Rootfs; root != nil {
		add(root.Source, "/", sandbox.ReadOnly.String())
	}
	return out
}

// OfferRoot takes the root that a template offers off a call whose policy has none: one
// that goes on with it already insists. The call without root is another call, and is
// decided by itself.
func (r *Invocation) OfferRoot() {
	if v, _ := r.Verdict(); r.Call.Sudo && v.Decision != policy.Allow {
		r.Call.Sudo, r.decided = false, nil
	}
}

// ToolIntent says in a record which tool was called, and with what but for what no
// record has.
func ToolIntent(in *audit.Intent, p *policy.Policy, use *policy.ToolCall) {
	if use == nil {
		return
	}
	in.Tool = use.Name
	if use.Server != "" {
		in.Tool = use.Server + "/" + use.Name
	}
	if use.Args != nil {
		in.Params, _ = json.Marshal(p.ToolRecord(use)) // it was JSON
	}
}
