// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ms = time.Millisecond

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		in   []time.Duration
		want time.Duration
	}{
		{nil, 0},
		{[]time.Duration{7}, 7},
		{[]time.Duration{9, 1, 5}, 5},
		{[]time.Duration{9, 1, 5, 7}, 5}, // halves are cut before they are added
		{[]time.Duration{8, 1000, 4, 2}, 6},
	} {
		in := append([]time.Duration(nil), tc.in...)
		if got := median(in); got != tc.want {
			t.Errorf("median of %v is %d, want %d", tc.in, got, tc.want)
		}
		if !cmp.Equal(in, append([]time.Duration(nil), tc.in...)) {
			t.Errorf("the series was reordered: %v", in)
		}
	}
}

// The two ratios answer different questions: where the machine slows down half
// way, every pair still says 1/2.
func TestRatios(t *testing.T) {
	p := &pairs{ours: []took{{10 * ms, 4 * ms}, {10 * ms, 6 * ms}, {100 * ms, 8 * ms}}, theirs: []took{{20 * ms, 12 * ms}, {200 * ms, 11 * ms}, {200 * ms, 13 * ms}}}
	if got := p.ratio(); got != 10.0/200 {
		t.Errorf("ratio of medians %v", got)
	}
	if got := p.paired(); got != 0.5 {
		t.Errorf("median of pairs %v", got)
	}
	if got, want := p.row("≤ 1"), (row{ours: "10.0 ms (10–100)", theirs: "200.0 ms (20–200)", ratio: "0.05 (0.50)", cpu: "6 : 12 ms = 0.50", goal: "≤ 1", runs: "3"}); !cmp.Equal(got, want, cmp.AllowUnexported(row{})) {
		t.Error(cmp.Diff(want, got, cmp.AllowUnexported(row{})))
	}
	if got := p.cpu(2); got != "3 : 6 ms = 0.50" {
		t.Errorf("processor time of two at once: %s", got)
	}
	// What could not be measured is no figure.
	if got := (&pairs{ours: []took{{wall: ms}}, theirs: []took{{ms, ms}}}).cpu(1); got != "" {
		t.Errorf("unknown processor time is shown as %s", got)
	}
}

func TestInterleave(t *testing.T) {
	var order string
	side := func(name string, d time.Duration) once {
		return func(context.Context) (took, error) {
			order += name
			return took{wall: d}, nil
		}
	}
	p := interleave(t.Context(), 3, side("a", 1), side("b", 2))
	if want := "ab" + "ba" + "ab" + "ba" + "ab"; order != want {
		t.Errorf("order %s, want %s", order, want)
	}
	if !cmp.Equal(walls(p.ours), []time.Duration{1, 1, 1}) || !cmp.Equal(walls(p.theirs), []time.Duration{2, 2, 2}) {
		t.Errorf("ours %v, theirs %v: three each, and not swapped", p.ours, p.theirs)
	}
}

// A failed run must neither vanish nor be mixed into the figures.
func TestInterleaveCountsFailures(t *testing.T) {
	n, broken := 0, errors.New("no cgroup")
	p := interleave(t.Context(), 4, func(context.Context) (took, error) {
		if n++; n%2 == 0 {
			return took{}, broken
		}
		return took{wall: ms}, nil
	}, func(context.Context) (took, error) { return took{wall: ms}, nil })
	if len(p.ours) != 2 || len(p.theirs) != 2 {
		t.Errorf("%d and %d figures, want the 2 pairs in which both ran", len(p.ours), len(p.theirs))
	}
	// The warm-up's failure counts too: a run that must be tried twice is broken.
	if p.failed != [2]int{3, 0} || p.first != broken {
		t.Errorf("failed %v (%v)", p.failed, p.first)
	}
	if r := p.row(""); len(r.notes) != 1 {
		t.Errorf("notes %q", r.notes)
	}
}

func TestInterleaveEndsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	run := func(context.Context) (took, error) {
		if n++; n == 5 {
			cancel()
		}
		return took{wall: ms}, nil
	}
	interleave(ctx, 1000, run, run)
	if n != 5 {
		t.Errorf("%d runs, want none after the interrupt", n)
	}
}

// Nothing that worked must look like nothing that was fast.
func TestRowWithoutFigures(t *testing.T) {
	p := &pairs{failed: [2]int{4, 0}, first: errors.New("x")}
	r := p.row("≤ 0.6")
	if r.ratio != "" || r.ours != "–" || r.runs != "0" {
		t.Errorf("%+v", r)
	}
}
