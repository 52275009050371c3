// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"testing"
	"time"
)

func TestAnonymous(t *testing.T) {
	for status, want := range map[string]int64{
		"Name:\tx\nVmRSS:\t  80 kB\nRssAnon:\t   1234 kB\nRssFile:\t 9 kB\n": 1234 << 10,
		"Name:\tRssAnon: 5 kB\n": 0,
		"Name:\tx\nRssAnon:\n":   0,
		"":                       0,
	} {
		if got := anonymous(status); got != want {
			t.Errorf("anonymous(%q) = %d, want %d", status, got, want)
		}
	}
}

// TestSleeper: the kernel inside is asked whenever something has run, and what
// runs in steps too small to count is asked about when they add up.
func TestSleeper(t *testing.T) {
	var s sleeper
	now := time.Duration(0)
	look := func(used time.Duration) bool {
		now += used
		return s.look(&now, watchEvery)
	}
	answer := func(cost time.Duration) {
		now += cost
		s.took(&now)
	}
	if first := s.look(nil, watchEvery); !first || !look(0) {
		t.Error("what is not known is taken for idle")
	}
	answer(2 * time.Millisecond)
	if look(0) || look(time.Millisecond/2) {
		t.Error("a sandbox that sleeps is asked")
	}
	if !look(time.Millisecond) {
		t.Error("a sandbox that used 1 % of a processor is not asked")
	}
	answer(2 * time.Millisecond)
	for n := range 10 {
		if look(time.Millisecond/2) != (n == 9) {
			t.Errorf("step %d of half a millisecond: asked %v", n, n != 9)
		}
	}
	if s.next() != watchEveryIdle {
		t.Error("a sandbox that sleeps is looked at as often")
	}
	for range asleepLooks {
		look(0)
	}
	if s.next() != watchEveryAsleep {
		t.Error("a sandbox that sleeps for half a minute is looked at as often")
	}
	if !look(20*time.Millisecond) || s.next() != watchEvery {
		t.Error("it is not seen to wake up")
	}
	if !s.look(nil, watchEvery) || s.next() != watchEvery {
		t.Error("what cannot be read is taken for idle")
	}
}
