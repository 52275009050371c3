// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/network"
	"github.com/caisson-run/caisson/session/registry"
)

// What a persistent sandbox may reach can be changed. Its environment (the wire, whom
// it trusts, its placeholders) stays as the network that it was made with wants
// it; what the router lets through is decided by what was asked for last.

// SetNetwork changes what the sandbox may reach, while it runs or for when it
// goes on, to any part of what the key's policy grants. The zero wish is all of
// that. When it returns, what is no longer allowed is closed; other connections
// stay.
//
// Errors: ErrDenied with the rule for a wish beyond the policy, ErrUnsupported for
// a sandbox that was made without a network, ErrNotFound.
func (h *Handle) SetNetwork(ctx context.Context, w NetworkWish) (*Sandbox, error) {
	b := h.boxes
	return h.change(ctx, func(l locked) error {
		g, err := b.grants.of(h.key)
		if err != nil {
			return err
		}
		n := &networkChange{l: l, grant: g, reach: &registry.Reach{Allow: w.Allow, Deny: w.Deny, None: w.None, Headers: w.Headers}}
		// Half a change would be neither: it is not given up with its caller.
		if err := n.run(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		b.events.tell(l.record(), "network")
		return nil
	})
}

// networkChange is one change of what a sandbox may reach.
type networkChange struct {
	l     locked
	grant *grant              // of its key
	reach *registry.Reach     // what is asked for
	plan  *policy.PlanNetwork // what comes of it; nil is no network
}

// run decides, records and carries out the change.
func (n *networkChange) run(ctx context.Context) error {
	l, g := n.l, n.grant
	rec := l.record()
	r := &session.Invocation{Session: g.session, Call: session.Reaching(callFor(rec), n.reach), ID: l.id, Kind: policy.StartSandbox}
	v, err := r.Decide()
	if err != nil {
		return err
	}
	r.Intent.Kind, r.Intent.Isolation = "change_network", rec.Isolation
	if v.Decision != policy.Allow {
		return r.Refused(ctx, l.b.o.Journal, v.Err())
	}
	plan := v.Plan.Network
	n.plan = plan
	if !rec.Wired && plan != nil {
		return r.Failed(ctx, l.b.o.Journal, &sandbox.Error{Op: "sandbox " + l.id, Kind: sandbox.ErrUnsupported, Problem: "it was made without a network, and gets none while it lives",
			Hint: "make it with the network that it may need, and take that away until then"})
	}
	if plan != nil {
		for _, s := range plan.Secrets {
			r.Intent.Secrets = append(r.Intent.Secrets, s.Name)
		}
		if err := n.check(); err != nil {
			return r.Failed(ctx, l.b.o.Journal, err)
		}
	}
	r.Intent.Network = plan.String()
	return audit.Perform(ctx, l.b.o.Journal, r.Intent, func(ctx context.Context, _ *audit.Operation) (*sandbox.Result, error) {
		return nil, n.carryOut(ctx)
	})
}

// check refuses a network whose secrets, or whose ended TLS, have no place in the
// environment of a sandbox: its policy had none of them when it was made.
func (n *networkChange) check() error {
	l, plan := n.l, n.plan
	in, have := l.here(), l.record().Placeholders
	if in != nil {
		have = in.run.Placeholders()
	}
	no := func(rule, problem string) error {
		return &sandbox.Error{Op: "sandbox " + l.id, Kind: sandbox.ErrUnsupported, Problem: problem, Rule: rule,
			Hint: "make another one: this one is older than what its policy says of that"}
	}
	if len(n.reach.Headers) > 0 && len(l.record().Headers) == 0 && (in == nil || len(in.env.Trust) == 0) {
		return withoutHeaders("sandbox " + l.id)
	}
	for _, s := range plan.Secrets {
		if have[s.Name] == "" {
			return no(network.RuleFrom(s.Rule), "its programs have no placeholder of the secret "+s.Name)
		}
	}
	// One that is paused is made anew.
	if ended := plan.Ended(); in != nil && len(ended) > 0 && len(in.env.Trust) == 0 {
		return no("", "its programs do not trust who would end the TLS of "+ended[0])
	}
	return nil
}

// withoutHeaders refuses headers in requests of a sandbox whose environment was made without
// any: its programs would not trust who ends the TLS of their hosts.
func withoutHeaders(op string) error {
	return &sandbox.Error{Op: op, Kind: sandbox.ErrUnsupported, Problem: "it was made without headers for its requests, and its programs do not trust who would set them",
		Hint: "make it with the headers that it may need; others can take their place later"}
}

// carryOut writes the change down, so that nothing else is in force when the
// sandbox goes on, and tells the router.
func (n *networkChange) carryOut(ctx context.Context) error {
	in, plan := n.l.here(), n.plan
	var rules wire.Rules
	var err error
	live := in != nil && in.run.Network != nil
	if live && plan != nil {
		if rules, err = in.run.Credentials.Rules(plan); err != nil {
			return err
		}
	}
	err = n.l.keep(ctx, func(s *registry.Sandbox) {
		s.HideHeaders()
		s.Reach, s.Network, s.Denied = n.reach, plan.Hosts(), plan.Denied()
	})
	if err != nil || !live {
		return err
	}
	return in.run.Network.Change(ctx, rules)
}
