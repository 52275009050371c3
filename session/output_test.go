// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caisson-run/caisson/sandbox"
)

// Whatever is written, in whatever pieces: what passes is the beginning and the end, up to
// the limit, and the rest is counted.
func TestStreamCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 200).Draw(t, "limit")
		pieces := rapid.SliceOf(rapid.SliceOfN(rapid.ByteRange(0, 127), 0, 90)).Draw(t, "pieces")
		crossed := 0
		s := newStream(context.Background(), "stdout", nil, sandbox.Limits{Output: limit}, func() { crossed++ })
		var all []byte
		for _, p := range pieces {
			if n, err := s.Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
			all = append(all, p...)
		}
		want := all
		if limit > 0 && int64(len(all)) > limit {
			t := tailOf(limit)
			want = append(all[:limit-t:limit-t], all[int64(len(all))-t:]...)
		}
		if diff := cmp.Diff(string(want), string(s.bytes())); diff != "" {
			t.Fatal(diff)
		}
		cut := int64(len(all) - len(want))
		if got, _ := s.cut(); got != cut || (crossed == 1) != (cut > 0) || crossed > 1 {
			t.Fatalf("cut %d of %d, crossed %d times", got, cut, crossed)
		}
	})
}

func TestStreamMemoryIsFlat(t *testing.T) {
	pass := newStream(t.Context(), "stdout", io.Discard, sandbox.Limits{}, nil)
	cut := newStream(t.Context(), "stderr", nil, sandbox.Limits{Output: 1 << 20}, nil)
	p := make([]byte, 1<<20)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 512 {
		pass.Write(p)
		cut.Write(p)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("1 GiB of output holds %d bytes", grown)
	}
	pass.pump.drain(t.Context())
	if a, _ := pass.cut(); a != 0 {
		t.Errorf("cut %d of what has no limit", a)
	}
	if a, _ := cut.cut(); a != 511<<20 {
		t.Errorf("cut %d", a)
	}
}

func TestWallBeginsAnewWhenTheProgramStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		over := make(chan time.Duration, 1)
		w := startWall(sandbox.Limits{Wall: time.Second}, startAllowance, func(error) { over <- time.Since(began) })
		time.Sleep(5 * time.Second) // virtual: a slow start
		w.started()
		if got := <-over; got != 6*time.Second {
			t.Errorf("over after %v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		over := make(chan error, 1)
		w := startWall(sandbox.Limits{Wall: time.Second}, startAllowance, func(e error) { over <- e })
		if err := <-over; err.(*Ending).Resource != sandbox.LimitWall { // it never started
			t.Errorf("got %v", err)
		}
		w.started() // too late
		time.Sleep(time.Minute)
		if len(over) != 0 {
			t.Error("it ended twice")
		}
	})
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 128 << 20: "128 MiB", 100 << 10: "100 KiB",
		3 << 30: "3 GiB", 95904: "93.7 KiB", 1 << 62: "4 EiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestEveryLimitHasASentence(t *testing.T) {
	for _, n := range sandbox.LimitNames() {
		l := sandbox.DefaultLimits()
		l.CPUTime, l.FileSize, l.IO, l.IOPS = 1, 1, 1, 1
		if !l.InForce(n) || Sentence(n, l) == "" {
			t.Errorf("%s: in force %v, %q", n, l.InForce(n), Sentence(n, l))
		}
	}
}
