// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"slices"
	"strconv"
	"sync"
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/metric"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/caisson-run/caisson/sandbox/gvisor/starter"
)

// What gVisor does at every start and caisson has no use for is left out here.

// tracePoints is done when gVisor's table of trace points has been made.
//
//go:linkname tracePoints gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var tracePoints sync.Once

// skipTracePoints keeps gVisor from describing some 60 points at which its
// owner could have a program's system calls reported to a log collector. A
// session that asks for one does not find it then; caisson starts none. It is
// 2.4 ms of processor time, most of it reflection.
func skipTracePoints() { tracePoints.Do(func() {}) }

// missing is gVisor's counter of the system calls that it lacks, and anyNumber what it
// calls one whose number it does not know. Nothing else has made the counter where
// package uncounted was in time.
//
//go:linkname missing gvisor.dev/gvisor/pkg/sentry/kernel.unimplementedSyscallCounter
var missing *metric.Uint64Metric

//go:linkname anyNumber gvisor.dev/gvisor/pkg/sentry/kernel.outOfRangeSyscallNumber
var anyNumber []*metric.FieldValue

// countMissing gives the kernel a counter that knows no numbers. Without one the first
// call that gVisor lacks would end it. Like all metrics it has to be there before
// gVisor begins to count.
func countMissing() {
	if missing == nil {
		missing = metric.MustCreateNewUint64Metric("/unimplemented_syscalls", metric.Uint64Metadata{
			Cumulative: true, Sync: true, Description: "system calls that gVisor lacks",
			Fields: []metric.Field{metric.NewField("sysno", anyNumber...)},
		})
	}
}

// skipLogging keeps the halves from formatting what nobody reads: without
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
	f, err := starter.Umounter("/proc")
	if err != nil {
		return // then it is package umounter's turn
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
