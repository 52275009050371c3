// SPDX-License-Identifier: Apache-2.0

package docker

import "github.com/caisson-run/caisson/internal/linux/cgroup"

// groupOf is the control group of a container's first process, or nil.
func groupOf(pid int) group {
	g := cgroup.Of(pid)
	if g == nil {
		return nil
	}
	return g
}
