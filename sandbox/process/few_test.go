// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// A limit of few processes is neither one more nor one less, although what makes the
// program is counted, too, for as long as it is there: by the control group of a sandbox,
// and as the same user where that is an ordinary one.
func TestFewProcesses(t *testing.T) {
	d := process.New(process.Options{})
	for name, run := range roads {
		for n := 1; n <= 3; n++ {
			for range 10 { // it is a race
				spec := fixture(t)
				spec.Limits.Processes = n
				// The shell gives up where it cannot fork, and those that wait end with it.
				var out, trouble bytes.Buffer
				_, err := run(t.Context(), d, spec, &sandbox.Exec{Argv: []string{"/bin/dash", "-c", "echo one; while :; do sleep 1000 & echo more; done"}, Dir: "/", Stdout: &out, Stderr: &trouble})
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Count(out.String(), "\n"); got != n {
					t.Errorf("%s, with a limit of %d: %d processes; %s", name, n, got, trouble.String())
				}
			}
		}
	}
}

// That a fork failed is told by the control group, and so where that holds the limit. The
// level says where it does.
func TestFewAreNotNamed(t *testing.T) {
	d := process.New(process.Options{})
	c, err := d.Probe(t.Context())
	if err != nil || !strings.Contains(c.Limits[sandbox.LimitProcesses].Detail, fmt.Sprintf("limits_hit names it where that holds it, from %d on", sandbox.LeastAgentProcesses)) {
		t.Errorf("%+v, %v", c.Limits[sandbox.LimitProcesses], err)
	}
	for n, named := range map[int]bool{2: false, sandbox.LeastAgentProcesses: c.Limits[sandbox.LimitCPUs].Enforcement == sandbox.Enforced} {
		spec := fixture(t)
		spec.Limits.Processes = n
		res, err := d.Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"/bin/dash", "-c", "while :; do sleep 1000 & done"}, Dir: "/"})
		if err != nil || slices.Contains(res.LimitsHit, sandbox.LimitProcesses) != named {
			t.Errorf("with a limit of %d: %+v, %v", n, res, err)
		}
	}
}
