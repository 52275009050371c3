// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// Programs see as many processors as they get the time of, also when they ask for more.
func TestProcessorsShown(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("needs two processors")
	}
	spec := fixture(t)
	spec.Limits.CPUs = 0.5
	var out bytes.Buffer
	res, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"/usr/bin/python3", "-I", "-S", "-c", `import os
print(len(os.sched_getaffinity(0)))
os.sched_setaffinity(0, {0, 1})
print(len(os.sched_getaffinity(0)))
os.sched_setaffinity(0, {1})
print(os.sched_getaffinity(0))`}, Dir: "/", Stdout: &out})
	if err != nil || res.Status != sandbox.StatusSuccess || out.String() != "1\n1\n{1}\n" && runtime.NumCPU() == 2 {
		t.Errorf("%+v, %v: %q", res, err, out.String())
	}
}
