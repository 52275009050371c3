// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// watches makes what the kernel keeps in its own memory: half a million watches of epoll.
const watches = `
import os, select
pipes = [os.pipe() for _ in range(350)]
polls = [select.epoll() for _ in range(800)]
for p in polls:
    for r, w in pipes: p.register(r, select.EPOLLIN); p.register(w, select.EPOLLOUT)
print("made")
`

// The kernel's memory for what code makes counts against the memory limit. Without a
// control group it does not, which shows that the program takes enough of it.
func TestKernelMemoryCounts(t *testing.T) {
	limits, err := process.New(process.Options{}).Probe(t.Context())
	if err != nil || limits.Limits[sandbox.LimitMemory].Enforcement != sandbox.Enforced {
		t.Skip("needs a control group that holds memory, and this host has none")
	}
	for _, c := range []struct {
		name string
		o    process.Options
		want sandbox.LimitName
	}{{"group", process.Options{}, sandbox.LimitMemory}, {"no group", process.Options{NoCgroups: true}, ""}} {
		t.Run(c.name, func(t *testing.T) {
			spec := fixture(t)
			spec.Limits.Memory, spec.Limits.OpenFiles = 48<<20, 2048
			var out bytes.Buffer
			res, err := process.New(c.o).Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"python3", "-I", "-S", "-c", watches}, Dir: "/", Stdout: &out, Stderr: &out})
			if err != nil || res.Resource != c.want || (c.want == "") != (out.String() == "made\n") {
				t.Errorf("%+v, %v\n%s", res, err, &out)
			}
		})
	}
}
