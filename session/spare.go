// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"reflect"
)

// spare is a persistent sandbox that was made before it was asked for: what made it.
type spare struct {
	run   *run
	env   *environment.Environment
	shape shape
}

func (s shape) equals(other shape) bool { return reflect.DeepEqual(s, other) }

// equalsBeyondRules reports whether two networks, of which each has one, differ in
// nothing but the entries that let connections through.
func (s shape) equalsBeyondRules(other shape) bool {
	return s.plan.Network != nil && other.plan.Network != nil && s.ruleless().equals(other.ruleless())
}

func (s shape) ruleless() shape {
	n := *s.plan.Network
	n.Allow, n.Deny, s.plan.Network = nil, nil, &n
	s.call.Network, s.call.NetworkDeny = nil, nil
	return s
}

// narrow puts the call's own entries in force in a sandbox that was made ahead with
// others. Nothing has run in it, and nobody has it until that is done.
func (r *run) narrow(ctx context.Context, m *spare) error {
	if reflect.DeepEqual(m.run.plan.Network, r.plan.Network) {
		return nil
	}
	rules, err := r.credentials.Rules(r.plan.Network)
	if err == nil {
		err = r.net.Change(ctx, rules)
	}
	return err
}

// livingShape is what decides how a living sandbox is made. Who asks, and by which
// door, does not: what the policy made of that is in the plan.
func livingShape(r *run) shape {
	s := r.shape()
	s.call.Actor, s.call.Door = "", ""
	return s
}

// settle makes a sandbox that was made ahead this call's own. Only what is the
// call's alone is filled in; the agent is told of it when the call is recorded.
func (r *run) settle(m *spare) *environment.Environment {
	r.undo.Add(m.run.undo.Run)
	r.id, r.call.ID, r.dir = m.run.id, m.run.id, m.run.dir
	r.credentials = r.newCredentials()
	r.net, r.hosts, r.without = m.run.net, r.plan.Network.Hosts(), r.plan.Network.Denied()
	w := *m.env
	w.Exec = &sandbox.Exec{Dir: w.Dir, Env: r.variables(&w)}
	return &w
}

// spare is one that was made for calls like r; nil without.
func (r *run) spare() *spare {
	if r.spares == nil || r.question != nil { // people are asked about an environment that is made for them
		return nil
	}
	return r.spares(r)
}
