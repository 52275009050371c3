// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/network"
	"github.com/caisson-run/caisson/session/registry"
)

// Invocation is one call on its way through the pipeline. It is for one goroutine.
type Invocation struct {
	Session *Session
	Call    *Call
	IO      IO
	ID      string      // of its sandbox's environment
	Kind    policy.Kind // what the call is, where Source does not say; empty is RunCommand
	Name    string      // what records call the sandbox; empty is ID

	Decision
	Origin
	Resources
	source
	streams
}

// Decision is what the policy and the level made of a call.
type Decision struct {
	Caps   sandbox.Capabilities
	Plan   policy.Plan
	Intent audit.Intent
	// Question needs a yes first; nil is none.
	Question *policy.Question
	// Findings are what the texts of what would run say.
	Findings []sandbox.Finding

	decided *policy.Verdict // see Verdict; nil until it is known
}

// Origin says where a call's sandbox comes from, where it is not made from the start.
type Origin struct {
	// Ahead says that there is no call yet: the sandbox is made for a pool.
	Ahead bool
	// Spares are persistent sandboxes that were made ahead; nil without.
	Spares func(*Invocation) *Spare
	// Life is of a sandbox that was taken over, and Reach what its network was changed to;
	// nil for any other.
	Life  *registry.Life
	Reach *registry.Reach
	// Names are what the sandbox calls itself; zero is what all do that are for one call.
	Names registry.Names
	// Image is the digest of the image that the sandbox was made of before it was written
	// down; empty for a new one. Where that is gone, it is what its name means now.
	Image string

	ready   *made // the one-shot that was made ahead; nil without
	oneshot bool  // the sandbox is for one program
}

// Resources are what was made for a call.
type Resources struct {
	// Undo takes it all away.
	Undo environment.Cleanup
	Dir  RunDir
	// Made is the environment that Prepare made; nil without.
	Made *environment.Environment
	// Digest is of what the environment is made of.
	Digest string
	// Network and Credentials are nil without a network. Hosts are what it lets through,
	// and Denied is taken away from that.
	Network       *network.Network
	Credentials   *network.Credentials
	Hosts, Denied []string
	// Known are the placeholders that programs of a sandbox have that goes on.
	Known map[string]string

	begins *beginning // the change set that the workspace begins with; nil without
	left   error      // what could not be undone
}

// source is the code of a call.
type source struct {
	Program *program         // nil: the call's own argv
	binary  *hostpath.Source // the call's file, when it is a compiled program
	own     bool             // it runs a script of caisson's, not what a caller asks for
	input   []byte           // all of standard input, where it had to be read before
}

// streams are where a running program's output goes, and what ends it.
type streams struct {
	out   [2]*stream // stdout, stderr
	over  context.Context
	blind func(error) // ends it, where something depends on what could not be read; nil where nothing does
	ended func()      // says that it has ended: what comes afterwards is none of its time
}

// do takes the call through the pipeline.
func (r *Invocation) do(ctx context.Context) (*sandbox.Result, error) {
	r.oneshot = true
	called := time.Now()
	a, res, err := r.Admit(ctx)
	if a == nil {
		return res, err
	}
	k, err := newKeeper(ctx, r, a.Env, called)
	if err == nil {
		r.Made.MayHaveRun()
		res, err = r.CarryOut(ctx, a.Env.Exec, (&oneshot{Invocation: r, driver: a.Driver, env: a.Env, keeper: k}).start)
	}
	if res != nil {
		r.Finish(res, a.Posture)
		k.tell(res)
	}
	connections, jerr := r.Network.Rest()
	if f := r.Made.Outcome(); f.Live { // it has to be gone before its files are looked at
		r.left = r.Undo.Run(ctx)
		tellFound(f, res, r.Call.notice)
	}
	// Whatever the caller's context says, the end is recorded.
	outcome := r.Outcome(res, err)
	outcome.Connections = connections
	jerr = errors.Join(jerr, a.Operation.End(ctx, outcome))
	r.left = errors.Join(r.left, r.Undo.Run(ctx))
	applyByRules(ctx, r, res)
	if jerr != nil {
		return res, errors.Join(jerr, err)
	}
	return res, err
}

// CarryOut has start run ex, under the limits that are held here for all levels.
func (r *Invocation) CarryOut(parent context.Context, ex *sandbox.Exec, start func(context.Context, *sandbox.Exec) (*sandbox.Result, error)) (*sandbox.Result, error) {
	ctx, end := context.WithCancelCause(parent)
	r.over = ctx
	r.Undo.Add(func(context.Context) error { end(nil); return nil })
	if r.Network != nil {
		// Its first packet starts it, and waits for it; here is said what is against
		// that from the start.
		if err := r.Network.Started(); err != nil {
			return nil, err
		}
		go WatchNetwork(ctx, r.Network, end)
	}
	limits := r.Plan.Limits

	clock := startWall(limits, StartAllowance(&r.Caps), end)
	defer clock.stop()
	r.ended = clock.stop
	var over func()
	if limits.OutputKill {
		over = func() { end(Exceeded(sandbox.LimitOutput, Sentence(sandbox.LimitOutput, limits))) }
	}
	for i, to := range []io.Writer{r.IO.Stdout, r.IO.Stderr} {
		r.out[i] = newStream(ctx, [...]string{"stdout", "stderr"}[i], to, limits, over)
		r.out[i].broken = func() { end(errOutputClosed) }
		if r.Call.TTY != nil {
			r.out[i].atOnce()
		}
	}
	g := &Guard{Limits: limits, Rules: watchRules(r.Call, &r.Plan), End: end, Report: r.Call.OnReport, live: r.Call.OnUsage}
	ex.Stdin, ex.Stdout, ex.Stderr = r.IO.Stdin, r.out[0], r.out[1]
	ex.Terminal, ex.Signals = r.Call.TTY, r.Call.Signals
	ex.Started = func() {
		clock.started()
		if r.Network != nil {
			r.Network.Used(r.Caps.Wire)
		}
	}
	if every := g.Every(); every > 0 {
		ex.Sample, ex.SampleEvery = g.Sample, every
	}
	if g.depends() {
		r.blind = func(err error) { end(Unreadable(MaxBlind, err)) }
	}

	began := time.Now()
	stop := WatchKept(r.Made.KeptNames(), end)
	res, err := r.Session.runBounded(ctx, func() (*sandbox.Result, error) { return start(ctx, ex) }, func() {
		_ = r.Undo.Run(context.WithoutCancel(ctx)) // what start has added since; who waited was told
	})
	stop()
	if err != nil {
		return nil, whyNot(ctx, err)
	}
	if res.WallMS == 0 {
		res.WallMS = time.Since(began).Milliseconds()
	}
	settle(ctx, res, limits)
	tellLost(r.Made.KeptNames(), res)
	return res, nil
}

// drainGrace is how long the last bytes of a run that was ended may take to a
// reader that does not read.
const drainGrace = 2 * time.Second
