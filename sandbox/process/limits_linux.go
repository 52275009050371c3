// SPDX-License-Identifier: Apache-2.0

package process

import (
	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// initShare is what init and the kernel's bookkeeping for it take of memory.
const initShare = 1 << 20

// groupLimits is the part of l that the host's control groups can hold. Block
// I/O is held where scratch would lie; a device that cannot be found out is an
// error (ErrUnsupported) when the limit was asked for.
func groupLimits(host *cgroup.Host, l *sandbox.Limits, stateDir string) (cgroup.Limits, error) {
	var g cgroup.Limits
	can := func(controller string) bool { ok, _ := host.Can(controller); return ok }
	if l.Memory > 0 && can(cgroup.Memory) {
		g.Memory = l.Memory + initShare
	}
	if l.CPUs > 0 && can(cgroup.CPU) {
		g.CPUs = l.CPUs
	}
	if l.Processes > 0 && can(cgroup.Pids) {
		g.Pids = min(l.Processes+1, cgroup.MostPids) // with init
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
