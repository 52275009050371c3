// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson/sandbox"
)

func openHere(t testing.TB, dir string) *DB {
	t.Helper()
	db, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func at(d time.Duration) Instant { return Instant{"boot", d} }

func allowed(t testing.TB, db *DB, now Instant, rates ...Rate) bool {
	t.Helper()
	full, wait, err := db.Take(t.Context(), now, rates)
	if err != nil || (full >= 0) != (wait > 0) {
		t.Fatal(full, wait, err)
	}
	return full < 0
}

// TestRatesSlide: no window of the rate's length ever has more than it allows, and
// nothing is refused that a window has room for.
func TestRatesSlide(t *testing.T) {
	db := openHere(t, t.TempDir())
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		rate := Rate{"b" + time.Duration(n).String(), rapid.Int64Range(1, 5).Draw(rt, "most"), 100}
		var taken []time.Duration
		var now time.Duration
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 60), 1, 40).Draw(rt, "steps") {
			now += time.Duration(step)
			within := int64(0)
			for _, was := range taken {
				if now-was < rate.Per {
					within++
				}
			}
			want := within < rate.Max
			if got := allowed(t, db, at(now), rate); got != want {
				rt.Fatalf("at %d after %v: %t, want %t", now, taken, got, want)
			}
			if want {
				taken = append(taken, now)
			}
		}
	})
}

// TestRatesAreShared is attack case P11: a burst from two daemons on one store, by
// many at once.
func TestRatesAreShared(t *testing.T) {
	dir := t.TempDir()
	dbs := []*DB{openHere(t, dir), openHere(t, dir)}
	rate := Rate{"b", 10, time.Minute}
	var let atomic.Int64
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			full, _, err := dbs[i%2].Take(t.Context(), at(time.Hour), []Rate{rate})
			if err != nil {
				t.Error(err)
			} else if full < 0 {
				let.Add(1)
			}
		})
	}
	all.Wait()
	if let.Load() != 10 {
		t.Errorf("%d of a burst were let through, want 10", let.Load())
	}
	if allowed(t, dbs[0], at(time.Hour+time.Minute-1), rate) || !allowed(t, dbs[1], at(time.Hour+time.Minute), rate) {
		t.Error("the window does not slide for both")
	}
}

// A boot is no way out of a rate, nor is a process that looked at the clock before
// another; and a rate does not stay used up for ever.
func TestRatesAndClocks(t *testing.T) {
	db := openHere(t, t.TempDir())
	rate := Rate{"b", 1, time.Minute}
	if !allowed(t, db, at(time.Hour), rate) || allowed(t, db, at(time.Second), rate) {
		t.Error("a clock that is behind lets through")
	}
	if _, wait, err := db.Take(t.Context(), at(time.Second), []Rate{rate}); err != nil || wait != time.Minute {
		t.Errorf("a clock that is behind waits %v, %v", wait, err)
	}
	if allowed(t, db, Instant{"next", 59 * time.Second}, rate) {
		t.Error("a boot lets through")
	}
	if !allowed(t, db, Instant{"next", time.Minute}, rate) {
		t.Error("what was before the boot counts for ever")
	}
}

// All of several are counted, or none; two that are the same are one.
func TestRatesTogether(t *testing.T) {
	db := openHere(t, t.TempDir())
	wide, narrow := Rate{"wide", 3, time.Hour}, Rate{"narrow", 1, time.Minute}
	if !allowed(t, db, at(0), wide, narrow, wide) {
		t.Fatal("the first")
	}
	for range 5 { // none of these counts for wide
		full, wait, err := db.Take(t.Context(), at(time.Second), []Rate{wide, narrow})
		if err != nil || full != 1 || wait != 59*time.Second {
			t.Errorf("%d, %v, %v", full, wait, err)
		}
	}
	if !allowed(t, db, at(time.Minute), wide, narrow) || !allowed(t, db, at(2*time.Minute), wide, narrow) || allowed(t, db, at(3*time.Minute), wide, narrow) {
		t.Error("what was refused was counted")
	}
	if _, _, err := db.Take(t.Context(), at(0), []Rate{{"x", 0, time.Second}}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Error(err)
	}
}

// What no rate looks at any more is dropped.
func TestRatesAreForgotten(t *testing.T) {
	db := openHere(t, t.TempDir())
	allowed(t, db, at(0), Rate{"old", 2, time.Second})
	allowed(t, db, at(time.Second/2), Rate{"young", 2, time.Second})
	allowed(t, db, at(time.Second), Rate{"new", 2, time.Second})
	var left, times int
	if err := db.db.QueryRow("SELECT (SELECT count(*) FROM rates), (SELECT count(*) FROM rate_times)").Scan(&left, &times); err != nil || left != 2 || times != 2 {
		t.Errorf("%d, %d, %v", left, times, err)
	}
}

func BenchmarkTake(b *testing.B) {
	db := openHere(b, b.TempDir())
	var n time.Duration
	for b.Loop() {
		n++
		if _, _, err := db.Take(b.Context(), at(n), []Rate{{"b", 1000, time.Minute}}); err != nil {
			b.Fatal(err)
		}
	}
}
