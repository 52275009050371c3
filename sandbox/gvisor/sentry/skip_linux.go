// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/caisson-run/caisson/sandbox/gvisor/prestart"
)

// What gVisor does at every start and caisson has no use for is left out here.

// skipLogging keeps gofer and sentry from formatting what is not read: without
// --debug gVisor writes its log to nowhere, but does write it.
func skipLogging(args []string) {
	if !slices.Contains(args, "--debug=true") {
		log.SetLevel(log.Warning)
	}
}

// lightenUnmount makes the kernel execute a tiny program to unmount its /proc
// in place of the whole binary. A kernel that will execute itself again
// (without privilege it must, to drop its own) still finds the binary: gVisor
// has one name for both.
func lightenUnmount(args []string) {
	if slices.Contains(args, "--rootless=true") || !slices.Contains(args, "--apply-caps=true") {
		return
	}
	f, err := prestart.Umounter("/proc")
	if err != nil {
		return // then gVisor executes the whole binary
	}
	defer f.Close()
	// A bare number, which is never closed, and one that os/exec does not use
	// for what it passes on.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 200)
	if err != nil {
		return
	}
	specutils.ExePath = "/proc/self/fd/" + strconv.Itoa(fd)
}
