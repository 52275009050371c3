// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/egress/ca"
	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/network/login"
)

// Credentials turn the network of a plan into what a router is told.
//
// A secret is read once, when its router is started, goes there over a
// socket that only the two hold, and is kept nowhere here. The sandbox, records
// and messages have its name and its placeholder.
type Credentials struct {
	// StateDir is the state directory, which has this installation's authority.
	StateDir string
	// Lookup gives a variable of the caller's environment; nil is this process's.
	Lookup func(name string) (string, bool)
	// Placeholders are those that the sandbox has, by the names of secrets.
	Placeholders map[string]string
	// Authority signs for hosts whose TLS is ended; nil while none is.
	Authority *ca.Authority
	// OpenLogin finds a login of this host; nil is login.Open, by Lookup.
	OpenLogin func(name string) (*login.Login, error)

	mu     sync.Mutex
	logins map[string]*login.Login // by the names of secrets
	roots  []byte                  // what hosts are held to, once TLS is ended
}

// Rules are what the router is told, with the secrets in it. Placeholders and Authority
// are set as far as they are needed.
//
// Errors: ErrUnavailable for a secret that cannot be read, ErrInvalid for authorities that
// cannot be used.
func (c *Credentials) Rules(plan *policy.PlanNetwork) (wire.Rules, error) {
	rules := wire.Rules{Allow: entries(plan.Allow), Deny: entries(plan.Deny)}
	for _, layer := range plan.Web {
		var list []wire.WebEntry
		for _, w := range layer {
			list = append(list, wire.WebEntry{Entry: wire.Entry{Text: w.Text, From: w.From}, Methods: w.Methods, Paths: w.Paths, MaxBody: w.MaxBody, MaxRequests: w.MaxRequests, Closed: w.Closed})
		}
		rules.Web = append(rules.Web, list)
	}
	for _, p := range plan.Secrets {
		s, err := c.secretFor(p)
		if err != nil {
			return rules, err
		}
		if s != nil {
			rules.Secrets = append(rules.Secrets, *s)
		}
	}
	for _, h := range plan.Headers {
		if h.Value != "" {
			rules.Headers = append(rules.Headers, h)
		}
	}
	rules.Deny = append(rules.Deny, unserved(plan.Secrets, rules.Secrets)...)
	ended := plan.Ended()
	if len(ended) == 0 {
		return rules, nil
	}
	var err error
	rules.TLS, err = c.endTLS(plan, ended)
	return rules, err
}

// unserved closes the hosts of secrets that are absent, where no other goes: with nothing
// to hold requests to, code could bring credentials of its own there.
func unserved(planned []policy.PlanSecret, have []wire.Secret) (out []wire.Entry) {
	for _, p := range planned {
		if p.Others || slices.ContainsFunc(have, func(s wire.Secret) bool { return s.Name == p.Name }) {
			continue
		}
		for _, host := range p.Hosts {
			if !slices.ContainsFunc(have, func(s wire.Secret) bool { return slices.Contains(s.Hosts, host) }) {
				out = append(out, wire.Entry{Text: host, From: "secret " + p.Name + ", which is absent"})
			}
		}
	}
	return out
}

func entries(rules []policy.PlanRule) []wire.Entry {
	var out []wire.Entry
	for _, r := range rules {
		out = append(out, wire.Entry{Text: r.Text, From: r.From})
	}
	return out
}

// secretFor reads one secret and makes a placeholder, which cannot be guessed
// and is easily recognised; nil for one that is absent and may be.
func (c *Credentials) secretFor(p policy.PlanSecret) (*wire.Secret, error) {
	if p.Login() != "" {
		return c.loginFor(p)
	}
	value, err := ReadSecret(p.From, c.Lookup)
	if p.Optional && errors.Is(err, errAbsent) {
		return nil, nil
	}
	if err == nil {
		err = rule.CheckSecretValue(value)
	}
	if err != nil {
		return nil, &sandbox.Error{Op: "secret " + p.Name, Kind: sandbox.ErrUnavailable, Problem: err.Error(), Rule: RuleFrom(p.Rule),
			Hint: "look at what it is from: " + p.From}
	}
	return &wire.Secret{
		Name: p.Name, From: p.Rule, Placeholder: c.placeholder(p.Name), Value: wire.Value(value),
		Hosts: p.Hosts, Header: p.Header, Format: p.Format, Plain: p.Plain, Others: p.Others,
	}, nil
}

