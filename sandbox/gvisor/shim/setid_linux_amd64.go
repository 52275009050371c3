// SPDX-License-Identifier: Apache-2.0

package shim

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// x32 is the bit in the number of a call of the x32 ABI, which some kernels
// have beside the usual one, with the same arguments.
const x32 = 0x40000000

var modeCalls = []modeCall{
	{unix.SYS_FCHMODAT, 2}, {unix.SYS_FCHMODAT2, 2}, {unix.SYS_FCHMOD, 1}, {unix.SYS_CHMOD, 1},
	{unix.SYS_OPENAT, 3}, {unix.SYS_OPEN, 2}, {unix.SYS_CREAT, 1}, {unix.SYS_MKNODAT, 2}, {unix.SYS_MKNOD, 1},
	{x32 | unix.SYS_FCHMODAT, 2}, {x32 | unix.SYS_FCHMODAT2, 2}, {x32 | unix.SYS_FCHMOD, 1}, {x32 | unix.SYS_CHMOD, 1},
	{x32 | unix.SYS_OPENAT, 3}, {x32 | unix.SYS_OPEN, 2}, {x32 | unix.SYS_CREAT, 1}, {x32 | unix.SYS_MKNODAT, 2}, {x32 | unix.SYS_MKNOD, 1},
}
