// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/registry"
)

// action is a call in a sandbox that was allowed and whose intent is recorded.
// Who has one carries it out with Agent, and ends it.
type action struct {
	Inside
	// Limits are those of the policy for one program. Exec holds Wall and Output
	// of each; all others are the sandbox's, which has them already, and whose
	// time Wall bounds, too.
	Limits sandbox.Limits

	l    *managed
	in   *running
	run  *session.Invocation
	op   *audit.Operation
	held sandbox.Posture // of the sandbox
	once sync.Once
	err  error
}

// newAction decides call, which is to run in the sandbox of h, and records the intent; io is
// what the program gets of it.
func newAction(ctx context.Context, h *Handle, call *session.Call, io session.IO) (*action, error) {
	g, err := h.boxes.grants.of(h.key)
	if err != nil {
		return nil, err
	}
	l, in, shown, err := h.enter(ctx)
	if err != nil {
		return nil, err
	}
	a := &action{Inside: *shown, l: l, in: in}
	if err := a.begin(ctx, h.key, g, call, io); err != nil {
		l.unuse()
		return nil, err
	}
	a.held = l.record().Posture
	return a, nil
}

// begin decides what the action is to do, and records the intent.
func (a *action) begin(ctx context.Context, k *Key, g *grant, call *session.Call, io session.IO) error {
	if err := refuseEnvironment(call); err != nil {
		return err
	}
	in := a.in
	call.Actor, call.Account, call.Operator, call.Sudo = k.Actor(), k.ID, k.Owner != "", in.env.Spec.Sudo
	as, unknown := a.Account(call.User)
	call.Root = call.Root || call.User != "" && unknown == nil && as.UID == 0
	r := &session.Invocation{Session: g.session, Call: call, IO: io, ID: in.run.ID, Name: a.l.id}
	v, err := r.Decide()
	if as != a.User {
		r.Intent.User = call.User
	}
	if err = cmp.Or(unknown, err); err != nil {
		return r.Failed(ctx, a.l.b.o.Journal, err)
	}
	r.Intent.Isolation = in.run.Plan.Isolation
	if v.Decision == policy.Deny {
		return r.Refused(ctx, a.l.b.o.Journal, v.Err())
	}
	r.Plan, r.Caps, r.Question = v.Plan, in.caps, v.Question
	if err := g.session.ChargeRates(ctx, call.Account, &v, call.Actor, call.Approval); err != nil {
		return r.Failed(ctx, a.l.b.o.Journal, err)
	}
	r.Intent.Env = append(r.Intent.Env, slices.Sorted(maps.Keys(r.Plan.Env))...)
	if c := call.Source; c != nil && c.Cell {
		r.Intent.Labels = map[string]string{"context": cmp.Or(c.Context, c.Language)}
	}
	if err := r.ReadCode(ctx, call.Argv, in.run); err != nil {
		return r.Failed(ctx, a.l.b.o.Journal, err)
	}
	a.Limits, a.run = r.Plan.Limits, r
	if err := a.become(call.User, as); err != nil {
		return r.Failed(ctx, a.l.b.o.Journal, err)
	}
	if call.Cwd != "" {
		a.Dir = call.Cwd
	}
	a.Env = overlay(a.Env, r.Plan.Env)
	if err := a.approve(ctx); err != nil {
		if p := (*question.Pending)(nil); errors.As(err, &p) {
			return p // that it waits is recorded
		}
		return r.Failed(ctx, a.l.b.o.Journal, err)
	}
	a.op, err = audit.Begin(ctx, a.l.b.o.Journal, r.Intent)
	return err
}

// become makes it a program of the account that its call names, or, where it names
// none, of the policy's. From here on that account is shown, recorded and used.
func (a *action) become(named string, as sandbox.User) error {
	r := a.run
	if own := a.User; named == "" && r.Plan.Root && own.UID != 0 {
		as = sandbox.RootUser()
	}
	in, err := a.Inside.become(as)
	if err != nil {
		return err
	}
	r.Plan.Root = as.UID == 0
	if as != a.User {
		r.Intent.User = as.Name
		a.Inside = *in
		a.Env = overlay(a.Env, map[string]string{"HOME": as.Home, "USER": as.Name, "LOGNAME": as.Name})
	}
	return nil
}

