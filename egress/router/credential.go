// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// Code in a sandbox has a placeholder. The router exchanges it for the secret in
// one header of requests to the secret's hosts, and nowhere else: not in another
// header, a path, a body, or for another host. Code that has the placeholder can
// use the secret at its hosts as long as the sandbox lives, and cannot learn it
// from anything but what those hosts answer.

// Secret is one secret and where it goes.
type Secret struct {
	name        string
	placeholder string
	value       wire.Value
	hosts       []rule.Rule
	header      string // canonical
	format      string // "" keeps what is around the placeholder
	plain       bool
	others      bool
	renews      *renewal // nil for a value that stays
}

// NewSecret reads what the owner sent.
func NewSecret(s wire.Secret) (*Secret, error) {
	c := &Secret{name: s.Name, placeholder: s.Placeholder, value: s.Value, header: http.CanonicalHeaderKey(s.Header), format: s.Format, plain: s.Plain, others: s.Others}
	if c.header == "" {
		c.header = "Authorization"
	}
	if s.Serial != 0 {
		c.renews = &renewal{value: s.Value, serial: s.Serial, expires: s.Expires}
	}
	if len(c.placeholder) < 16 {
		return nil, fmt.Errorf("secret %s: its placeholder can be guessed", s.Name)
	}
	if err := rule.CheckSecretValue(string(s.Value)); err != nil {
		return nil, fmt.Errorf("secret %s: %w", s.Name, err)
	}
	if err := rule.CheckSecretHeader(c.header, c.format); err != nil {
		return nil, fmt.Errorf("secret %s: %w", s.Name, err)
	}
	for _, text := range s.Hosts {
		r, err := rule.ParseSecretHost(text, s.From)
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", s.Name, err)
		}
		c.hosts = append(c.hosts, r)
	}
	return c, nil
}

// maxOther bounds, in bytes, what code may write beside its placeholder in a
// Basic credential, the colon not counted.
const maxOther = 1 << 10

// put gives a header's value with the secret in it; false when the placeholder is
// not what it consists of. What code may write around it is a scheme ("Bearer"),
// or the other half of a user and password.
func (s *Secret) put(v, value string) (string, bool) {
	if !s.in(v) {
		return "", false
	}
	if s.format != "" {
		return strings.Replace(s.format, rule.SecretPlace, value, 1), true
	}
	scheme, rest, two := strings.Cut(v, " ")
	switch {
	case v == s.placeholder:
		return value, true
	case !two:
		return "", false
	case rest == s.placeholder:
		return scheme + " " + value, true
	}
	user, password, _ := strings.Cut(basic(v), ":")
	if user == s.placeholder {
		user = value
	} else {
		password = value
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)), true
}

// in reports whether v is the placeholder, alone or after a scheme, or one half
// of a Basic credential (RFC 7617) is.
func (s *Secret) in(v string) bool {
	if v == s.placeholder {
		return true
	}
	if scheme, rest, two := strings.Cut(v, " "); two && rest == s.placeholder && scheme != "" {
		return strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
	}
	user, password, ok := strings.Cut(basic(v), ":")
	return ok && (user == s.placeholder) != (password == s.placeholder) && len(user)+len(password) <= len(s.placeholder)+maxOther
}

// basic is the user and password of a Basic credential.
func basic(v string) string {
	scheme, rest, _ := strings.Cut(v, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return ""
	}
	b, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return ""
	}
	return string(b)
}

// Secrets are the secrets of one sandbox.
type Secrets []*Secret

// to reports whether a secret goes into requests to a host. tls says that the way
// there is encrypted.
func (c *Secret) to(n rule.Name, port uint16, tls bool) bool {
	return (tls || c.plain) && slices.ContainsFunc(c.hosts, func(r rule.Rule) bool { return r.Matches(n, port) })
}

// guards reports whether requests to a host may have no credential but the
// sandbox's own. That holds for every port: behind another may be the same
// service.
func (c *Secret) guards(n rule.Name) bool {
	return !c.others && c.at(n)
}

// Guards reports whether requests to a host may have no credential but the
// sandbox's own.
func (s Secrets) Guards(n rule.Name) bool {
	return slices.ContainsFunc(s, func(c *Secret) bool { return c.guards(n) })
}

