// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/internal/linux/hostfacts"
	"github.com/caisson-run/caisson/sandbox"
)

func TestDoctorSaysWhatTheHostLacks(t *testing.T) {
	userns := hostfacts.Problem{What: "user namespaces", Why: "AppArmor restricts them", Remedy: "sysctl x", Levels: []string{"gvisor", "process"}}
	ptrace := hostfacts.Problem{What: "ptrace", Why: "Yama forbids it", Levels: []string{"gvisor"}}
	kvm := hostfacts.Problem{What: "KVM", Why: "there is no /dev/kvm", Levels: []string{"microvm"}}
	disk := hostfacts.Problem{What: "disk space", Why: "less than 1 GiB is free", Remedy: "free some"}
	limits := hostfacts.Problem{What: "limits by control groups", Why: "none was delegated"} // the driver says so itself
	for name, c := range map[string]struct {
		own      sandbox.Capabilities
		problems []hostfacts.Problem
		want     sandbox.Capabilities
	}{
		"nothing":          {},
		"another level's":  {problems: []hostfacts.Problem{kvm, limits}},
		"one":              {problems: []hostfacts.Problem{userns}, want: sandbox.Capabilities{Unusable: "AppArmor restricts them", Remedy: "sysctl x"}},
		"two":              {problems: []hostfacts.Problem{userns, ptrace}, want: sandbox.Capabilities{Unusable: "AppArmor restricts them", Remedy: "sysctl x", Notes: []string{"Yama forbids it"}}},
		"the driver's too": {sandbox.Capabilities{Unusable: "wrong machine"}, []hostfacts.Problem{userns}, sandbox.Capabilities{Unusable: "wrong machine", Notes: []string{"AppArmor restricts them (fix: sysctl x)"}}},
		"a full disk":      {sandbox.Capabilities{Notes: []string{"own"}}, []hostfacts.Problem{disk}, sandbox.Capabilities{Notes: []string{"own", "less than 1 GiB is free (fix: free some)"}}},
	} {
		if diff := cmp.Diff(c.want, missing("gvisor", c.own, c.problems)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Before the first run there is no state directory, and its disk is asked about all the same.
func TestStatePath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	t.Setenv("CAISSON_STATE", dir)
	if got := (&app{}).statePath(); got != dir {
		t.Errorf("%q, want %q", got, dir)
	}
}
