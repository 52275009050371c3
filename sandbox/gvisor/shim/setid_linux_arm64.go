// SPDX-License-Identifier: Apache-2.0

package shim

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

var modeCalls = []modeCall{
	{unix.SYS_FCHMODAT, 2}, {unix.SYS_FCHMODAT2, 2}, {unix.SYS_FCHMOD, 1}, {unix.SYS_OPENAT, 3}, {unix.SYS_MKNODAT, 2},
}