// reached is what the sandbox may reach now.
func (a *action) reached() string {
	if rec := a.l.record(); rec.State != registry.Ended && len(rec.Network) > 0 {
		return strings.Join(rec.Network, " ")
	}
	return "none"
}

// approve has the action approved where the policy asks. It covers which sandbox
// it is, and since when: one that was restored from a snapshot is another.
func (a *action) approve(ctx context.Context) error {
	r := a.run
	if r.Question == nil {
		return nil
	}
	if r.Call.WritesInput {
		return &sandbox.Error{Op: "policy", Kind: sandbox.ErrDenied, Rule: r.Question.Askings[0].Rule, Hint: "start it without, or hand the input over with the call",
			Problem: r.Question.Askings[0].What + ", and what is written to it later cannot be looked at beforehand"}
	}
	if err := r.ReadInput(ctx); err != nil {
		return err
	}
	asking := r.Asking()
	asking.Gone = a.Gone
	approved, err := asking.Settle(ctx, func(ctx context.Context) (*approval.Subject, error) {
		s, err := asking.About(ctx, r.Call.Argv, a.Dir, a.Env)
		if err != nil {
			return nil, err
		}
		s.User, s.Sandbox, s.Generation, s.Network = a.User.Name, r.Name, a.in.run.ID, a.reached()
		if c := r.Call.Source; c != nil && c.Cell {
			s.Options = append(s.Options, "in the "+cmp.Or(c.Context, "default")+" context of "+c.Language+", with what earlier cells have left there")
		}
		argv := r.Call.Argv
		if r.Program != nil {
			argv = append(slices.Clone(r.Call.Program), r.Call.Argv...)
		}
		s.Files, err = question.Contents(&r.Call.Call, argv, a.Dir, searchOf(a.Env), question.ContentsOf(ctx, a.agent))
		return s, err
	}, func(context.Context) error { return nil })
	r.Intent.Approval = approved
	return err
}

// searchOf is where programs are looked for.
func searchOf(env []string) []string {
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			return strings.Split(path, ":")
		}
	}
	return nil
}

// refuseEnvironment refuses what only a sandbox as a whole can have.
func refuseEnvironment(c *session.Call) error {
	if c.Workspace != nil || len(c.Mounts)+len(c.Toolchains)+len(c.Writable)+len(c.Deny)+len(c.Collect)+len(c.Network)+len(c.NetworkDeny) > 0 ||
		c.Rootfs != "" || c.Image != "" || c.Isolation != "" || c.File != "" || c.Entrypoint != nil {
		return &sandbox.Error{Op: "call", Kind: sandbox.ErrInvalid, Problem: "it asks for something that the sandbox as a whole has already",
			Hint: "make a sandbox that has it"}
	}
	return nil
}

// overlay sets variables in a sorted environment.
func overlay(env []string, set map[string]string) []string {
	if len(set) == 0 {
		return env
	}
	all := maps.Clone(set)
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if _, ok := set[name]; !ok {
			all[name] = value
		}
	}
	out := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, name+"="+all[name])
	}
	return out
}

// end records what came of it: a program that ran is a Result, however it ended;
// err is what could not be done. stdout and stderr are what was captured, or nil.
// Only the first end counts.
func (a *action) end(ctx context.Context, res *sandbox.Result, err error, stdout, stderr *audit.Capture) error {
	a.once.Do(func() {
		defer a.l.unuse()
		if res != nil && res.Findings == nil {
			res.Findings = a.run.Findings
		}
		if res != nil {
			res.Posture = a.held
		}
		o := audit.Outcome{Status: audit.Allowed, Result: res, Stdout: stdout, Stderr: stderr}
		if res == nil && err != nil {
			o.Status = audit.Failed
		}
		if err != nil {
			o.Error = err.Error()
		}
		a.l.log.add(time.Now(), a.run.Call, &o)
		a.err = a.op.End(ctx, o)
	})
	return a.err
}
