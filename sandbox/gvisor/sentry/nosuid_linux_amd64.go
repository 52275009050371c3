// SPDX-License-Identifier: Apache-2.0

package sentry

import "golang.org/x/sys/unix"

// oldModeArgs are the calls that newer architectures do not have.
var oldModeArgs = []modeArg{
	{unix.SYS_CHMOD, 1}, {unix.SYS_OPEN, 2}, {unix.SYS_CREAT, 1}, {unix.SYS_MKNOD, 1}, {unix.SYS_MKDIR, 1},
}
