// SPDX-License-Identifier: Apache-2.0

// Package uncounted keeps gVisor from preparing, in every process of a sandbox and
// before main, to count system calls that it lacks by their number: a metric with
// two thousand possible values, three quarters of the memory and of the time that
// its package of system calls takes to initialise. Nobody reads the metric here.
//
// Like package umounter it works in package init, and is done before gVisor's
// packages begin, since it imports next to nothing. Where that order should ever be
// another, gVisor prepares as it did. The kernel counts all the same, all numbers as
// one (package sentry, countMissing): it looks for its counter at each such call.
package uncounted

import (
	"sync"
	_ "unsafe" // for go:linkname
)

// numbers is done when gVisor has made its counter of missing system calls.
//
//go:linkname numbers gvisor.dev/gvisor/pkg/sentry/kernel.unimplementedSyscallCounterInit
var numbers sync.Once

func init() { numbers.Do(func() {}) }