// Hosts are the hosts whose requests Fill wants to see.
func (s Secrets) Hosts() (all []rule.Rule) {
	for _, c := range s {
		for _, r := range c.hosts {
			if !c.others {
				r = r.AnyPort()
			}
			all = append(all, r)
		}
	}
	return all
}

// ErrForeign says that a request has a credential that is not the sandbox's own.
type ErrForeign struct {
	Header string
	Secret string // the variable with the placeholder to use
}

// Error names the header, and nothing of what it holds.
func (e *ErrForeign) Error() string {
	return "it has a credential of its own in the header " + e.Header
}

// Fill puts the secrets that go to a host into the headers of a request to it,
// and gives what must not be seen in the answer; nil where it put in none. Where
// no other credentials are allowed, cookies are taken out, and any other credential that can be told by
// its header's name is an *ErrForeign.
func (s Secrets) Fill(n rule.Name, port uint16, tls bool, h http.Header) (hidden Redaction, err error) {
	ours := map[string]bool{}
	var only Secrets
	for _, c := range s {
		if c.guards(n) {
			only = append(only, c)
		}
		values := h[c.header]
		if len(values) != 1 || !c.to(n, port, tls) { // of two values, each reader takes another
			continue
		}
		value := c.current()
		if v, ok := c.put(values[0], value); ok {
			h[c.header] = []string{v}
			ours[c.header] = true
			hidden = hidden.add(value, v)
		}
	}
	if only == nil {
		return hidden, nil
	}
	for key := range h {
		switch {
		case plainName(key) == "sec-websocket-protocol" && bearing(h[key]):
			return nil, &ErrForeign{Header: key, Secret: only[0].name}
		case ours[key] || !only.credential(key):
		case plainName(key) == "cookie" || plainName(key) == "cookie2":
			delete(h, key) // clients send back what they were given
		default:
			return nil, &ErrForeign{Header: key, Secret: only[0].name}
		}
	}
	return hidden, nil
}

// bearing reports whether a protocol that a WebSocket asks for is a credential:
// browsers can send no header of their own there, so some services take keys so.
func bearing(values []string) bool {
	all := strings.ToLower(strings.Join(values, ","))
	return slices.ContainsFunc([]string{"openai-insecure-api-key.", "base64url.bearer."}, func(p string) bool { return strings.Contains(all, p) })
}

// plainName is a header's name as a lenient server reads it.
func plainName(key string) string { return strings.ReplaceAll(strings.ToLower(key), "_", "-") }

// credential reports whether a header carries credentials: by a secret of s, or
// by what services are known to use.
func (s Secrets) credential(key string) bool {
	key = plainName(key)
	return slices.Contains(known, key) || slices.ContainsFunc(s, func(c *Secret) bool { return plainName(c.header) == key })
}

// known are headers that services take credentials from. One that is not here,
// or that stands in a path or a body, is not seen.
var known = []string{
	"authorization", "proxy-authorization", "cookie", "cookie2", "x-authorization", "authentication", "x-forwarded-authorization",
	"x-api-key", "api-key", "apikey", "x-apikey", "x-key", "x-api-token", "api-token", "x-auth", "x-auth-token", "x-auth-key", "x-auth-email", "auth-token",
	"x-access-token", "access-token", "x-token", "token", "x-user-token", "x-session-token", "x-secret-key", "x-app-key", "x-client-secret",
	"private-token", "job-token", "deploy-token", "circle-token", "x-github-token", "x-gitlab-token", "x-figma-token", "x-vault-token", "x-shopify-access-token",
	"x-goog-api-key", "x-goog-iam-authorization-token", "x-amz-security-token", "x-ms-token-aad-access-token", "ocp-apim-subscription-key",
	"x-rapidapi-key", "x-algolia-api-key", "x-honeycomb-team", "x-subscription-token", "dd-api-key", "dd-application-key", "x-n8n-api-key", "x-typesense-api-key",
	"x-openai-api-key", "x-anthropic-api-key", "xi-api-key", "x-hf-token", "openai-organization", "openai-project",
}
