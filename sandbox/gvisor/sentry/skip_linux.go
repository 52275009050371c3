// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"slices"
	"sync"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/log"
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

// skipLogging keeps the halves from formatting what nobody reads: without
// --debug gVisor writes its log to nowhere, but does write it.
func skipLogging(args []string) {
	if !slices.Contains(args, "--debug=true") {
		log.SetLevel(log.Warning)
	}
}
