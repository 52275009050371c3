// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// The matrix of who may have which secret: what is in force, or what refuses.
func TestSecretLayers(t *testing.T) {
	const (
		net    = "network: {allow: [api.example.com, '*.example.net:8443']}\n"
		secret = "secrets: [{name: KEY, from: 'env:K', hosts: [api.example.com]}]"
	)
	wish := func(s string) []Secret {
		w, err := ParseSecret(s)
		if err != nil {
			t.Fatal(err)
		}
		return []Secret{w}
	}
	for name, c := range map[string]struct {
		system, file string
		call         Call
		want         string
	}{
		"the operator's flag":            {"", "", Call{Network: []string{"api.example.com"}, Secrets: wish("KEY=env:K@api.example.com")}, "KEY from env:K to api.example.com"},
		"a file of the operator's":       {"", "", Call{Network: []string{"api.example.com"}, Secrets: wish("KEY=file:/run/k@api.example.com")}, "KEY from file:/run/k to api.example.com"},
		"a relative file":                {"", "", Call{Network: []string{"api.example.com"}, Secrets: wish("KEY=file:k@api.example.com")}, "refused"},
		"without a network":              {"", "", Call{Secrets: wish("KEY=env:K@api.example.com")}, "refused built-in: valid requests"},
		"for another host":               {"", "", Call{Network: []string{"b.example.com"}, Secrets: wish("KEY=env:K@api.example.com")}, "refused built-in: valid requests"},
		"for another port":               {"", "", Call{Network: []string{"api.example.com:80"}, Secrets: wish("KEY=env:K@api.example.com")}, "refused built-in: valid requests"},
		"for more hosts than are open":   {"", "", Call{Network: []string{"api.example.com"}, Secrets: wish("KEY=env:K@*.example.com")}, "refused built-in: valid requests"},
		"in a variable that is set":      {"", "", Call{Network: []string{"api.example.com"}, Env: map[string]string{"KEY": "a"}, Secrets: wish("KEY=env:K@api.example.com")}, "refused --secret"},
		"twice":                          {"", "", Call{Network: []string{"api.example.com"}, Secrets: append(wish("KEY=env:K@api.example.com"), wish("KEY=env:L@api.example.com")...)}, "refused --secret"},
		"the file's":                     {"", net + secret, Call{}, "KEY from env:K to api.example.com"},
		"the file's, relative":           {"", net + "secrets: [{name: KEY, from: 'file:k', hosts: [api.example.com]}]", Call{}, "KEY from file:/p/k to api.example.com"},
		"the file's, no such host":       {"", "network: {allow: [b.example.com]}\n" + secret, Call{}, "refused /p/file:3"},
		"the file's, narrowed away":      {"", net + secret, Call{Network: []string{"a.example.net:8443"}}, "none"},
		"the file's, without a network":  {"", net + secret, Call{NoNetwork: true}, "none"},
		"a flag beyond the file":         {"", net, Call{Secrets: wish("KEY=env:K@api.example.com")}, "refused /p/file"},
		"a flag beside the file's":       {"", net + secret, Call{Secrets: wish("OTHER=env:K@api.example.com")}, "refused /p/file"},
		"a file within the system":       {net + secret, net + secret, Call{}, "KEY from env:K to api.example.com"},
		"a file beyond the system":       {net, net + secret, Call{}, "refused /p/system"},
		"another source":                 {net + secret, net + strings.Replace(secret, "env:K", "env:L", 1), Call{}, "refused /p/system:3"},
		"another header":                 {net + secret, net + strings.Replace(secret, "name:", "header: x-key, name:", 1), Call{}, "refused /p/system:3"},
		"without TLS":                    {net + secret, net + strings.Replace(secret, "name:", "plain_http: true, name:", 1), Call{}, "refused /p/system:3"},
		"beside others":                  {net + secret, net + strings.Replace(secret, "name:", "only_our_credentials: false, name:", 1), Call{}, "refused /p/system:3"},
		"the system's grants nothing":    {net + secret, "", Call{Network: []string{"api.example.com"}}, "none"},
		"the system's bounds a flag":     {net + secret, "", Call{Network: []string{"api.example.com"}, Secrets: wish("KEY=env:L@api.example.com")}, "refused /p/system:3"},
		"a login":                        {"", "", Call{Network: []string{"api.anthropic.com"}, Secrets: wish("C=login:claude")}, "C from login:claude to api.anthropic.com"},
		"a login, not reached":           {"", "", Call{Network: []string{"api.example.com"}, Secrets: wish("C=login:claude")}, "refused built-in: valid requests"},
		"a login of the file's":          {"", "network: {allow: [chatgpt.com]}\nsecrets: [{name: C, from: 'login:chatgpt', optional: true}]", Call{}, "C from login:chatgpt to chatgpt.com, where there is one"},
		"a login for another host":       {"", "", Call{Network: []string{"internet"}, Secrets: []Secret{{Name: "C", From: "login:claude", Hosts: []string{"evil.example.com"}}}}, "refused built-in: valid requests"},
		"a login without TLS":            {"", "", Call{Network: []string{"internet"}, Secrets: []Secret{{Name: "C", From: "login:claude", Plain: true}}}, "refused built-in: valid requests"},
		"a login that the system has":    {"network: {allow: [api.anthropic.com]}\nsecrets: [{name: C, from: 'login:claude'}]", "", Call{Network: []string{"api.anthropic.com"}, Secrets: wish("C=login:claude")}, "C from"},
		"a login that the system lacks":  {net, "", Call{Secrets: wish("C=login:claude")}, "refused /p/system"},
		"somebody else's login":          {"", "", Call{Secrets: wish("C=login:claude"), Actor: "guest"}, "refused built-in: secrets"},
		"a flag's authorities":           {"", net, Call{UpstreamCA: "/ca.pem"}, "refused /p/file"},
		"a flag's, about no host":        {"", "", Call{Network: []string{"api.example.com"}, UpstreamCA: "/ca.pem"}, "refused built-in: valid requests"},
		"a flag's, about a host":         {"", "", Call{Network: []string{"api.example.com"}, UpstreamCA: "/ca.pem", Secrets: wish("KEY=env:K@api.example.com")}, "KEY from"},
		"a flag's, without a network":    {"", "", Call{UpstreamCA: "/ca.pem"}, "refused built-in: valid requests"},
		"the file's, about no host":      {"", "network: {allow: [api.example.com], upstream_ca: ca.pem}", Call{}, "none"},
		"the file's authorities, beyond": {net, "network: {allow: [api.example.com], upstream_ca: ca.pem}", Call{}, "refused /p/system"},
		"somebody else's":                {"", "", Call{Secrets: wish("KEY=env:K@api.example.com"), Actor: "guest"}, "refused built-in: secrets"},
		"somebody else's, of a file":     {"", "", Call{Secrets: wish("KEY=file:/run/k@api.example.com"), Actor: "guest"}, "refused built-in: secrets"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := New(Options{System: parsed(t, "system", c.system), File: parsed(t, "file", c.file)})
			if err != nil {
				t.Fatal(err)
			}
			call := c.call
			call.Kind, call.Argv, call.Operator = RunCommand, []string{"true"}, call.Actor == ""
			v := p.Decide(&call)
			got := "none"
			switch n := v.Plan.Network; {
			case v.Decision != Allow:
				got = "refused " + v.Rule
			case n != nil && len(n.Secrets) > 0:
				got = n.Secrets[0].String()
			}
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("%s, want %s (%s; %s)", got, c.want, v.Reason, v.Hint)
			}
		})
	}
}

