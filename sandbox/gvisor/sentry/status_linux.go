// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"context"
	"encoding/binary"
	"os"
	"strconv"

	"github.com/google/subcommands"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/flag"
)

// StatusFD is the number under which the shim passes a pipe to the kernel, for the
// wait status of the first program. Where that ends before the shim asks for it,
// gVisor makes do with the kernel's own exit code, which is 139 for a program that
// SIGSEGV has killed and for one that ends with 139. Like [ScratchFD] it never
// becomes a descriptor inside.
const StatusFD = ScratchFD - 1

// statusVariable keeps the pipe's real number while the kernel executes itself
// again, with arguments of gVisor's making.
const statusVariable = "CAISSON_STATUS_FD"

// boot is gVisor's kernel, and says at its end how its first program has ended, and what
// was changed.
type boot struct{ sentrycmd.Boot }

// Execute implements subcommands.Command.
func (b *boot) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	fd, err := strconv.Atoi(os.Getenv(statusVariable))
	code := b.Boot.Execute(ctx, f, args...)
	if err == nil && code == subcommands.ExitSuccess {
		status := args[1].(*unix.WaitStatus)
		_, _ = unix.Write(fd, binary.NativeEndian.AppendUint32(nil, uint32(*status)))
		if wanted != nil && wanted.AtEnd {
			wanted.serve()
		}
	}
	return code
}
