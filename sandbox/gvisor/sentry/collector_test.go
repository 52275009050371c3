// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sentry

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestCollectAt(t *testing.T) {
	for live, want := range map[int64]int{0: 4700, 4 << 20: 1100, 16 << 20: 200, 24 << 20: 100, 32 << 20: 50, 48 << 20: 50, 1 << 40: 50} {
		if got := collectAt(live); got != want {
			t.Errorf("collectAt(%d) = %d, want %d", live, got, want)
		}
	}
}

// A heap that has outgrown the limit has none any more: it would be collected all the time.
func TestLargeHeap(t *testing.T) {
	defer debug.SetGCPercent(100)
	defer debug.SetMemoryLimit(math.MaxInt64)
	tuneCollector()
	live := make([][]byte, 2*collectFrom>>12)
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for range 1000 {
		for i := range live {
			live[i] = make([]byte, 1<<12)
		}
		if metrics.Read(percent); percent[0].Value.Uint64() == garbage && debug.SetMemoryLimit(-1) == math.MaxInt64 {
			runtime.KeepAlive(live)
			return
		}
	}
	t.Errorf("the limit is %d, and %d %% of garbage are kept", debug.SetMemoryLimit(-1), percent[0].Value.Uint64())
}
