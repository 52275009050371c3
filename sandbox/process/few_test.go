// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
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
				spec := world(t)
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
