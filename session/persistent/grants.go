// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/build"
)

// grantName is what a key is bound to.
type grantName struct{ policy, profile string }

// grant is what it stands for.
type grant struct {
	session *session.Session
	options session.Options // of session
	policy  *policy.Policy
	profile Profile
	once    *grant // for sandboxes of one call; nil until the first, the mu of grants guards it
	steps   *grant // for steps of builds; likewise
}

// grants are what keys may have.
type grants struct {
	o      *SandboxesOptions
	writes *records // is told of each key what it may write

	mu    sync.Mutex
	known map[grantName]*grant
}

// of is what a key may have.
func (a *grants) of(k *Key) (*grant, error) {
	name := grantName{k.Policy, k.Profile}
	a.mu.Lock()
	defer a.mu.Unlock()
	if g := a.known[name]; g != nil {
		a.writes.know(k, g.profile.Quota.Records)
		return g, nil
	}
	unknown := func(what, name string) error {
		return &sandbox.Error{Op: "key " + cmp.Or(k.Name, k.ID), Kind: sandbox.ErrDenied, Problem: fmt.Sprintf("its %s %q is not known to this caisson", what, name),
			Hint: "start caisson with it, or make another key", Rule: "built-in: keys"}
	}
	file, ok := a.o.Policies[k.Policy]
	if !ok && k.Policy != "" {
		return nil, unknown("policy", k.Policy)
	}
	profile, ok := a.o.Profiles[k.Profile]
	if !ok {
		if k.Profile != "" {
			return nil, unknown("profile", k.Profile)
		}
		profile = DefaultProfile()
	}
	p, err := policy.New(policy.Options{System: a.o.System, File: file, Defaults: profile.Limits})
	if err != nil {
		return nil, err
	}
	policyName := ""
	if file != nil {
		policyName = file.Name
	}
	var read []sandbox.HostFile // another key's policy, too, is nothing that code may write
	for _, f := range a.o.Policies {
		if f != file {
			read = append(read, f.Reads()...)
		}
	}
	o := session.Options{Drivers: a.o.Drivers, Policy: p, PolicyName: policyName, Read: append(read, a.o.Read...), Journal: a.o.Journal, State: a.o.State, Rates: a.o.Registry, Boot: a.o.Boot, Approvals: a.o.Approvals, Outlive: a.o.Grace > 0, EndLimit: a.o.EndLimit, Swept: true}
	s, err := session.New(o)
	if err != nil {
		return nil, err
	}
	g := &grant{session: s, options: o, policy: p, profile: profile.withDefaults()}
	a.known[name] = g
	a.writes.know(k, g.profile.Quota.Records)
	return g, nil
}

// oneShot is what a key may have in sandboxes of one call.
func (a *grants) oneShot(k *Key) (*grant, error) {
	return a.other(k, func(g *grant) **grant { return &g.once }, sandbox.DefaultLimits())
}

// builds is what a key may have in steps of its builds.
func (a *grants) builds(k *Key) (*grant, error) {
	return a.other(k, func(g *grant) **grant { return &g.steps }, build.DefaultLimits())
}

// other is what a key may have where other limits are the default. It is made once.
func (a *grants) other(k *Key, place func(*grant) **grant, defaults sandbox.Limits) (*grant, error) {
	g, err := a.of(k)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := place(g)
	if *kept != nil {
		return *kept, nil
	}
	o := g.options
	if o.Policy, err = g.policy.WithDefaults(defaults); err != nil {
		return nil, err
	}
	s, err := session.New(o)
	if err != nil {
		return nil, err
	}
	*kept = &grant{session: s, options: o, policy: o.Policy, profile: g.profile}
	return *kept, nil
}
