// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// There is one pool of pseudoterminals for all sandboxes of a machine.
func TestTerminalsAreBounded(t *testing.T) {
	var out strings.Builder
	res, err := process.New(process.Options{}).Run(t.Context(), fixture(t), &sandbox.Exec{
		Argv: []string{"/bin/bash", "-c", `for n in {1..200}; do exec {fd}<>/dev/ptmx && echo one; done 2>/dev/null`}, Dir: "/tmp", Stdout: &out,
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "one"); n < 1 || n > 64 {
		t.Errorf("%d pseudoterminals were had, %+v", n, res)
	}
}
