// SPDX-License-Identifier: Apache-2.0

//go:build linux

package attack_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/attack"
	"github.com/caisson-run/caisson/attack/attacktest"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/mcp"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/operation"
)

// The policy with something out. Each turns exactly the cases red that are about it.

func policyOf(t *testing.T, name string, text []byte) *policy.Policy {
	t.Helper()
	f, err := policy.Parse(name, text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p, err := policy.New(policy.Options{File: f})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rewritten is an Office whose policy says something else.
func rewritten(t *testing.T, from, to string) func(*session.Options, *attack.Office) {
	return func(o *session.Options, _ *attack.Office) {
		text, err := os.ReadFile(o.PolicyName)
		if err != nil {
			t.Fatal(err)
		}
		o.Policy = policyOf(t, o.PolicyName, []byte(strings.ReplaceAll(string(text), from, to)))
	}
}

// believes takes everybody for the owner of this host.
type believes struct{ attack.Caller }

func (b believes) Do(ctx context.Context, c *session.Call, io session.IO) (*sandbox.Result, error) {
	c.Operator = true
	return b.Caller.Do(ctx, c, io)
}

// lenient runs what it cannot record.
type lenient struct {
	operation.Journal
	spare *audit.Log
}

func (l lenient) Begin(ctx context.Context, in audit.Intent) (*audit.Entry, error) {
	if e, err := l.Journal.Begin(ctx, in); err == nil {
		return e, nil
	}
	return l.spare.Begin(ctx, in)
}

// forgetful has what was approved of servers forgotten before each call.
type forgetful struct {
	operation.Journal
	pins *mcp.Pins
}

func (f forgetful) Begin(ctx context.Context, in audit.Intent) (*audit.Entry, error) {
	_ = os.RemoveAll(f.pins.Dir)
	return f.Journal.Begin(ctx, in)
}

func calling(t *testing.T, wrap func(attack.Caller) attack.Caller) func(*session.Options, *attack.Office) {
	return func(o *session.Options, office *attack.Office) {
		s, err := session.New(*o)
		if err != nil {
			t.Fatal(err)
		}
		office.Caller = wrap(s)
	}
}

func TestWithWeakerPolicy(t *testing.T) {
	spare, err := audit.Open(t.Context(), audit.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer spare.Close()
	const calls = "P09 P10"
	for name, c := range map[string]struct {
		office   func(*session.Options, *attack.Office)
		red, all string
	}{
		"everybody is the owner":     {calling(t, func(c attack.Caller) attack.Caller { return believes{c} }), "P09", calls},
		"servers are not remembered": {func(o *session.Options, office *attack.Office) { o.Journal = forgetful{o.Journal, office.Pins} }, "P10", calls},
		"what cannot be recorded":    {func(o *session.Options, _ *attack.Office) { o.Journal = lenient{o.Journal, spare} }, "P12", "P10 P12"},
		"what is marked":             {rewritten(t, "redact: [key]", ""), "P12", "P10 P12"},
		"a policy from nowhere":      {rewritten(t, "", ""), "F23", "F23"}, // it is known by its text alone
	} {
		t.Run(name, func(t *testing.T) {
			l := attacktest.Level{Driver: caisson.Drivers()["process"], Office: c.office}
			wantRed(t, attacktest.Run(t, l, strings.Fields(c.all)...), c.red)
		})
	}
}
