// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/network"
	"github.com/caisson-run/caisson/session/registry"
)

// connect makes the wire of a plan that has a network; nil without.
func (r *Invocation) connect() (*sandbox.Network, error) {
	plan := r.Plan.Network
	switch {
	case plan == nil && r.Call.OnRefused != nil && r.oneshot && r.Caps.TellsAttempts:
		return r.tellTried()
	case plan == nil:
		return nil, nil
	}
	noticeInside(plan, r.Call.notice)
	rules, err := r.Credentials.Rules(plan)
	if err != nil {
		return nil, err
	}
	if r.Kind == policy.StartSandbox {
		if err := foresee(r.Session.o.Policy, r.Call, r.Credentials); err != nil {
			return nil, err
		}
	}
	r.Hosts, r.Denied = plan.Hosts(), plan.Denied()
	if r.Reach != nil { // the environment is made for plan, all the same
		if rules, err = r.RulesInForce(); err != nil {
			return nil, err
		}
	}
	return r.StartRouter(r.Dir.Path(), rules, nil)
}

// tellTried makes a wire that leads nowhere, for a caller who wants to be told what a
// program tries to reach without a network.
func (r *Invocation) tellTried() (*sandbox.Network, error) {
	n, err := network.Start(network.Options{
		Closed: true, StateDir: r.Dir.Path(), Caps: r.Caps, Journal: r.Session.o.Journal, PolicyName: r.Session.o.PolicyName, Refused: r.Call.OnRefused,
	})
	if err != nil {
		return nil, nil // there is none without it, either
	}
	r.Network = n
	r.Undo.Close(n)
	return n.Wire, nil
}

// noticeInside says what entries mean that are often written for this host.
func noticeInside(plan *policy.PlanNetwork, notice func(string)) {
	for _, text := range plan.Inside() {
		notice(fmt.Sprintf("network: inside, %s is the sandbox itself; allow %s for this host's, and connect to that name", text, rule.LocalInstead(text)))
	}
}

// foresee gives what the network of a persistent sandbox may be changed to (see
// Handle.SetNetwork) its place in the environment: nothing of that can be put there
// later.
func foresee(p *policy.Policy, call *Call, c *network.Credentials) error {
	v := p.Decide(&Reaching(call, &registry.Reach{}).Call)
	if v.Decision == policy.Deny || v.Plan.Network == nil {
		return nil // there is nothing more to have
	}
	return c.Foresee(v.Plan.Network)
}

// RulesInForce are those of what the network was changed to since the sandbox was
// made, if it was.
func (r *Invocation) RulesInForce() (wire.Rules, error) {
	plan, err := inForce(r.Session.o.Policy, r.Call, &r.Plan, r.Reach)
	if err != nil {
		return wire.Rules{}, err
	}
	r.Intent.Network, r.Hosts, r.Denied = plan.String(), plan.Hosts(), plan.Denied()
	if plan == nil {
		return wire.Rules{}, nil
	}
	return r.Credentials.Rules(plan)
}

// StartRouter has a router at the end of a wire, from its first packet on: far where
// the sandbox has the other end already.
func (r *Invocation) StartRouter(stateDir string, rules wire.Rules, far *os.File) (*sandbox.Network, error) {
	o := network.Options{
		Rules: rules, StateDir: stateDir, Caps: r.Caps, Far: far, Journal: r.Session.o.Journal, PolicyName: r.Session.o.PolicyName, Refused: r.Call.OnRefused,
	}
	if r.Credentials != nil {
		o.Renew = r.Credentials.Renew
	}
	if r.Plan.Network != nil {
		o.Budget = r.Plan.Network.Budget
	}
	n, err := network.Start(o)
	if err != nil {
		return nil, err
	}
	r.Network = n
	r.Undo.Close(n)
	return n.Wire, nil
}

// AwaitRouter waits until what is sent over the wire is read, by a router that its
// first packet starts: most sandboxes that may use a network do not. One that is to
// have secrets is started at once, so that they are kept nowhere else.
func AwaitRouter(ctx context.Context, n *network.Network, plan *policy.PlanNetwork) error {
	if len(plan.Secrets) > 0 {
		return n.Ready(ctx)
	}
	return n.Started()
}

// Connections are what goes through the network of a call, as records have it.
func Connections(of *audit.Intent, op *audit.Operation) audit.Connection {
	return audit.Connection{Actor: of.Actor, Account: of.Account, Sandbox: of.Sandbox, Call: op.ID}
}

// WatchNetwork ends a program whose network ends by itself, until ctx is over.
func WatchNetwork(ctx context.Context, n *network.Network, end func(error)) {
	n.Watch(ctx, func(why error) {
		var used *network.BudgetError
		if errors.As(why, &used) {
			why = Exceeded(sandbox.LimitNetwork, used.Error())
		}
		end(why)
	})
}

// settleBudget says of a program that failed by itself, when the network was closed
// under it and before the kill came, what it failed by; of one that did not, that it
// was near. Its network is closed by now.
func settleBudget(used *network.BudgetError, res *sandbox.Result) {
	switch {
	case used == nil:
	case res.Status == sandbox.StatusError:
		res.Status, res.Resource, res.Reason = sandbox.StatusResourceExceeded, sandbox.LimitNetwork, used.Error()
	case res.Status == sandbox.StatusSuccess && !slices.Contains(res.LimitsHit, sandbox.LimitNetwork):
		res.LimitsHit = append(res.LimitsHit, sandbox.LimitNetwork)
	}
}

// ForRecord is a result as the record of its call has it: what went through its
// network is not listed once more.
func ForRecord(res *sandbox.Result) *sandbox.Result {
	if res == nil || res.Network == nil {
		return res
	}
	short, n := *res, *res.Network
	n.Connections, n.Refused, n.Omitted = nil, nil, 0
	short.Network = &n
	return &short
}

// Reaching is a call that asks for another network.
func Reaching(c *Call, reach *registry.Reach) *Call {
	if reach == nil {
		return c
	}
	other := *c
	other.Network, other.NetworkDeny, other.NoNetwork = slices.Clone(reach.Allow), slices.Clone(reach.Deny), reach.None
	other.Headers = slices.Clone(reach.Headers)
	return &other
}

// inForce is what the network of a call lets through: its plan's, unless it was
// changed since the sandbox was first made.
func inForce(p *policy.Policy, call *Call, plan *policy.Plan, reach *registry.Reach) (*policy.PlanNetwork, error) {
	if reach == nil {
		return plan.Network, nil
	}
	v := p.Decide(&Reaching(call, reach).Call)
	if v.Decision != policy.Allow {
		return nil, v.Err()
	}
	return v.Plan.Network, nil
}
