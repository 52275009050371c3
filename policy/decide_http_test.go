// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

const httpTools = `version: 1
user: root
commands: {allow: [ls]}
files: {mounts: [{source: /srv, target: /srv}], writable: [/srv/w]}
env: {set: {MODE: x}}
secrets:
  - {name: KEY, from: "env:K", hosts: [api.example.com]}
  - {name: OTHER, from: "env:O", hosts: [api.example.com]}
network: {allow: [api.example.com, good.example.com], deny: [good.example.com]}
tools:
  - {name: get, rate: 5/s, params: {type: object, properties: {id: {type: string}}}, rules: ['params.id != "no"'],
     http: {url: "https://api.example.com/{id}", headers: {Authorization: "Bearer {$KEY}"}}}
  - {name: evil, params: {type: object}, http: {url: "https://evil.example.com/"}}
  - {name: none, params: {type: object}, http: {url: "https://api.example.com/", headers: {X: "{$NONE}"}}}
  - {name: other, params: {type: object}, command: [ls]}
`

// A declared request has a network to its own host, the secrets that it names, and
// nothing else that the file gives to programs.
func TestDecideHTTP(t *testing.T) {
	f, err := Parse("/p.yaml", []byte(httpTools))
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Options{File: f})
	if err != nil {
		t.Fatal(err)
	}
	call := func(tool, host string, change func(*Call)) *Call {
		c := &Call{Kind: CallHTTP, Actor: "a", Network: []string{host}, Tool: &ToolCall{Name: tool, Args: map[string]any{"id": "x"}}}
		if change != nil {
			change(c)
		}
		return c
	}
	const api = "api.example.com:443"
	v := p.Decide(call("get", api, nil))
	if n := v.Plan.Network; v.Decision != Allow || n == nil || len(n.Allow) != 1 || n.Allow[0].Text != api || len(n.Deny) != 1 || len(n.Secrets) != 1 || n.Secrets[0].Name != "KEY" {
		t.Fatalf("%+v", v)
	}
	if pl := v.Plan; pl.Root || len(pl.Mounts)+len(pl.Writable)+len(pl.Env) > 0 || pl.Workspace != nil || len(pl.Rates) != 1 || pl.Limits.Wall == 0 {
		t.Errorf("%+v", pl)
	}
	for name, c := range map[string]struct {
		call *Call
		says string
	}{
		"a rule":                {call("get", api, func(c *Call) { c.Tool.Args = map[string]any{"id": "no"} }), "does not hold"},
		"arguments":             {call("get", api, func(c *Call) { c.Tool.Args = map[string]any{"id": 1} }), "do not fit"},
		"not listed":            {call("nothing", api, nil), "no declared request"},
		"a command":             {call("other", api, nil), "no declared request"},
		"built in":              {call("run_code", api, nil), "no declared request"},
		"a server's":            {call("get", api, func(c *Call) { c.Tool.Server = "s" }), "no declared request"},
		"no tool":               {call("get", api, func(c *Call) { c.Tool = nil }), "no tool"},
		"another host":          {call("get", "good.example.com:443", nil), "its own host"},
		"all hosts":             {call("get", "*", nil), "its own host"},
		"no host":               {call("get", api, func(c *Call) { c.Network = nil }), "its own host"},
		"root":                  {call("get", api, func(c *Call) { c.Root = true }), "nothing else"},
		"a variable":            {call("get", api, func(c *Call) { c.Env = map[string]string{"SSL_CERT_FILE": "/x"} }), "nothing else"},
		"a mount":               {call("get", api, func(c *Call) { c.Operator, c.Mounts = true, []MountWish{{Source: "/srv", Access: sandbox.ReadOnly}} }), "nothing else"},
		"an image":              {call("get", api, func(c *Call) { c.Image = "x" }), "nothing else"},
		"a host not allowed":    {call("evil", "evil.example.com:443", nil), "does not allow connections"},
		"a secret that is none": {call("none", api, nil), "NONE"},
	} {
		if v := p.Decide(c.call); v.Decision != Deny || !strings.Contains(v.Reason, c.says) || v.Rule == "" {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if got := p.Tools().List(); len(got) == 0 {
		t.Error("nothing is offered")
	}
	known, ok := p.Tools().Lookup("get")
	if !ok || known.HTTP == nil || !strings.Contains(string(known.Output), `"status"`) {
		t.Errorf("%+v", known)
	}
	// A file that asks something else is another file.
	g, err := Parse("/p.yaml", []byte(strings.Replace(httpTools, "api.example.com/{id}", "api.example.com/v2/{id}", 1)))
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(Options{File: g})
	if err != nil || q.Digest() == p.Digest() {
		t.Error("the digest does not have the request", err)
	}
}
