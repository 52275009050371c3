// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// collectFrom is how many bytes a heap has when garbage is first collected in it.
	collectFrom = 48 << 20
	// garbage is how much a larger heap may hold of it, in per cent of what lives.
	garbage = 50
)

// tuneCollector keeps the garbage collector out of the way while the kernel boots: the
// heap is small then and a cycle costs more than it frees (84 → 70 ms for a cold start,
// measured). The limit of memory is what begins the first cycle.
//
// It goes then: a heap that stays above it, as that of a kernel with 30,000 files does,
// is collected without a pause (14 of the 21 s in which a program made 45,000 files).
// Garbage counts as the sandbox's memory, so large heaps have little of it.
func tuneCollector() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(collectFrom)
	atCycle(func() { debug.SetMemoryLimit(math.MaxInt64) })
}

// atCycle does something after the next cycle, and says after each when the one after it begins.
func atCycle(do func()) {
	runtime.AddCleanup(new([64]byte), func(do func()) {
		debug.SetGCPercent(collectAt(heapLive()))
		do()
		atCycle(func() {})
	}, do)
}

// collectAt is by how many per cent a heap of which live bytes are in use grows until the
// next cycle.
func collectAt(live int64) int {
	live = max(live, 1<<20)
	return int(max(garbage, 100*(collectFrom-live)/live))
}

// heapLive is how many bytes the last cycle has found in use.
func heapLive() int64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(s[0].Value.Uint64())
}
