// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// kernelShare is what gVisor itself needs on top of the memory that programs
// may use: its heap, stacks and page tables, and what it keeps per page. It
// is generous: the limit is there to stop programs, not the kernel.
func kernelShare(memory int64) int64 { return 64<<20 + memory/32 }

// hostTasks bounds the host's tasks of a sandbox: gVisor's own threads, and
// stub processes for the tasks inside. The kernel inside holds the exact
// number (RLIMIT_NPROC); this one keeps a broken kernel from harming the host.
func hostTasks(processes int) int { return min(2*processes+512, cgroup.MostPids) }

// groupLimits is the part of l that the host's control groups can hold. Block
// I/O is held where scratch lies; a device that cannot be found out is an
// error (ErrUnsupported) when the limit was asked for.
func groupLimits(host *cgroup.Host, l *sandbox.Limits, stateDir string) (cgroup.Limits, error) {
	var g cgroup.Limits
	can := func(controller string) bool { ok, _ := host.Can(controller); return ok }
	if l.Memory > 0 && can(cgroup.Memory) {
		g.Memory = l.Memory + kernelShare(l.Memory)
	}
	if l.CPUs > 0 && can(cgroup.CPU) {
		g.CPUs = l.CPUs
	}
	if l.Processes > 0 && can(cgroup.Pids) {
		g.Pids = hostTasks(l.Processes)
	}
	if (l.IO > 0 || l.IOPS > 0) && can(cgroup.IO) && host.Version == 2 {
		device, err := cgroup.BlockDevice(stateDir)
		if err != nil {
			return g, err
		}
		g.IO, g.IOPS, g.Devices = l.IO, l.IOPS, []cgroup.Device{device}
	}
	return g, nil
}
