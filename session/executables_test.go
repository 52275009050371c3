// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// listed runs prog under a list of commands on a level that can hold it, and gives
// what the level was told and what the result says.
func listed(t *testing.T, commands string, call *Call) (*sandbox.Executables, *sandbox.Result, error) {
	t.Helper()
	f, err := policy.Parse("/w/p.yaml", []byte("version: 1\ncommands: "+commands+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policy.New(policy.Options{File: f})
	if err != nil {
		t.Fatal(err)
	}
	d := &stub{caps: func(c *sandbox.Capabilities) { c.Executables = true }}
	b := newBench(t, d, func(o *Options) { o.Policy = rules })
	res, err := b.Do(t.Context(), call, IO{})
	if d.spec == nil {
		return nil, res, err
	}
	return d.spec.Executables, res, err
}

func TestExecutables(t *testing.T) {
	of := func(argv ...string) *Call { return like(func(c *Call) { c.Argv = argv }) }
	x, res, err := listed(t, "{allow: [cat, {name: python3, args: [-m json]}, no-such-program]}", of("cat", "f"))
	if err != nil || x == nil || res.Posture.Commands != "enforced" {
		t.Fatalf("%+v, %+v, %v", x, res, err)
	}
	for _, name := range []string{"/usr/bin/cat", "/usr/bin/python3", "/bin/sh", "/usr/bin/env", "/lib64/ld-linux-x86-64.so.2"} {
		real, err := filepath.EvalSymlinks(name)
		if err != nil {
			continue // another machine's loader
		}
		if !slices.Contains(x.Files, real) {
			t.Errorf("%s, which is %s, is not among %q", name, real, x.Files)
		}
	}
	for _, name := range x.Files {
		if base := filepath.Base(name); base == "id" || base == "perl" || base == "git" {
			t.Errorf("%s may be executed", name)
		}
		if real, err := filepath.EvalSymlinks(name); err != nil || real != name {
			t.Errorf("%s is %s, %v", name, real, err)
		}
	}
	if !slices.Contains(x.Closed, "/usr/bin") {
		t.Errorf("closed are %q", x.Closed)
	}
	for _, tt := range []struct {
		commands string
		call     *Call
		enforced bool
	}{
		{"{allow: [cat, git]}", of("cat"), true},
		{"{allow: []}", of("echo"), true},
		{"{deny: [rm]}", of("cat"), false},
		{`{allow: ["*"]}`, of("cat"), false},
		{`{allow: [cat, {name: make, args: ["**"]}]}`, of("cat"), false},
		{`{allow: [cat, {name: make, args: ["**"]}], enforce: true}`, of("cat"), true},
		{"{allow: [cat], enforce: false}", of("cat"), false},
	} {
		x, res, err := listed(t, tt.commands, tt.call)
		if err != nil || (x != nil) != tt.enforced || (res.Posture.Commands == "enforced") != tt.enforced {
			t.Errorf("%s: %v, %+v, %v", tt.commands, x, res, err)
		}
	}
	if _, _, err := listed(t, `{allow: ["*"], enforce: true}`, of("cat")); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "commands.enforce") {
		t.Errorf("a list of everything: %v", err)
	}
}
