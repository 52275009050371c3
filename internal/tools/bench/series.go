// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// took is what one run cost. The processor time is that of every process that
// was waited for, so it holds the sandbox; 0 is unknown. Other load hardly
// changes it, which makes it the figure to look at on a busy machine.
type took struct{ wall, cpu time.Duration }

// once makes one run.
type once func(context.Context) (took, error)

// pairs are interleaved runs of two sides. Both have as many entries; entry i
// of both was measured right after the other.
type pairs struct {
	ours, theirs []took
	failed       [2]int
	first        error // the first that failed
}

func walls(s []took) (d []time.Duration) {
	for _, t := range s {
		d = append(d, t.wall)
	}
	return d
}

func cpus(s []took) (d []time.Duration) {
	for _, t := range s {
		d = append(d, t.cpu)
	}
	return d
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
		var cost [2]took
		ok := true
		for turn := range 2 {
			side := (i + turn) % 2
			t, err := sides[side](ctx)
			if ctx.Err() != nil {
				return p
			}
			if cost[side] = t; err != nil {
				ok = false
				p.fail(side, err)
			}
		}
		if ok && i >= warmUp {
			p.ours, p.theirs = append(p.ours, cost[0]), append(p.theirs, cost[1])
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
	return float64(median(walls(p.ours))) / float64(median(walls(p.theirs)))
}

func (p *pairs) paired() float64 {
	q := make([]float64, len(p.ours))
	for i := range q {
		q[i] = float64(p.ours[i].wall) / float64(p.theirs[i].wall)
	}
	return median(q)
}

// cpu prints the medians of processor time and their ratio; each run of the
// series was n runs of a sandbox.
func (p *pairs) cpu(n int) string {
	a, b := median(cpus(p.ours)), median(cpus(p.theirs))
	if a == 0 || b == 0 {
		return ""
	}
	each := float64(n) * float64(time.Millisecond)
	return fmt.Sprintf("%.0f : %.0f ms = %.2f", float64(a)/each, float64(b)/each, float64(a)/float64(b))
}

// row fills in what all compared rows have.
func (p *pairs) row(goal string) row {
	r := row{ours: millis(walls(p.ours)), theirs: millis(walls(p.theirs)), goal: goal, runs: fmt.Sprint(len(p.ours))}
	if len(p.ours) > 0 {
		r.ratio = fmt.Sprintf("%.2f (%.2f)", p.ratio(), p.paired())
		r.cpu = p.cpu(1)
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
