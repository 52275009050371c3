// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkRun is what a `caisson run` pays: it opens the log, records both
// ends of a call, and exits without Close. The directory lies on the disk of
// TMPDIR; each part is reported for itself.
func BenchmarkRun(b *testing.B) {
	dir := b.TempDir()
	call(b, open(b, dir), "warm")
	var openMS, beginMS, endMS float64
	timed := func(ms *float64, do func()) {
		before := b.Elapsed()
		do()
		*ms += (b.Elapsed() - before).Seconds() * 1000
	}
	for b.Loop() {
		var l *Log
		var e *Entry
		var err error
		timed(&openMS, func() { l, err = Open(ctx, Options{Dir: dir}) })
		must(b, err)
		timed(&beginMS, func() { e, err = l.Begin(ctx, intent("a")) })
		must(b, err)
		timed(&endMS, func() { err = e.End(ctx, outcome("a")) })
		must(b, err)
		b.StopTimer()
		l.Close()
		b.StartTimer()
	}
	for name, ms := range map[string]float64{"open": openMS, "begin": beginMS, "end": endMS} {
		b.ReportMetric(ms/float64(b.N), name+"-ms/op")
	}
}

// BenchmarkEntry is what a call costs in a process that keeps the log open.
func BenchmarkEntry(b *testing.B) {
	l := open(b, b.TempDir())
	for b.Loop() {
		call(b, l, "a")
	}
}

// BenchmarkGrouped is how many records a second are on disk where calls come in
// parallel, as a daemon has them: intent and outcome of each, with a sync that many
// share.
func BenchmarkGrouped(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(callers, "-callers"), func(b *testing.B) {
			l := open(b, b.TempDir())
			call(b, l, "warm")
			var wg sync.WaitGroup
			var next atomic.Int64
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						call(b, l, fmt.Sprint(n))
					}
				})
			}
			wg.Wait()
			b.ReportMetric(2*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkVerify reads a log of 2001 records.
func BenchmarkVerify(b *testing.B) {
	l := open(b, b.TempDir())
	for i := range 1000 {
		call(b, l, fmt.Sprint(i))
	}
	for b.Loop() {
		rep, err := l.Verify(ctx)
		must(b, err)
		wantOK(b, rep)
	}
}
