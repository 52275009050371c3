// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// once makes one run and says how long it took.
type once func(context.Context) (time.Duration, error)

// pairs are interleaved runs of two sides. Both have as many entries; entry i
// of both was measured right after the other.
type pairs struct {
	ours, theirs []time.Duration
	failed       [2]int
	first        error // the first failure, ours before theirs
}

// warmUp is how many runs of each side come first and do not count: they fill
// the page cache, and caisson's cache of root trees.
const warmUp = 2

// interleave makes n runs of each side, in turns: A B, B A, A B. A pair one of
// whose runs failed is left out and counted.
func interleave(ctx context.Context, n int, ours, theirs once) *pairs {
	p := &pairs{}
	sides := [2]once{ours, theirs}
	for i := range warmUp + n {
		var took [2]time.Duration
		ok := true
		for turn := range 2 {
			side := (i + turn) % 2
			d, err := sides[side](ctx)
			if ctx.Err() != nil {
				return p
			}
			if took[side] = d; err != nil {
				ok = false
				p.fail(side, err)
			}
		}
		if ok && i >= warmUp {
			p.ours, p.theirs = append(p.ours, took[0]), append(p.theirs, took[1])
		}
	}
	return p
}

func (p *pairs) fail(side int, err error) {
	p.failed[side]++
	if p.first == nil {
		p.first = err
	}
}

// ratio is the quotient of the medians; paired is the median of the quotients
// of each pair. On a quiet machine they agree, and where they do not the load
// changed between runs.
func (p *pairs) ratio() float64 {
	return float64(median(p.ours)) / float64(median(p.theirs))
}

func (p *pairs) paired() float64 {
	q := make([]float64, len(p.ours))
	for i := range q {
		q[i] = float64(p.ours[i]) / float64(p.theirs[i])
	}
	return median(q)
}

// row fills in what all compared rows have.
func (p *pairs) row(goal string) row {
	r := row{ours: millis(p.ours), theirs: millis(p.theirs), goal: goal, runs: fmt.Sprint(len(p.ours))}
	if len(p.ours) > 0 {
		r.ratio = fmt.Sprintf("%.2f (%.2f)", p.ratio(), p.paired())
	}
	if p.first != nil {
		r.notes = append(r.notes, fmt.Sprintf("%d runs of caisson and %d of runsc failed, the first: %v", p.failed[0], p.failed[1], p.first))
	}
	return r
}

// median of nothing is 0.
func median[T ~int64 | ~float64](s []T) T {
	s = slices.Sorted(slices.Values(s))
	switch n := len(s); {
	case n == 0:
		return 0
	case n%2 == 1:
		return s[n/2]
	default:
		return s[n/2-1]/2 + s[n/2]/2
	}
}

// millis prints a series: its median, and its smallest and largest.
func millis(s []time.Duration) string {
	if len(s) == 0 {
		return "–"
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return fmt.Sprintf("%.1f ms (%.0f–%.0f)", ms(median(s)), ms(slices.Min(s)), ms(slices.Max(s)))
}
