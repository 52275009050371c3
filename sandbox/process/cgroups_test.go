// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/process"
)

func TestGroupShownAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestGroupShown") }

// Programs find a control group with their limits, as it is nowhere on the host, and can
// neither change it nor get at the file system below.
func TestGroupShown(t *testing.T) {
	const look = `cd /sys/fs/cgroup && grep . *; sed -n '2,$p' /proc/cgroups | cut -f 1,2; grep -c ' - cgroup2 ' /proc/self/mountinfo
for f in memory.max /proc/cgroups; do echo 1 >$f; done; rm memory.max; umount /sys/fs/cgroup; mkdir /sys/fs/cgroup/a; touch /sys/a`
	const want = `cgroup.controllers:cpu memory pids
cpu.max:100000 100000
memory.current:4096
memory.max:268435456
memory.swap.max:0
pids.max:128
cpuset	0
cpu	0
cpuacct	0
memory	0
pids	0
1
`
	d := process.New(process.Options{})
	for name, run := range roads {
		var out, trouble bytes.Buffer
		spec := fixture(t)
		spec.Limits.Memory, spec.Limits.CPUs, spec.Limits.Processes = 256<<20, 1, 128
		res, err := run(t.Context(), d, spec, &sandbox.Exec{
			Argv: []string{"/bin/sh", "-c", look}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &trouble,
		})
		if err != nil || out.String() != want {
			t.Errorf("%s: %+v, %v: %s%s", name, res, err, out.String(), trouble.String())
		}
		if n := strings.Count(trouble.String(), "\n"); n != 6 {
			t.Errorf("%s: it can be changed: %s", name, trouble.String())
		}
	}
}
