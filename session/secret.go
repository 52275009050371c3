// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/caisson-run/caisson/egress/ca"
	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/internal/named"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// A secret is read once, when its run's router is started, goes there over a
// socket that only the two hold, and is kept nowhere here. The sandbox, records
// and messages have its name and its placeholder.

// secretFor reads one secret and thinks of a placeholder, which nobody can guess
// and everybody can recognise.
func (r *run) secretFor(p policy.PlanSecret) (wire.Secret, error) {
	value, err := r.secretValue(p.From)
	if err == nil {
		err = rule.CheckSecretValue(value)
	}
	if err != nil {
		return wire.Secret{}, &sandbox.Error{Op: "secret " + p.Name, Kind: sandbox.ErrUnavailable, Problem: err.Error(), Rule: ruleFrom(p.Rule),
			Hint: "look at what it is from: " + p.From}
	}
	return wire.Secret{
		Name: p.Name, From: p.Rule, Placeholder: r.placeholder(p.Name), Value: wire.Value(value),
		Hosts: p.Hosts, Header: p.Header, Format: p.Format, Plain: p.Plain, Others: p.Others,
	}, nil
}

// placeholder is a secret's, the same for as long as the sandbox lives.
func (r *run) placeholder(name string) string {
	if p := r.placeholders[name]; p != "" {
		return p
	}
	if r.placeholders == nil {
		r.placeholders = map[string]string{}
	}
	r.placeholders[name] = "caisson-secret-" + strings.ToLower(rand.Text())
	return r.placeholders[name]
}

// foresee gives what the network of a sandbox that lives on may be changed to (see
// Sandboxes.SetNetwork) its place in the environment: nothing of that can be put there
// later. A placeholder is worth nothing, and an authority signs for nobody, until
// the router is told of them.
func (r *run) foresee() error {
	if r.kind != policy.StartSandbox {
		return nil
	}
	v := r.s.o.Policy.Decide(&reaching(r.call, &registry.Reach{}).Call)
	n := v.Plan.Network
	if v.Decision == policy.Deny || n == nil {
		return nil // there is nothing more to have
	}
	for _, s := range n.Secrets {
		r.placeholder(s.Name)
	}
	if len(n.Ended()) == 0 {
		return nil
	}
	_, err := r.installation(time.Now())
	return err
}

// installation is the authority that the sandbox is to trust from now on.
func (r *run) installation(now time.Time) (*ca.Authority, error) {
	a, err := ca.Open(r.s.o.State.Path(), now)
	if err == nil {
		r.authority = a
	}
	return a, err
}

// mostSecret is how much of a file is read, in bytes; a secret has less.
const mostSecret = 64 << 10

// secretValue reads a secret from where the operator said. A line end after it is
// none of it. Errors say nothing of it.
func (r *run) secretValue(from string) (string, error) {
	if variable, ok := strings.CutPrefix(from, "env:"); ok {
		lookup := r.call.Lookup
		if lookup == nil {
			lookup = os.LookupEnv
		}
		value, ok := lookup(variable)
		if !ok {
			return "", errors.New("the variable that it is from is not set")
		}
		return value, nil
	}
	b, err := named.ReadRegular(strings.TrimPrefix(from, "file:"), mostSecret)
	if err != nil {
		return "", errors.New("the file that it is from cannot be read")
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	return string(bytes.TrimSuffix(b, []byte("\r"))), nil
}

// rules are what the router is told, with the secrets in it.
func (r *run) rules(plan *policy.PlanNetwork) (wire.Rules, error) {
	rules := wire.Rules{Allow: entries(plan.Allow), Deny: entries(plan.Deny)}
	for _, layer := range plan.Web {
		var list []wire.WebEntry
		for _, w := range layer {
			list = append(list, wire.WebEntry{Entry: wire.Entry{Text: w.Text, From: w.From}, Methods: w.Methods, Paths: w.Paths, MaxBody: w.MaxBody})
		}
		rules.Web = append(rules.Web, list)
	}
	for _, p := range plan.Secrets {
		s, err := r.secretFor(p)
		if err != nil {
			return rules, err
		}
		rules.Secrets = append(rules.Secrets, s)
	}
	ended := plan.Ended()
	if len(ended) == 0 {
		return rules, nil
	}
	var err error
	rules.TLS, err = r.endTLS(plan, ended)
	return rules, err
}

// endTLS is what the router ends the TLS of hosts with.
func (r *run) endTLS(plan *policy.PlanNetwork, ended []string) (*wire.TLS, error) {
	var hosts []rule.Name
	for _, s := range ended {
		n, err := rule.ParseName(s)
		if err != nil {
			return nil, &sandbox.Error{Op: "network", Kind: sandbox.ErrInvalid, Problem: err.Error()}
		}
		hosts = append(hosts, n)
	}
	now := time.Now() // not the records' clock: clients have this one
	a, err := r.installation(now)
	if err != nil {
		return nil, err
	}
	issuer, err := a.Delegate(hosts, now)
	if err != nil {
		return nil, &sandbox.Error{Op: "network", Kind: sandbox.ErrUnavailable, Problem: err.Error()}
	}
	roots, err := r.upstreamRoots(plan.UpstreamCA)
	if err != nil {
		return nil, err
	}
	return &wire.TLS{Issuer: issuer, Roots: roots}, nil
}

// upstreamRoots are the authorities that hosts are held to: this host's, and those
// that the operator named.
func (r *run) upstreamRoots(more *policy.PlanRule) ([]byte, error) {
	roots, err := ca.HostRoots()
	if more == nil {
		return roots, err
	}
	own, rerr := named.ReadRegular(more.Text, ca.MostBundle)
	if rerr == nil {
		if block, _ := pem.Decode(own); block == nil || block.Type != "CERTIFICATE" {
			rerr = errors.New("it has no certificate")
		}
	}
	if rerr != nil {
		return nil, &sandbox.Error{Op: "upstream_ca " + quoted(more.Text), Kind: sandbox.ErrInvalid, Problem: "it cannot be used: " + rerr.Error(),
			Hint: "name a file with certificates in PEM", Rule: ruleFrom(more.From), Cause: rerr}
	}
	// A host that trusts nobody itself may well be told whom to trust.
	return append(append(roots, '\n'), own...), nil
}
