// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// TestNoWall: limits.wall none is for what the operator runs alone; the system's
// policy bounds it.
func TestNoWall(t *testing.T) {
	longer := wantLimit("wall", float64(10*time.Hour))
	for _, tc := range []struct {
		name, system string
		call         func(*Call)
		want         time.Duration
		rule         string
	}{
		{"the operator's run", "", nil, 0, ""},
		{"bounded by a flag", "", longer, 10 * time.Hour, ""},
		{"a client's", "", stranger, sandbox.DefaultLimits().Wall, ""},
		{"a client's wish", "", together(stranger, longer), 0, "/w/p.yaml"},
		{"a sandbox that goes on", "", func(c *Call) { c.Kind, c.Argv = StartSandbox, nil }, sandbox.DefaultLimits().Wall, ""},
		{"beyond the system's", "limits: {wall: 1h}", nil, 0, "/etc/caisson/policy.yaml:2"},
		{"beyond the system's default", "user: user", nil, 0, "/etc/caisson/policy.yaml"},
		{"as the system's", "limits: {wall: none}", nil, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := policyOf(t, tc.system, "limits: {wall: none}").Decide(command(tc.call))
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
