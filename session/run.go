// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/egress/authority"
	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// run is one call on its way.
type run struct {
	s    *Session
	call *Call
	io   IO
	id   string
	kind policy.Kind // what the call is, where Source does not say; empty is RunCommand
	name string      // what records call the sandbox; empty is id

	ahead   bool     // there is no call yet: its sandbox is made for a pool
	ready   *made    // the sandbox that was made ahead; nil without
	oneshot bool     // its sandbox is for one program
	begun   *begun   // the sandbox that is made beside the record; nil without
	stock   *stock   // where living ones are that were; nil without
	stocked *stocked // the living one that was made ahead; nil without
	source  *os.File // ahead: the file that code is written to

	prog   *program         // nil: the call's own argv
	binary *hostpath.Source // the call's file, when it is a compiled program
	image  *image.Stored    // the container image that is the root; nil for any other root
	store  *image.Store     // where it is
	caps   sandbox.Capabilities
	plan   policy.Plan
	intent audit.Intent

	own      bool              // it runs a script of caisson's, not what a caller asks for
	findings []sandbox.Finding // what the texts of what would run say

	question *policy.Question // somebody has to say yes first; nil: nobody
	input    []byte           // with a question: all of standard input

	dir     RunDir         // what it has on the disk
	life    *registry.Life // of a sandbox that was taken over; nil for any other
	made    string         // digest of what its world is made of
	undo    cleanup
	left    error      // what could not be undone
	out     [2]*stream // stdout, stderr
	over    context.Context
	blind   func(error)     // ends it, where something depends on what could not be read; nil where nothing does
	net     *network        // nil without one
	reach   *registry.Reach // what the network was changed to; nil is the plan's
	hosts   []string        // what it lets through
	without []string        // what is taken away from that

	authority    *authority.Authority // whom the sandbox trusts for hosts whose TLS is ended; nil when none is
	trust        map[string]string    // variables that say so
	placeholders map[string]string    // by the names of secrets
	shown        map[string]string    // those that a sandbox that goes on has already
	kept         []kept               // names that must stay what they are
	dests        []*os.Root           // where plan.Collect goes
}

// admitted is a call that was allowed, with the world that was built for it.
type admitted struct {
	driver  sandbox.Driver
	posture sandbox.Posture
	world   *world
	ticket  *audit.Entry // its intent is on disk
}

