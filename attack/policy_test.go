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
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/session"
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

// lenient runs what it cannot record.
type lenient struct {
	audit.Journal
	spare *audit.Log
}

func (l lenient) Begin(ctx context.Context, in audit.Intent) (*audit.Entry, error) {
	if e, err := l.Journal.Begin(ctx, in); err == nil {
		return e, nil
	}
	return l.spare.Begin(ctx, in)
}

func TestWithWeakerPolicy(t *testing.T) {
	spare, err := audit.Open(t.Context(), audit.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer spare.Close()
	for name, c := range map[string]struct {
		office   func(*session.Options, *attack.Office)
		red, all string
	}{
		"what cannot be recorded": {func(o *session.Options, _ *attack.Office) { o.Journal = lenient{o.Journal, spare} }, "P12", "P12"},
		"what is marked":          {rewritten(t, "redact: [key]", ""), "P12", "P12"},
		"a policy from nowhere":   {rewritten(t, "", ""), "F23", "F23"}, // it is known by its text alone
	} {
		t.Run(name, func(t *testing.T) {
			l := attacktest.Level{Driver: caisson.Drivers()["process"], Office: c.office}
			wantRed(t, attacktest.Run(t, l, strings.Fields(c.all)...), c.red)
		})
	}
}
