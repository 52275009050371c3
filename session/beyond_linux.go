// SPDX-License-Identifier: Apache-2.0

package session

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// hostHas is how many processors and bytes of memory this host has; 0 where that cannot be
// told.
func hostHas() (cpus int, memory int64) {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		memory = int64(info.Totalram) * int64(info.Unit)
	}
	return runtime.NumCPU(), memory
}
