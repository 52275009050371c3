// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCooling: a layer says how sandboxes go cold, and either one that they do not.
func TestCooling(t *testing.T) {
	both := func(freeze, disk time.Duration) *PlanCooling { return &PlanCooling{freeze, disk} }
	for name, c := range map[string]struct {
		system, file string
		want         *PlanCooling
	}{
		"nothing":            {"", "", nil},
		"on":                 {"", "cooling: on", both(time.Minute, 10*time.Minute)},
		"off":                {"", "cooling: off", nil},
		"one step":           {"", "cooling: {disk: 90s}", both(0, 90*time.Second)},
		"a step that is off": {"", "cooling: {freeze: 30s, disk: off}", both(30*time.Second, 0)},
		"the system's":       {"cooling: {freeze: 5s}", "user: user", both(5*time.Second, 0)},
		"both":               {"cooling: {freeze: 5s}", "cooling: on", both(time.Minute, 10*time.Minute)},
		"the system's off":   {"cooling: off", "cooling: on", nil},
		"the file's off":     {"cooling: on", "cooling: off", nil},
	} {
		var o Options
		for text, to := range map[string]**File{c.system: &o.System, c.file: &o.File} {
			if text == "" {
				continue
			}
			f, err := Parse("/w/p.yaml", []byte("version: 1\n"+text+"\n"))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			*to = f
		}
		p, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		v := p.Decide(&Call{Kind: StartSandbox})
		if diff := cmp.Diff(c.want, v.Plan.Cooling); diff != "" || v.Decision != Allow {
			t.Errorf("%s: %v\n%s", name, v.Err(), diff)
		}
	}
	for text, want := range map[string]string{
		"cooling: yes":                      "cooling",
		"cooling: {}":                       "no step",
		"cooling: {freeze: off, disk: off}": "no step",
		"cooling: {freeze: 2m, disk: 1m}":   "before it stands still",
		"cooling: {disk: 10ms}":             "too short",
		"cooling: {warm: 1m}":               "no key",
	} {
		if _, err := Parse("p.yaml", []byte("version: 1\n"+text+"\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