// admit takes a call as far as its intent. Where that is nil the call went no
// further; what came of it is recorded, and is the answer.
func (r *run) admit(ctx context.Context) (*admitted, *sandbox.Result, error) {
	stop := func(res *sandbox.Result, err error) (*admitted, *sandbox.Result, error) { return nil, res, err }
	verdict, err := r.decide()
	if err != nil {
		return stop(r.fail(ctx, err))
	}
	if verdict.Decision == policy.Deny {
		return stop(r.refuse(ctx, verdict.Err()))
	}
	r.plan, r.question = verdict.Plan, verdict.Question
	if err := r.s.takeRates(ctx, cmp.Or(r.call.account, r.call.Actor), &verdict, r.call.Approval); err != nil {
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
	r.made = r.worldDigest()
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
	if a.world.spec.Executables != nil {
		a.posture.Commands = commandsEnforced
	}
	r.begin(ctx, a.driver, a.world)
	if a.ticket, err = r.s.o.Journal.Begin(ctx, r.intent); err != nil {
		return nil, nil, err // nothing runs unrecorded, and there is nowhere to record that
	}
	if r.net != nil {
		r.net.ledger.open(a.ticket, &r.intent)
	}
	return a, nil, nil
}

// build makes the world of an allowed call, and has it approved where the policy
// asks.
func (r *run) build(ctx context.Context, a *admitted) (err error) {
	if m := r.takeReady(); m != nil {
		a.world, err = r.adopt(m)
		return err
	}
	if m := r.stock.take(r); m != nil {
		a.world = r.settle(m)
		return nil
	}
	mark, question, intent := r.undo.mark(), r.question, r.intent
	if a.world, err = r.prepare(ctx, a.driver); err != nil || r.question == nil {
		return err
	}
	// Nothing is held while people think: the world is made anew when they have
	// answered, and is compared with the one that they were asked about.
	approved, err := r.asking().settle(ctx, func(ctx context.Context) (*approval.Subject, error) {
		if a.world == nil {
			r.question, r.intent = question, intent
			if a.world, err = r.prepare(ctx, a.driver); err != nil {
				return nil, err
			}
		}
		return r.subject(ctx, a.world)
	}, func(ctx context.Context) error {
		a.world = nil
		return r.forget(ctx, mark)
	})
	r.intent.Approval = approved
	return err
}

// forget undoes a world that was made, back to a mark of r.undo.
func (r *run) forget(ctx context.Context, mark int) error {
	err := r.undo.back(ctx, mark)
	r.image, r.store, r.net, r.hosts, r.without, r.kept = nil, nil, nil, nil, nil, nil
	r.authority, r.trust, r.placeholders = nil, nil, maps.Clone(r.shown)
	return err
}

// do is the road itself.
func (r *run) do(ctx context.Context) (*sandbox.Result, error) {
	r.oneshot = true
	a, res, err := r.admit(ctx)
	if a == nil {
		return res, err
	}
	res, err = r.carryOut(ctx, a.world, func(ctx context.Context, ex *sandbox.Exec) (*sandbox.Result, error) {
		return r.start(ctx, a.driver, a.world, ex)
	})
	if res != nil {
		r.finish(res, a.posture)
	}
	// Whatever the caller's context says, the end is recorded; what was made is
	// taken away meanwhile.
	outcome := r.outcome(res, err)
	var jerr error
	outcome.Connections, jerr = r.unrecorded()
	undone := make(chan error, 1)
	go func() { undone <- r.undo.run(ctx) }()
	jerr = errors.Join(jerr, a.ticket.End(context.WithoutCancel(ctx), outcome))
	r.left = <-undone
	if jerr != nil {
		return res, errors.Join(jerr, err)
	}
	return res, err
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
	if m := r.plan.Workspace; m != nil {
		add(m.Source, workspaceTargetOf(m), m.Access.String())
	}
	for _, m := range r.plan.Mounts {
		add(m.Source, m.Target, m.Access.String())
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
	if err := r.s.o.Journal.Refuse(context.WithoutCancel(ctx), r.intent, out); err != nil {
		return nil, err
	}
	if errors.Is(why, sandbox.ErrInvalid) {
		return nil, why
	}
	return res, nil
}

// fail records a call that did not come to run, and says why. Where a rule
// refused it (a path that no sandbox may see), that is a denial.
func (r *run) fail(ctx context.Context, why error) (*sandbox.Result, error) {
	var e *sandbox.Error
	if errors.As(why, &e) && e.Kind == sandbox.ErrDenied && e.Rule != "" {
		return r.refuse(ctx, why)
	}
	// A record that cannot be written changes nothing here: nothing ran.
	jerr := r.s.o.Journal.Refuse(context.WithoutCancel(ctx), r.intent, r.outcome(nil, why))
	if errors.Is(jerr, sandbox.ErrExhausted) {
		return nil, jerr
	}
	return nil, errors.Join(why, jerr)
}

// shortProgram is how long a program has run that may be expected to have a use for its
// network, if it has one: those that only look at something are over by then, and no
// router is started for them. A kernel inside, which reads the packets itself, takes 6 to
// 11 ms to start a program and to end: so long lasted /bin/true, and less than 2 without.
func shortProgram(w sandbox.Wire) time.Duration {
	if w == sandbox.WirePackets {
		return 12 * time.Millisecond
	}
	return 4 * time.Millisecond
}

// carryOut has start run the program of w, under the limits that the road itself
// holds.
func (r *run) carryOut(parent context.Context, w *world, start func(context.Context, *sandbox.Exec) (*sandbox.Result, error)) (*sandbox.Result, error) {
	ctx, end := context.WithCancelCause(parent)
	r.over = ctx
	r.undo.add(func(context.Context) error { end(nil); return nil })
	if r.net != nil {
		// Its first packet starts it, and waits for it; here is said what is against
		// that from the start.
		if err := r.net.router.Started(); err != nil {
			return nil, err
		}
		go r.net.watch(ctx, end)
	}
	limits := r.plan.Limits

	clock := startWall(limits, end)
	defer clock.stop()
	var over func()
	if limits.OutputKill {
		over = func() { end(exceeded(sandbox.LimitOutput, sentence(sandbox.LimitOutput, limits))) }
	}
	for i, to := range []io.Writer{r.io.Stdout, r.io.Stderr} {
		r.out[i] = newStream(ctx, [...]string{"stdout", "stderr"}[i], to, limits, over)
		r.out[i].broken = func() { end(errOutputClosed) }
	}
	g := &guard{limits: limits, rules: r.watchRules(), end: end, report: r.call.OnReport, live: r.call.OnUsage}
	ex := w.exec
	ex.Stdin, ex.Stdout, ex.Stderr = r.io.Stdin, r.out[0], r.out[1]
	ex.Terminal, ex.Signals = r.call.TTY, r.call.Signals
	ex.Started = func() {
		clock.started()
		if r.net != nil {
			r.net.router.Foresee(shortProgram(r.caps.Wire))
		}
	}
	if every := g.every(); every > 0 {
		ex.Sample, ex.SampleEvery = g.sample, every
	}
	if g.depends() {
		r.blind = func(err error) { end(blind(mostBlind, err)) }
	}

	began := time.Now()
	stop := r.watchKept(end)
	res, err := start(ctx, ex)
	stop()
	if err != nil {
		return nil, r.whyNot(ctx, err)
	}
	if res.WallMS == 0 {
		res.WallMS = time.Since(began).Milliseconds()
	}
	settle(ctx, res, limits)
	r.tellLost(res)
	return res, nil
}

// whyNot names what is behind an error of a driver that was cancelled before
// its program ran.
func (r *run) whyNot(ctx context.Context, err error) error {
	var e *ending
	if errors.As(context.Cause(ctx), &e) {
		return &sandbox.Error{Op: "run", Kind: sandbox.ErrUnavailable, Problem: e.reason + " before the program had started",
			Hint: "raise the limit", Cause: err}
	}
	if lost := context.Cause(ctx); errors.Is(lost, errNetworkLost) {
		return &sandbox.Error{Op: "run", Kind: sandbox.ErrUnavailable, Problem: lost.Error(), Cause: err}
	}
	return err
}

// start takes the fastest way that the level has for this call: a one-shot
// where nothing has to be asked of the sandbox afterwards and nobody sits at
// it, else the guest agent.
func (r *run) start(ctx context.Context, d sandbox.Driver, w *world, ex *sandbox.Exec) (*sandbox.Result, error) {
	if r.ready != nil {
		return r.ready.box.Run(ctx, ex)
	}
	if r.begun != nil {
		return r.begun.run(ctx, ex)
	}
	runner, ok := d.(sandbox.Runner)
	if ok && r.withoutAgent() {
		return runner.Run(ctx, w.spec, ex)
	}
	if err := r.openDests(); err != nil {
		return nil, err
	}
	box, err := d.Start(ctx, w.spec)
	switch {
	case ok && len(r.plan.Collect) == 0 && errors.Is(err, sandbox.ErrUnsupported):
		return runner.Run(ctx, w.spec, ex) // a level without an agent
	case err != nil:
		return nil, err
	}
	r.undo.add(box.Destroy)
	return r.withAgent(ctx, box, w, ex)
}

// finish fills in what the road counted.
func (r *run) finish(res *sandbox.Result, posture sandbox.Posture) {
	res.Posture, res.Findings = posture, r.findings
	res.Network = r.traffic()
	r.settleBudget(res)
	for _, s := range r.out {
		if cut := s.cut(); cut > 0 {
			if res.Truncated == nil {
				res.Truncated = map[string]int64{}
			}
			res.Truncated[s.name] = cut
		}
	}
	if len(res.Truncated) > 0 && res.Resource != sandbox.LimitOutput && !slices.Contains(res.LimitsHit, sandbox.LimitOutput) {
		res.LimitsHit = append(res.LimitsHit, sandbox.LimitOutput)
	}
	if r.io.Stdout == nil {
		res.Stdout = r.out[0].bytes()
	}
	if r.io.Stderr == nil {
		res.Stderr = r.out[1].bytes()
	}
}

// outcome is what the record says of the end.
func (r *run) outcome(res *sandbox.Result, err error) audit.Outcome {
	o := audit.Outcome{Status: audit.Allowed, Result: forRecord(res)}
	if res == nil {
		o.Status = audit.Failed
		if errors.Is(err, sandbox.ErrUnsupported) {
			o.Status = audit.Refused // by the name of what cannot be enforced
		}
	}
	if err != nil {
		o.Error = err.Error()
	}
	if r.out[0] != nil {
		o.Stdout, o.Stderr = r.out[0].captured(), r.out[1].captured()
	}
	return o
}

// drainGrace is how long the last bytes of a run that was ended may take to a
// reader that does not read.
const drainGrace = 2 * time.Second

// drain waits for the caller's writers to take the last bytes. The sandbox is
// gone and recorded by then. A program that ended by itself is waited for like
// any program whose reader is slow. Where a file of the caller's took less than
// was written, that is the error of a call that has no other.
func (r *run) drain(ctx context.Context, failed *error) {
	if r.out[0] == nil {
		return
	}
	if ended := ctx.Err() != nil || cutShort(r.over); ended {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), drainGrace)
		defer stop()
	}
	var lost []error
	for _, s := range r.out {
		if s.pump != nil {
			lost = append(lost, unwritten(s.name, s.pump.drain(ctx)))
		}
	}
	if *failed == nil {
		*failed = errors.Join(lost...)
	}
}

// cutShort says whether the road ended the run.
func cutShort(ctx context.Context) bool {
	var e *ending
	return errors.As(context.Cause(ctx), &e)
}
