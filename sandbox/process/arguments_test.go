// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// An argument that the kernel does not take is named, and what to do.
func TestLongArgument(t *testing.T) {
	d := process.New(process.Options{})
	for name, run := range roads {
		res, err := run(t.Context(), d, fixture(t), &sandbox.Exec{Argv: []string{"/bin/true", strings.Repeat("a", 200_000)}, Dir: "/"})
		if err != nil || res.ExitCode == nil || *res.ExitCode != 126 || !strings.Contains(res.Reason, "argument list too long: one argument may have 128 KiB") {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
}
