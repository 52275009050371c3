// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// TestNoWall: limits.wall none is for what the operator runs alone; the system's
// policy bounds it.
func TestNoWall(t *testing.T) {
	longer := wantLimit("wall", float64(10*time.Hour))
	terminal := func(c *Call) { c.Terminal = true }
	for _, tc := range []struct {
		name, system string
		file         string // "limits: {wall: none}" where it is empty
		call         func(*Call)
		want         time.Duration
		rule         string
	}{
		{"a terminal", "", "user: user", terminal, 0, ""},
		{"a terminal, with a flag", "", "user: user", together(terminal, longer), 10 * time.Hour, ""},
		{"a terminal, with a limit", "", "limits: {wall: 1m}", terminal, time.Minute, ""},
		{"a terminal, beyond the limit", "", "limits: {wall: 1m}", together(terminal, longer), 0, "/w/p.yaml:2"},
		{"a terminal, and the system's limit", "limits: {wall: 1m}", "user: user", terminal, time.Minute, ""},
		{"a terminal, and a system's policy", "user: user", "user: user", terminal, 0, ""},
		{"a client's terminal", "", "user: user", together(stranger, terminal), sandbox.DefaultLimits().Wall, ""},
		{"no terminal", "", "user: user", nil, sandbox.DefaultLimits().Wall, ""},
		{"the operator's run", "", "", nil, 0, ""},
		{"bounded by a flag", "", "", longer, 10 * time.Hour, ""},
		{"a client's", "", "", stranger, sandbox.DefaultLimits().Wall, ""},
		{"a client's wish", "", "", together(stranger, longer), 0, "/w/p.yaml"},
		{"a sandbox that goes on", "", "", func(c *Call) { c.Kind, c.Argv = StartSandbox, nil }, sandbox.DefaultLimits().Wall, ""},
		{"beyond the system's", "limits: {wall: 1h}", "", nil, 0, "/etc/caisson/policy.yaml:2"},
		{"beyond the system's default", "user: user", "", nil, 0, "/etc/caisson/policy.yaml"},
		{"as the system's", "limits: {wall: none}", "", nil, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := policyOf(t, tc.system, cmp.Or(tc.file, "limits: {wall: none}")).Decide(command(tc.call))
			if tc.rule != "" {
				if v.Decision != Deny || v.Rule != tc.rule {
					t.Fatalf("%v by %q: %s; want a refusal by %q", v.Decision, v.Rule, v.Reason, tc.rule)
				}
				return
			}
			if v.Decision != Allow || v.Plan.Limits.Wall != tc.want {
				t.Fatalf("%v, wall %v (%s); want %v", v.Decision, v.Plan.Limits.Wall, v.Reason, tc.want)
			}
		})
	}
}
