// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// A limit of few processes is neither one more nor one less, although the control group
// of a sandbox counts what makes the program, too, for as long as that is there.
func TestFewProcesses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("what makes the program is the user's own, and counts as its own until it is gone")
	}
	d := process.New(process.Options{})
	for n := 1; n <= 3; n++ {
		for range 10 { // it is a race
			spec := world(t)
			spec.Limits.Processes = n
			// The shell gives up where it cannot fork, and those that wait end with it.
			var out, trouble bytes.Buffer
			_, err := d.Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"/bin/dash", "-c", "echo one; while :; do sleep 1000 & echo more; done"}, Dir: "/", Stdout: &out, Stderr: &trouble})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(out.String(), "\n"); got != n {
				t.Errorf("with a limit of %d: %d processes; %s", n, got, trouble.String())
			}
		}
	}
}
