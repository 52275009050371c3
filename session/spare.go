// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"reflect"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/network"
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

// Narrow puts a call's own entries in force where the sandbox was made with others.
// Nothing has run in it, and no caller has it until that is done.
func (m *Spare) Narrow(ctx context.Context, to *policy.PlanNetwork, with *network.Credentials) error {
	if reflect.DeepEqual(m.Invocation.Plan.Network, to) {
		return nil
	}
	rules, err := with.Rules(to)
	if err == nil {
		err = m.Invocation.Network.Change(ctx, rules)
	}
	return err
}

// PersistentShape is what decides how a living sandbox is made. Who asks, and by which
// frontend, does not: what the policy made of that is in the plan.
func PersistentShape(r *Invocation) Shape {
	s := shapeOf(r.Call, &r.Decision, r.Program)
	s.call.Actor, s.call.Frontend = "", ""
	return s
}

// settle makes the sandbox a call's own. Only what is the
// call's alone is filled in; the agent is told of it when the call is recorded.
func (m *Spare) settle(r *Invocation) *environment.Environment {
	r.Undo.Add(m.Invocation.Undo.Run)
	r.ID, r.Call.ID, r.Dir = m.Invocation.ID, m.Invocation.ID, m.Invocation.Dir
	r.Credentials = r.NewCredentials()
	r.Network, r.Hosts, r.Denied = m.Invocation.Network, r.Plan.Network.Hosts(), r.Plan.Network.Denied()
	w := *m.Env
	w.Exec = &sandbox.Exec{Dir: w.Dir, Env: r.Variables(&w)}
	return &w
}
