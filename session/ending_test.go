// SPDX-License-Identifier: Apache-2.0

package session

import (
	"slices"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/network"
)

// A program that its own RLIMIT_CPU ended has met the limit; one that sent
// itself the signal has not.
func TestSettleTellsCPUTimeFromItsSignal(t *testing.T) {
	ms := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		cpu   *int64
		limit time.Duration
		want  sandbox.LimitName
	}{
		"used up":        {ms(1004), time.Second, sandbox.LimitCPUTime},
		"on a busy host": {ms(720), time.Second, sandbox.LimitCPUTime},
		"its own signal": {ms(12), time.Second, ""},
		"not measured":   {nil, time.Second, ""},
		"no limit":       {ms(5000), 0, ""},
	} {
		r := &sandbox.Result{Status: sandbox.StatusError, Signal: "SIGXCPU", CPUMS: c.cpu}
		settle(t.Context(), r, sandbox.Limits{CPUTime: c.limit})
		if r.Resource != c.want || (r.Status == sandbox.StatusResourceExceeded) != (c.want != "") || (r.Reason != "") != (c.want != "") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A program that failed when its network was closed under it was ended by the budget,
// however quick it was; one that did not fail has only come near.
func TestSettleBudget(t *testing.T) {
	for _, c := range []struct {
		used string
		have sandbox.Status
		want sandbox.Status
		near bool
	}{
		{"", sandbox.StatusError, sandbox.StatusError, false},
		{"egress", sandbox.StatusError, sandbox.StatusResourceExceeded, false},
		{"egress", sandbox.StatusSuccess, sandbox.StatusSuccess, true},
		{"egress", sandbox.StatusTimeout, sandbox.StatusTimeout, false},
	} {
		var used *network.BudgetError
		if c.used != "" {
			used = &network.BudgetError{Budget: c.used}
		}
		res := &sandbox.Result{Status: c.have}
		settleBudget(used, res)
		if res.Status != c.want || (res.Resource == sandbox.LimitNetwork) != (c.want == sandbox.StatusResourceExceeded) || slices.Contains(res.LimitsHit, sandbox.LimitNetwork) != c.near {
			t.Errorf("%+v: %+v", c, res)
		}
	}
}
