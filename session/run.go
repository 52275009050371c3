// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/network"
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

	ahead   bool              // there is no call yet: its sandbox is made for a pool
	ready   *made             // the sandbox that was made ahead; nil without
	oneshot bool              // its sandbox is for one program
	spares  func(*run) *spare // where persistent ones are that were made ahead; nil without

	decided *policy.Verdict // see verdict; nil until it is known

	prog   *program         // nil: the call's own argv
	binary *hostpath.Source // the call's file, when it is a compiled program
	caps   sandbox.Capabilities
	plan   policy.Plan
	intent audit.Intent

	own      bool              // it runs a script of caisson's, not what a caller asks for
	findings []sandbox.Finding // what the texts of what would run say

	question *policy.Question // somebody has to say yes first; nil: nobody
	input    []byte           // with a question: all of standard input

	dir     RunDir         // what it has on the disk
	life    *registry.Life // of a sandbox that was taken over; nil for any other
	made    string         // digest of what its environment is made of
	undo    environment.Cleanup
	left    error      // what could not be undone
	out     [2]*stream // stdout, stderr
	over    context.Context
	blind   func(error)      // ends it, where something depends on what could not be read; nil where nothing does
	net     *network.Network // nil without one
	reach   *registry.Reach  // what the network was changed to; nil is the plan's
	hosts   []string         // what it lets through
	without []string         // what is taken away from that

	credentials *network.Credentials     // nil without a network
	shown       map[string]string        // those that a sandbox that goes on has already
	dests       []*os.Root               // where plan.Collect goes
	env         *environment.Environment // that prepare made; nil without
}

// do is the road itself.
func (r *run) do(ctx context.Context) (*sandbox.Result, error) {
	r.oneshot = true
	a, res, err := r.admit(ctx)
	if a == nil {
		return res, err
	}
	r.mayHaveRun()
	res, err = r.carryOut(ctx, a.env.Exec, func(ctx context.Context, ex *sandbox.Exec) (*sandbox.Result, error) {
		return r.start(ctx, a.driver, a.env, ex)
	})
	if res != nil {
		r.finish(res, a.posture)
	}
	connections, jerr := r.unrecorded()
	if f := r.found(); f.Live { // it has to be gone before its files are looked at
		r.left = r.undo.Run(ctx)
		r.tellFound(f, res)
	}
	// Whatever the caller's context says, the end is recorded; what was made is
	// taken away meanwhile.
	outcome := r.outcome(res, err)
	outcome.Connections = connections
	undone := make(chan error, 1)
	go func() { undone <- r.undo.Run(ctx) }()
	jerr = errors.Join(jerr, a.op.End(ctx, outcome))
	r.left = errors.Join(r.left, <-undone)
	if jerr != nil {
		return res, errors.Join(jerr, err)
	}
	return res, err
}

// carryOut has start run ex, under the limits that are held here for all levels.
func (r *run) carryOut(parent context.Context, ex *sandbox.Exec, start func(context.Context, *sandbox.Exec) (*sandbox.Result, error)) (*sandbox.Result, error) {
	ctx, end := context.WithCancelCause(parent)
	r.over = ctx
	r.undo.Add(func(context.Context) error { end(nil); return nil })
	if r.net != nil {
		// Its first packet starts it, and waits for it; here is said what is against
		// that from the start.
		if err := r.net.Started(); err != nil {
			return nil, err
		}
		go watchNetwork(ctx, r.net, end)
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
	ex.Stdin, ex.Stdout, ex.Stderr = r.io.Stdin, r.out[0], r.out[1]
	ex.Terminal, ex.Signals = r.call.TTY, r.call.Signals
	ex.Started = func() {
		clock.started()
		if r.net != nil {
			r.net.Used(r.caps.Wire)
		}
	}
	if every := g.every(); every > 0 {
		ex.Sample, ex.SampleEvery = g.sample, every
	}
	if g.depends() {
		r.blind = func(err error) { end(blind(maxBlind, err)) }
	}

	began := time.Now()
	stop := watchKept(r.keptNames(), end)
	res, err := r.s.runBounded(ctx, func() (*sandbox.Result, error) { return start(ctx, ex) }, func() {
		_ = r.undo.Run(context.WithoutCancel(ctx)) // what start has added since; who waited was told
	})
	stop()
	if err != nil {
		return nil, r.whyNot(ctx, err)
	}
	if res.WallMS == 0 {
		res.WallMS = time.Since(began).Milliseconds()
	}
	settle(ctx, res, limits)
	tellLost(r.keptNames(), res)
	return res, nil
}

// start takes the fastest way that the level has for this call: a one-shot
// where nothing has to be asked of the sandbox afterwards and nobody sits at
// it, else the guest agent.
func (r *run) start(ctx context.Context, d sandbox.Driver, w *environment.Environment, ex *sandbox.Exec) (*sandbox.Result, error) {
	if r.ready != nil {
		return r.ready.box.Run(ctx, ex)
	}
	runner, ok := d.(sandbox.Runner)
	if ok && r.withoutAgent() {
		return runner.Run(ctx, w.Spec, ex)
	}
	if err := r.openDests(); err != nil {
		return nil, err
	}
	box, err := d.Start(ctx, w.Spec)
	switch {
	case ok && len(r.plan.Collect) == 0 && errors.Is(err, sandbox.ErrUnsupported):
		return runner.Run(ctx, w.Spec, ex) // a level without an agent
	case err != nil:
		return nil, err
	}
	r.undo.Add(bounded(r.s.o.EndLimit, box.Destroy))
	return r.withAgent(ctx, box, w, ex)
}

// withoutAgent says that nothing has to be asked of the sandbox afterwards, and
// nobody sits at it.
func (r *run) withoutAgent() bool { return len(r.plan.Collect) == 0 && r.call.TTY == nil }

// drainGrace is how long the last bytes of a run that was ended may take to a
// reader that does not read.
const drainGrace = 2 * time.Second

// mayHaveRun notes that code may have run from here on.
func (r *run) mayHaveRun() {
	if r.env != nil {
		r.env.Found.Ran = true
	}
}

// found is what came of the call's read-write mounts.
func (r *run) found() *environment.Found {
	if r.env == nil {
		return &environment.Found{}
	}
	return r.env.Found
}

// keptNames are names of the host's that must stay what they are.
func (r *run) keptNames() environment.Kept {
	if r.env == nil {
		return nil
	}
	return r.env.Kept
}
