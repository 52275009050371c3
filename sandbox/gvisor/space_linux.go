// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// spaceBound is how much address space this process may have, and with it gVisor's kernel,
// which reserves far more than it uses; empty where that is not bounded.
func spaceBound() string {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &own); err != nil || own.Cur == unix.RLIM_INFINITY {
		return ""
	}
	return fmt.Sprintf("%d MiB", own.Cur>>20)
}
