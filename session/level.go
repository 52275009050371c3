// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/network"
)

// How a policy's list of commands holds (Posture.Commands).
const (
	commandsEnforced = "enforced"
	commandsParsed   = "parsed only"
)

// Level finds the driver of the plan, notes its Caps, and refuses what it cannot enforce,
// by name. The posture it returns says how each limit in force holds.
func (d *Decision) Level(ctx context.Context, s *Session, call *Call) (sandbox.Driver, sandbox.Posture, error) {
	none := sandbox.Posture{}
	driver, err := s.driver(d.Plan.Isolation)
	if err != nil {
		return nil, none, err
	}
	caps, err := driver.Probe(ctx)
	if err != nil {
		return nil, none, err
	}
	if caps.Unusable != "" {
		return nil, none, &sandbox.Error{Op: "isolation " + d.Plan.Isolation, Kind: sandbox.ErrUnsupported, Problem: caps.Unusable,
			Hint: hintOr(caps.Remedy, "caisson doctor says what is missing")}
	}
	d.Caps = caps
	if err := features(call, &d.Plan, caps); err != nil {
		return nil, none, err
	}
	posture := sandbox.Posture{Isolation: d.Plan.Isolation, Network: "none", Root: d.Plan.Root || call.Sudo && caps.Root, Limits: map[sandbox.LimitName]sandbox.Enforcement{}}
	if d.Plan.Network != nil {
		posture.Network = "allow-list"
		posture.Ended, posture.Secrets, posture.Open = d.Plan.Network.Ended(), d.Intent.Secrets, d.Plan.Network.Open()
	}
	posture.Mounts = apart(&d.Plan, caps)
	for _, v := range d.Plan.Volumes {
		posture.Volumes = append(posture.Volumes, v.Name)
	}
	if d.Plan.Commands != nil {
		posture.Commands = commandsParsed // until its environment is made
	}
	if c := d.Plan.Commands; c != nil && c.Enforce != "" && !d.Plan.BestEffort {
		switch {
		case !caps.Executables:
			return nil, none, &sandbox.Error{Op: "commands.enforce", Kind: sandbox.ErrUnsupported, Problem: d.Plan.Isolation + " does not look at what is executed here",
				Hint: "take a level that does (gvisor, process), or leave enforce out and have commands parsed only", Rule: c.Enforce}
		case len(c.Programs) == 0:
			return nil, none, &sandbox.Error{Op: "commands.enforce", Kind: sandbox.ErrInvalid, Problem: "the list does not say what may be executed",
				Hint: "name the programs in commands.allow, without *", Rule: c.Enforce}
		}
	}
	if d.Plan.Code != nil {
		posture.Code = "advice"
	}
	if err := holdLimits(call, &d.Plan, caps, posture.Limits); err != nil {
		return nil, none, err
	}
	return driver, posture, nil
}

// features refuses what is no limit. Best effort does not help here: without
// a mount or a mask the program would see something else than was asked for.
func features(call *Call, plan *policy.Plan, caps sandbox.Capabilities) error {
	refuse := func(op, what, hint string) error {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrUnsupported, Problem: plan.Isolation + " has no " + what + " on this host", Hint: hint}
	}
	if plan.Root && !caps.Root {
		return refuse("--root", "root of its own", "run as the user, or on a level whose root is not the host's")
	}
	if n := plan.Network; n != nil && !caps.Network {
		e := &sandbox.Error{Op: "network " + sandbox.Quoted(n.Allow[0].Text), Kind: sandbox.ErrUnsupported,
			Problem: plan.Isolation + " has no network with an allow-list here",
			Hint:    "run without a network, or on a level that has one: --isolation gvisor", Rule: network.RuleFrom(n.Allow[0].From)}
		if why := caps.NoNetwork; why.Detail != "" {
			e.Problem += ": " + why.Detail
			e.Hint = hintOr(why.Remedy, e.Hint)
		}
		return e
	}
	if call.TTY != nil && !caps.Terminal {
		return refuse("-t", "terminal", "run without -t")
	}
	if len(plan.Deny) > 0 && !caps.Masks {
		return refuse("files.deny", "way to hide paths", "leave the files out of the mounts")
	}
	for _, rule := range watchRules(call, plan) {
		if rule.Unmeasured() {
			return cannotWatch(rule, policy.NobodyMeasures, "leave the rule out; limits.disk bounds it")
		}
	}
	if c := plan.Changes; c != nil && !c.Discard && !caps.Changes {
		if call.Changes.Required {
			return refuse("changes", "way to tell what was changed", "leave it out, or run on another level")
		}
		call.notice("changes in the workspace are not kept: " + plan.Isolation + " does not tell them on this host")
		c.Discard = true
	}
	if len(plan.Volumes) > 0 && !caps.ReadWrite {
		return refuse("volume "+plan.Volumes[0].Name, "writable mounts", "leave files.volumes out, or run on another level")
	}
	for _, m := range mounts(plan) {
		if m.Access == sandbox.CopyOnWrite && !caps.CopyOnWrite {
			return refuse("mount "+sandbox.Quoted(m.Source), "copy-on-write", "mount it :ro or :rw")
		}
		if m.Access == sandbox.ReadWrite && !caps.ReadWrite {
			hint := "mount it :ro or :cow"
			if caps.CopyOnWrite && caps.Changes {
				hint = "run in it as a workspace, --workspace DIR:cow, and take what was changed: caisson changes apply; or run on another level"
			}
			return refuse("mount "+sandbox.Quoted(m.Source), "writable mounts", hint)
		}
	}
	return nil
}

// mounts are the plan's, the workspace too.
func mounts(p *policy.Plan) []policy.PlanMount {
	mounts := p.Mounts
	if w := p.Workspace; w != nil {
		mounts = append(mounts[:len(mounts):len(mounts)], *w)
	}
	return mounts
}

// apart says what a kernel of the sandbox's own keeps apart of mounted files.
func apart(p *policy.Plan, caps sandbox.Capabilities) []string {
	if caps.LiveFiles || len(mounts(p)) == 0 {
		return nil
	}
	out := []string{"what the host changes in mounted directories makes no inotify event inside"}
	for _, m := range mounts(p) {
		if m.Access != sandbox.ReadWrite {
			continue
		}
		against := "the host"
		if m.Shared {
			against = "other sandboxes and the host"
		}
		out = append(out, fmt.Sprintf("locks and shared mappings of files in %s are the sandbox's own, and do not hold against %s", sandbox.Quoted(m.Source), against))
	}
	return out
}

// ruleOf is the line of a policy file that a clause comes from; empty when it
// was a flag or is a default.
func ruleOf(plan *policy.Plan, clause string) string { return network.RuleFrom(plan.From[clause]) }

func (c *Call) notice(s string) {
	if c.OnNotice != nil {
		c.OnNotice(s)
	}
}

func hintOr(hint, other string) string {
	if hint != "" {
		return hint
	}
	return other
}