// Requests to a login's hosts are held to those that it is for, whatever a policy allows,
// and the hosts that give out tokens are closed.
func TestLoginLayer(t *testing.T) {
	for _, name := range rule.Logins() {
		l, _ := rule.LoginOf(name)
		p, err := New(Options{File: parsed(t, "file", "network: {allow: [internet, {host: "+l.Hosts[0]+", methods: [GET, POST, PUT], paths: ['/**']}]}\nsecrets: [{name: C, from: 'login:"+name+"'}]")})
		if err != nil {
			t.Fatal(err)
		}
		n := p.Decide(command(nil)).Plan.Network
		if n == nil || len(n.Web) != 2 {
			t.Fatalf("%s: %v", name, n)
		}
		for _, w := range n.Web[1] {
			if !w.Closed || w.From != "login "+name || len(w.Methods) == 0 || len(w.Paths) == 0 {
				t.Errorf("%s: %+v", name, w)
			}
			if _, err := rule.AllowWeb(w.Text, w.From, w.rule()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, host := range l.Elsewhere {
			if !slices.Contains(n.Denied(), host) {
				t.Errorf("%s: %s is not closed: %v", name, host, n.Denied())
			}
		}
	}
}

func TestParseSecretRefuses(t *testing.T) {
	for _, s := range []string{"", "KEY", "KEY=env:K", "KEY=@api.example.com", "=env:K@api.example.com", "KEY=sk-123@api.example.com", "KEY=env:@api.example.com", "KEY=env:K@", "KEY=env:K@10.0.0.0/8", "KEY=env:K@a.example.com,", "KEY=env:K@internet", "KEY=login:none", "KEY=login:claude@evil.example.com", "KEY=login:"} {
		if _, err := ParseSecret(s); !errors.Is(err, sandbox.ErrInvalid) || sandbox.Hint(err) == "" || strings.Contains(err.Error(), "sk-123") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// What a layer says of requests holds whatever a call or another layer asks for.
func TestWebLayers(t *testing.T) {
	system := parsed(t, "system", "network: {allow: [internet, {host: '*.example.com', methods: [GET]}]}")
	file := parsed(t, "file", "network: {allow: [api.example.com, {host: 'api.example.com:443', paths: ['/v1/**'], max_body: 1MiB}]}")
	p, err := New(Options{System: system, File: file})
	if err != nil {
		t.Fatal(err)
	}
	v := p.Decide(&Call{Kind: RunCommand, Argv: []string{"true"}, Operator: true, Network: []string{"api.example.com:443"}})
	want := "allow-list: api.example.com:443; requests: *.example.com GET; requests: api.example.com:443 /v1/** max_body 1MiB"
	if got := v.Plan.Network.String(); got != want {
		t.Errorf("%s (%s), want %s", got, v.Reason, want)
	}
	if got := strings.Join(v.Plan.Network.Ended(), " "); got != "api.example.com example.com" {
		t.Errorf("TLS is ended for %s", got)
	}
	many := "network:\n  allow:\n"
	for i := range wire.MaxHosts + 1 {
		many += "    - {host: h" + formatCount(int64(i)) + ".example.com, methods: [GET]}\n"
	}
	if p, err = New(Options{File: parsed(t, "file", many)}); err != nil {
		t.Fatal(err)
	}
	if v := p.Decide(command(nil)); v.Decision != Deny || !strings.Contains(v.Hint, "*.example.com") {
		t.Errorf("%d hosts: %+v", wire.MaxHosts+1, v)
	}
}

// Nothing that a plan shows, or that is explained, has more of a secret than its
// name and where it goes.
func TestExplainSecrets(t *testing.T) {
	p, err := New(Options{File: parsed(t, "file", "network: {allow: [{host: api.example.com, methods: [GET], paths: [/v1/**]}]}\nsecrets: [{name: KEY, from: 'env:K', hosts: [api.example.com]}]")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range Explain(p, map[string]sandbox.Capabilities{"has": {Network: true}, "lacks": {}}) {
		if strings.HasPrefix(c.Name, "network") || strings.HasPrefix(c.Name, "secrets") {
			got = append(got, strings.Join([]string{c.Name, c.Value, c.From, string(c.Levels["has"].Enforcement), string(c.Levels["lacks"].Enforcement)}, " "))
		}
	}
	want := `network.allow api.example.com GET /v1/** /p/file:2 enforced refused
secrets.KEY KEY from env:K to api.example.com /p/file:3 enforced refused
network.tls ended by the router for api.example.com derived enforced refused`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("%s", s)
	}
}
