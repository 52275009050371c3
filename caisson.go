// SPDX-License-Identifier: Apache-2.0

// Package caisson runs what AI agents write where it can do no harm.
//
// A program that uses it begins main with [Reexec]; then one call is
//
//	res, err := caisson.Run(ctx, caisson.Request{Command: []string{"python3", "-c", "print(2**100)"}})
//
// and many share what they stand on:
//
//	c, err := caisson.Open(ctx, caisson.Options{})
//	defer c.Close()
//	res, err := c.Run(ctx, caisson.Request{Language: "python", Code: code})
//
// A sandbox that goes on between calls keeps its files and processes, without a daemon:
//
//	box, err := c.Create(ctx, caisson.Create{})
//	defer box.Close()
//	err = box.Files().Write(ctx, "data.csv", file, 0)
//	res, err := box.Exec(ctx, caisson.Exec{Command: []string{"python3", "-c", code}})
//
// Package client has the same for the sandboxes of a daemon.
//
// Everything goes the one road (package session) that the command line goes
// too: the policy decides, the level enforces or the run is refused, and the
// audit record says what happened. With nothing said, code runs behind the
// embedded gVisor with no network, no host file but the toolchain, and the
// limits of [sandbox.DefaultLimits].
package caisson

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/config"
	"github.com/caisson-run/caisson/internal/linux/scope"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Result is what came of a call; see [sandbox.Result].
type Result = sandbox.Result

// Limits bound a call; see [sandbox.Limits].
type Limits = sandbox.Limits

// Options say what a Caisson stands on. The zero value is the safe one.
type Options struct {
	// State is the state directory: /var/lib/caisson for root, else
	// $XDG_STATE_HOME/caisson or ~/.local/state/caisson when empty. It must be
	// the caller's own, mode 0700.
	State string

	// Policy is a policy file; requests may then only tighten it. Without one a
	// request's own wishes are the policy, because the caller of this package
	// is the operator of the host. /etc/caisson/policy.yaml, where it exists,
	// bounds both.
	Policy string

	// StayInGroup keeps this process in the control group that it is in. By
	// default the first Open of an ordinary user on a systemd host moves the
	// process into a transient scope of its own that is delegated to it, so
	// that limits on memory and processors hold; without, requests that set
	// such limits are refused and the defaults are emulated or off.
	StayInGroup bool

	// Pools keep sandboxes ready for requests that come often.
	Pools []Pool

	// MaxSandboxes is how many sandboxes of Create may run at once, and as many be paused;
	// 100 when it is 0.
	MaxSandboxes int
}

// Caisson runs requests. It may be used from many goroutines.
type Caisson struct {
	session  *session.Session
	audit    *audit.Log
	state    *store.Dir
	pools    []func() PoolState // of Options.Pools
	oneshots []*session.Pool
	home     home
}

// itself says that Reexec has returned: this process is the program, and not a part of
// a sandbox that the program was started again as.
var itself atomic.Bool

// Open opens the state directory and the audit record and reads the policies. It
// refuses a program that has not called [Reexec]. Errors are *sandbox.Error with a hint
// where there is one.
func Open(ctx context.Context, o Options) (*Caisson, error) {
	if !itself.Load() {
		return nil, &sandbox.Error{Op: "open", Kind: sandbox.ErrInvalid, Problem: "this program has not called caisson.Reexec, and would start itself again without end",
			Hint: "make caisson.Reexec() the first statement of main, and of TestMain in tests"}
	}
	c := &Caisson{}
	p, err := c.policies(o.Policy)
	if err != nil {
		return nil, err
	}
	if !o.StayInGroup {
		// Why there is no scope is said by what cannot be enforced then.
		_, _ = scope.Enter(ctx)
	}
	if c.state, err = store.Open(store.Options{Dir: o.State}); err != nil {
		return nil, err
	}
	if c.audit, err = audit.Open(ctx, audit.Options{Dir: c.state.Path()}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.home.state, c.home.audit, c.home.max = c.state, c.audit, o.MaxSandboxes
	c.session, err = session.New(session.Options{
		Drivers: DriversIn(o.State), Policy: p, PolicyName: o.Policy, Journal: c.audit, State: session.DirState(c.state),
	})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	for i := range o.Pools {
		if err := c.keep(ctx, &o.Pools[i]); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// policies reads the system's policy and the one in file, and puts them together.
func (c *Caisson) policies(file string) (_ *policy.Policy, err error) {
	h := &c.home
	if h.system, err = config.System(config.SystemPath); err != nil {
		return nil, err
	}
	if file != "" {
		if h.file, err = config.File(file); err != nil {
			return nil, err
		}
	}
	return policy.New(policy.Options{System: h.system, File: h.file})
}

// Close ends the sandboxes that Create made, takes away those that wait, and closes what
// Open opened. Runs must have ended.
func (c *Caisson) Close() error {
	errs := []error{c.home.close()}
	for _, p := range c.oneshots {
		errs = append(errs, p.Close())
	}
	if c.audit != nil {
		errs = append(errs, c.audit.Close())
	}
	if c.state != nil {
		errs = append(errs, c.state.Close())
	}
	return errors.Join(errs...)
}

// Run runs one request and waits for its end. A program that ran is a Result,
// however it ended, and so is a request that the policy refused (Status
// denied); an error is what caisson could not do. When ctx ends everything
// inside is killed.
func (c *Caisson) Run(ctx context.Context, r Request) (*Result, error) {
	call, io, err := r.call()
	if err != nil {
		return nil, forGo("Request", err)
	}
	res, err := c.session.Do(ctx, call, io)
	return res, forGo("Request", err)
}

// Run opens a Caisson with the defaults, runs one request and closes it again.
func Run(ctx context.Context, r Request) (*Result, error) {
	c, err := Open(ctx, Options{})
	if err != nil {
		return nil, err
	}
	res, err := c.Run(ctx, r)
	return res, errors.Join(err, c.Close())
}
