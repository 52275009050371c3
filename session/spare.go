// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"reflect"
)

// Spare is a persistent sandbox that was made before it was asked for: what made it.
type Spare struct {
	Invocation *Invocation
	Env        *environment.Environment
	Shape      Shape
}

// Equals reports whether two sandboxes are made alike.
func (s Shape) Equals(other Shape) bool { return reflect.DeepEqual(s, other) }

// EqualsBeyondRules reports whether two networks, of which each has one, differ in
// nothing but the entries that let connections through.
func (s Shape) EqualsBeyondRules(other Shape) bool {
	return s.plan.Network != nil && other.plan.Network != nil && s.ruleless().Equals(other.ruleless())
}

func (s Shape) ruleless() Shape {
	n := *s.plan.Network
	n.Allow, n.Deny, s.plan.Network = nil, nil, &n
	s.call.Network, s.call.NetworkDeny = nil, nil
	return s
}

// Narrow puts the call's own entries in force in a sandbox that was made ahead with
// others. Nothing has run in it, and nobody has it until that is done.
func (r *Invocation) Narrow(ctx context.Context, m *Spare) error {
	if reflect.DeepEqual(m.Invocation.Plan.Network, r.Plan.Network) {
		return nil
	}
	rules, err := r.Credentials.Rules(r.Plan.Network)
	if err == nil {
		err = r.Network.Change(ctx, rules)
	}
	return err
}

// PersistentShape is what decides how a living sandbox is made. Who asks, and by which
// frontend, does not: what the policy made of that is in the plan.
func PersistentShape(r *Invocation) Shape {
	s := r.shape()
	s.call.Actor, s.call.Frontend = "", ""
	return s
}

// settle makes a sandbox that was made ahead this call's own. Only what is the
// call's alone is filled in; the agent is told of it when the call is recorded.
func (r *Invocation) settle(m *Spare) *environment.Environment {
	r.Undo.Add(m.Invocation.Undo.Run)
	r.ID, r.Call.ID, r.Dir = m.Invocation.ID, m.Invocation.ID, m.Invocation.Dir
	r.Credentials = r.NewCredentials()
	r.Network, r.Hosts, r.Denied = m.Invocation.Network, r.Plan.Network.Hosts(), r.Plan.Network.Denied()
	w := *m.Env
	w.Exec = &sandbox.Exec{Dir: w.Dir, Env: r.Variables(&w)}
	return &w
}

// spare is one that was made for calls like r; nil without.
func (r *Invocation) spare() *Spare {
	if r.Spares == nil || r.Question != nil { // people are asked about an environment that is made for them
		return nil
	}
	return r.Spares(r)
}