// placeholder is a secret's, the same for as long as the sandbox lives.
func (c *Credentials) placeholder(name string) string {
	if p := c.Placeholders[name]; p != "" {
		return p
	}
	if c.Placeholders == nil {
		c.Placeholders = map[string]string{}
	}
	c.Placeholders[name] = "caisson-secret-" + strings.ToLower(rand.Text())
	return c.Placeholders[name]
}

// Foresee makes the placeholders of plan, and the authority where it ends TLS, for a
// network that may be wanted later. A placeholder is worth nothing, and an authority signs
// nothing, until a router is told of them.
func (c *Credentials) Foresee(plan *policy.PlanNetwork) error {
	for _, s := range plan.Secrets {
		if !s.Optional || c.has(s) {
			c.placeholder(s.Name)
		}
	}
	if len(plan.Ended()) == 0 {
		return nil
	}
	_, err := c.installation(time.Now())
	return err
}

// installation is the authority that the sandbox is to trust from now on.
func (c *Credentials) installation(now time.Time) (*ca.Authority, error) {
	a, err := ca.Open(c.StateDir, now)
	if err == nil {
		c.Authority = a
	}
	return a, err
}

// maxSecret is how much of a file is read, in bytes; a secret has less.
const maxSecret = 64 << 10

// errAbsent marks that there is nothing where a secret is from.
var errAbsent = errors.New("")

// ReadSecret reads a secret from where the operator said: env:NAME or file:PATH. lookup
// gives variables; nil is this process's. A line end after a secret in a file is none of it.
// Errors say nothing of it.
func ReadSecret(from string, lookup func(name string) (string, bool)) (string, error) {
	if variable, ok := strings.CutPrefix(from, "env:"); ok {
		if lookup == nil {
			lookup = os.LookupEnv
		}
		value, ok := lookup(variable)
		if !ok {
			return "", fmt.Errorf("the variable that it is from is not set%w", errAbsent)
		}
		return value, nil
	}
	b, err := files.ReadRegular(strings.TrimPrefix(from, "file:"), maxSecret)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the file that it is from cannot be read%w", errAbsent)
	}
	if err != nil {
		return "", errors.New("the file that it is from cannot be read")
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	return string(bytes.TrimSuffix(b, []byte("\r"))), nil
}

// endTLS is what the router ends the TLS of hosts with.
func (c *Credentials) endTLS(plan *policy.PlanNetwork, ended []string) (*wire.TLS, error) {
	var hosts []rule.Name
	for _, s := range ended {
		n, err := rule.ParseName(s)
		if err != nil {
			return nil, &sandbox.Error{Op: "network", Kind: sandbox.ErrInvalid, Problem: err.Error()}
		}
		hosts = append(hosts, n)
	}
	now := time.Now() // not the records' clock: clients have this one
	a, err := c.installation(now)
	if err != nil {
		return nil, err
	}
	issuer, err := a.Delegate(hosts, now)
	if err != nil {
		return nil, &sandbox.Error{Op: "network", Kind: sandbox.ErrUnavailable, Problem: err.Error()}
	}
	roots, err := c.upstreamRoots(plan.UpstreamCA)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.roots = roots
	c.mu.Unlock()
	return &wire.TLS{Issuer: issuer, Roots: roots}, nil
}

// upstreamRoots are the authorities that hosts are held to: this host's, and those
// that the operator named.
func (c *Credentials) upstreamRoots(more *policy.PlanRule) ([]byte, error) {
	roots, err := ca.HostRoots()
	if more == nil {
		return roots, err
	}
	own, rerr := files.ReadRegular(more.Text, ca.MaxBundle)
	if rerr == nil {
		if block, _ := pem.Decode(own); block == nil || block.Type != "CERTIFICATE" {
			rerr = errors.New("it has no certificate")
		}
	}
	if rerr != nil {
		return nil, &sandbox.Error{Op: "upstream_ca " + sandbox.Quoted(more.Text), Kind: sandbox.ErrInvalid, Problem: "it cannot be used: " + rerr.Error(),
			Hint: "name a file with certificates in PEM", Rule: RuleFrom(more.From), Cause: rerr}
	}
	// A host without trusted authorities of its own may well be told which to trust.
	return append(append(roots, '\n'), own...), nil
}
