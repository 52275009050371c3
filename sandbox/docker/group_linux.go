// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"os"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// groupOf is the control group of a container's first process, or nil.
func groupOf(pid int) group {
	g := cgroup.Of(pid)
	if g == nil {
		return nil
	}
	return g
}

// limitSockets does what the engine was asked for (KernelMemoryTCP) and its
// runtime leaves out: runc ignores it since 1.0. Only root can.
func limitSockets(g group, memory int64) error {
	own, ok := g.(*cgroup.Group)
	if !ok || memory <= 0 || os.Geteuid() != 0 {
		return nil
	}
	if err := own.LimitSockets(memory); err != nil {
		return &sandbox.Error{Op: "limit memory", Kind: sandbox.ErrUnavailable, Problem: "socket buffers cannot be bounded", Cause: err,
			Hint: "use cgroup v2, which counts them as memory"}
	}
	return nil
}
