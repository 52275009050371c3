// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// TestServerFile: a server's sandbox has what its entry says, and of the rest of
// the file only the level and best_effort.
func TestServerFile(t *testing.T) {
	const src = `version: 1
isolation: process
limits: {wall: 30s, memory: 64MiB}
network: {allow: [top.example.com]}
files: {mounts: [{source: /srv/top}]}
env: {set: {TOP: "1"}}
servers:
  - {name: bare, command: [s]}
  - {name: own, command: [s], isolation: gvisor, network: {allow: [own.example.com]}, files: {mounts: [{source: ./own}]}, limits: {memory: 1GiB}}
`
	f, err := Parse("p.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	f.Dir = "/etc/x"
	plan := func(name string) Plan {
		t.Helper()
		p, err := New(Options{File: f.ServerFile(f.Server(name)), Defaults: sandbox.Limits{CPUs: 1, Memory: 1 << 29}})
		if err != nil {
			t.Fatal(err)
		}
		v := p.Decide(&Call{Kind: RunCommand, Argv: []string{"s"}, Operator: true})
		if v.Decision != Allow {
			t.Fatalf("%s: %s", v.Rule, v.Reason)
		}
		return v.Plan
	}
	bare := plan("bare")
	if bare.Isolation != "process" || bare.Network != nil || len(bare.Mounts) != 0 || len(bare.Env) != 0 || bare.Limits.Wall != 0 || bare.Limits.Memory != 1<<29 {
		t.Errorf("%+v", bare)
	}
	own := plan("own")
	if own.Isolation != "gvisor" || len(own.Network.Allow) != 1 || own.Network.Allow[0].Text != "own.example.com" || own.Network.Allow[0].From != "p.yaml:9" ||
		own.Mounts[0].Source != filepath.FromSlash("/etc/x/own") || own.Limits.Memory != 1<<30 {
		t.Errorf("%+v", own)
	}
	if f.Server("none") != nil {
		t.Error("a server that is not there")
	}
}

// TestServersInDigest: whatever a server's entry says is in the policy's digest.
func TestServersInDigest(t *testing.T) {
	seen := map[string]string{}
	for _, entry := range []string{
		``, `{name: a, command: [s]}`, `{name: b, command: [s]}`, `{name: a, command: [s, x]}`, `{name: a, command: [s], prefix: p}`,
		`{name: a, command: [s], tools: ["*"]}`, `{name: a, command: [s], tools: [{name: x, as: y}]}`, `{name: a, command: [s], tools: [{name: x, rate: 1/s}]}`,
		`{name: a, command: [s], tools: [{name: x, params: {type: object}}]}`, `{name: a, command: [s], deny_tools: [x]}`,
		`{name: a, command: [s], calls: {timeout: 1s}}`, `{name: a, command: [s], calls: {rate: 1/s}}`, `{name: a, command: [s], calls: {output: 5}}`,
		`{name: a, command: [s], calls: {parallel: 5}}`, `{name: a, command: [s], network: {allow: [a.example.com]}}`, `{name: a, command: [s], limits: {memory: 1GiB}}`,
	} {
		f, err := Parse("/p.yaml", []byte("version: 1\nservers: ["+entry+"]\n"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(Options{File: f})
		if err != nil {
			t.Fatal(err)
		}
		if other, twice := seen[p.Digest()]; twice {
			t.Errorf("%q and %q have one digest", entry, other)
		}
		seen[p.Digest()] = entry
	}
}

func TestParseCallRate(t *testing.T) {
	for s, want := range map[string]CallRate{"10/min": {10, time.Minute}, "5/s": {5, time.Second}, "100/h": {100, time.Hour}, "1000/day": {1000, 24 * time.Hour}} {
		if got, err := ParseCallRate(s); err != nil || got != want || got.String() != s {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "10", "10/", "/min", "0/min", "-1/s", "1.5/s", "10/week", "1e9/s", "10/min/s", "9999999999/s"} {
		if got, err := ParseCallRate(s); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
}
