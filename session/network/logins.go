// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/network/login"
)

// loginFor is a login as a secret; nil for one that is absent and may be.
func (c *Credentials) loginFor(p policy.PlanSecret) (*wire.Secret, error) {
	fail := func(problem, hint string) (*wire.Secret, error) {
		return nil, &sandbox.Error{Op: "secret " + p.Name, Kind: sandbox.ErrUnavailable, Problem: problem, Hint: hint, Rule: RuleFrom(p.Rule)}
	}
	l, err := c.findLogin(p)
	if errors.Is(err, login.ErrAbsent) {
		if p.Optional {
			return nil, nil
		}
		return fail("the login "+p.Login()+" is not on this host", "log in with its agent here first")
	}
	var token login.Token
	if err == nil {
		token, err = l.Token()
	}
	if err == nil {
		err = rule.CheckSecretValue(token.Value)
	}
	if err != nil {
		return fail("the login "+p.Login()+" cannot be used: "+err.Error(), "log in with its agent here anew")
	}
	return &wire.Secret{Name: p.Name, From: p.Rule, Placeholder: c.placeholder(p.Name), Value: wire.Value(token.Value), Hosts: p.Hosts,
		Serial: token.Serial, Expires: token.Expires}, nil
}

// findLogin finds the login that a secret is, once.
func (c *Credentials) findLogin(p policy.PlanSecret) (*login.Login, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.logins[p.Name]; l != nil {
		return l, nil
	}
	open := c.OpenLogin
	if open == nil {
		open = func(name string) (*login.Login, error) { return login.Open(name, c.Lookup) }
	}
	l, err := open(p.Login())
	if err != nil {
		return nil, err
	}
	if c.logins == nil {
		c.logins = map[string]*login.Login{}
	}
	c.logins[p.Name] = l
	return l, nil
}

// has says whether there is something where a secret is from.
func (c *Credentials) has(p policy.PlanSecret) bool {
	var err error
	if p.Login() != "" {
		_, err = c.findLogin(p)
		return !errors.Is(err, login.ErrAbsent)
	}
	_, err = ReadSecret(p.From, c.Lookup)
	return !errors.Is(err, errAbsent)
}

// Renew gives another access token of the login that a secret is, in the place of the one
// with a number, for the router. It is not given up half way: a refresh token is good for
// one time.
func (c *Credentials) Renew(name string, serial int64) wire.Renewal {
	c.mu.Lock()
	l, roots := c.logins[name], c.roots
	c.mu.Unlock()
	if l == nil {
		return wire.Renewal{Name: name, Problem: "it cannot be renewed"}
	}
	l.Trust(clientOf(roots))
	t, err := l.Renew(context.Background(), serial)
	if err != nil {
		return wire.Renewal{Name: name, Problem: "the login " + l.Name + " has to be renewed: " + err.Error()}
	}
	return wire.Renewal{Name: name, Value: wire.Value(t.Value), Serial: t.Serial, Expires: t.Expires}
}

// clientOf asks a provider, which is held to what hosts are held to.
func clientOf(roots []byte) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
}

// File is a file that a sandbox has in its home directory.
type File struct {
	Path    string // below it
	Content []byte
}

// Files are those by which agents inside find their logins.
func (c *Credentials) Files() ([]File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []File
	for _, name := range slices.Sorted(maps.Keys(c.logins)) {
		l := c.logins[name]
		if l.Target() == "" || c.Placeholders[name] == "" {
			continue
		}
		content, err := l.Inside(c.Placeholders[name])
		if err != nil {
			return nil, &sandbox.Error{Op: "secret " + name, Kind: sandbox.ErrUnavailable, Problem: "the login " + l.Name + " cannot be used: " + err.Error()}
		}
		out = append(out, File{l.Target(), content})
	}
	return out, nil
}

// LoginEnv are the variables by which agents inside find the logins of plan that have
// placeholders.
func LoginEnv(plan *policy.PlanNetwork, placeholders map[string]string) map[string]string {
	if plan == nil {
		return nil
	}
	env := map[string]string{}
	for _, s := range plan.Secrets {
		if p := placeholders[s.Name]; p != "" && s.Login() != "" {
			maps.Copy(env, login.Env(s.Login(), p))
		}
	}
	return env
}
