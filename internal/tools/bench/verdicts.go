// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	api "github.com/caisson-run/caisson/client"
)

const burstAtOnce = 128

// judged is a program of the burst, and what is right to say of it: for caisson, and for go-judge.
type judged struct {
	code   string
	right  func(*api.Result) bool
	theirs func(*verdict) bool
}

// exits says whether a program ended by itself with a code.
func exits(code int) func(*api.Result) bool {
	return func(r *api.Result) bool { return r.ExitCode != nil && *r.ExitCode == code }
}

func limited(by ...string) func(*api.Result) bool {
	return func(r *api.Result) bool { return r.Status == "resource_exceeded" && slices.Contains(by, r.Resource) }
}

// says is what go-judge may say of a program, which ended with code where that is not 0.
func says(code int, statuses ...string) func(*verdict) bool {
	return func(v *verdict) bool {
		return slices.Contains(statuses, v.Status) || code != 0 && v.Status == "Nonzero Exit Status" && v.ExitStatus == code
	}
}

var (
	good = judged{"print(sum(range(100000)))", func(r *api.Result) bool { return exits(0)(r) && string(r.Stdout) == "4999950000\n" },
		func(v *verdict) bool { return v.Status == "Accepted" && v.Files["stdout"] == "4999950000\n" }}
	bad = []judged{
		{"while True: pass", limited("cpu_time"), says(0, "Time Limit Exceeded")},
		{"x = b'x' * 2_000_000_000\nprint(len(x))", func(r *api.Result) bool { return limited("memory")(r) || exits(1)(r) }, says(1, "Memory Limit Exceeded")},
		{"import os\nwhile True: os.fork()", func(r *api.Result) bool { return limited("cpu_time", "memory", "processes")(r) || exits(1)(r) },
			says(1, "Time Limit Exceeded", "Memory Limit Exceeded")},
		{"import sys\nfor _ in range(1600): sys.stdout.write('x' * 65536)", func(r *api.Result) bool { return exits(0)(r) && r.Truncated["stdout"] > 0 || limited("output")(r) },
			says(0, "Output Limit Exceeded")},
		{"import os; os._exit(139)", exits(139), says(139)},
	}
)

// oneInTen is a burst with bad programs among the good ones.
func oneInTen(i int) judged {
	if i%10 == 9 {
		return bad[i/10%len(bad)]
	}
	return good
}

// verdicts has a burst of programs run, once the good ones alone and once with bad ones among
// them, and compares throughput after the time that bad ones have used.
func (s *stage) verdicts(ctx context.Context) row {
	r := row{who: s.users[0].name, goal: "no wrong verdict; ≥ 0.8 of the good ones alone"}
	u := s.users[0]
	policy := filepath.Join(filepath.Dir(u.state), "burst.yaml")
	err := os.WriteFile(policy, []byte("version: 1\nlimits: {wall: 2m, cpu_time: 2s}\n"), 0o600)
	var d *daemon
	if err == nil {
		d, err = s.daemon(ctx, u, serving{policy: policy})
	}
	if err == nil {
		err = errors.Join(s.verdictsOn(ctx, d, &r), d.end())
	}
	if err != nil {
		r.notes = append(r.notes, err.Error())
	}
	return r
}

func (s *stage) verdictsOn(ctx context.Context, d *daemon, r *row) error {
	alone := burstOf(ctx, s.o.burst, func(int) judged { return good }, d.judge)
	mixed := burstOf(ctx, s.o.burst, oneInTen, d.judge)
	perSecond := func(b burstSum, wall time.Duration) float64 { return float64(s.o.burst-b.bad) / wall.Seconds() }
	// What bad ones used of the processors the good ones could not have.
	net := max(mixed.wall-mixed.badCPU/onCores, time.Second)
	r.ours = fmt.Sprintf("%.1f/s, p99 %.0f s; %d wrong, %d refused", perSecond(mixed, mixed.wall), mixed.p99().Seconds(), mixed.wrong, mixed.refused)
	r.theirs = fmt.Sprintf("good ones alone %.1f/s, p99 %.0f s; %d wrong, %d refused", perSecond(alone, alone.wall), alone.p99().Seconds(), alone.wrong, alone.refused)
	r.ratio = fmt.Sprintf("%.2f", perSecond(mixed, net)/perSecond(alone, alone.wall))
	r.runs = fmt.Sprint(s.o.burst)
	r.notes = append(append(r.notes, alone.why...), mixed.why...)
	return ctx.Err()
}

// burstSum is what a burst came to.
type burstSum struct {
	wall, badCPU        time.Duration
	bad, wrong, refused int
	took                []time.Duration
	why                 []string
}

func (b *burstSum) p99() time.Duration {
	slices.Sort(b.took)
	if len(b.took) == 0 {
		return 0
	}
	return b.took[min(len(b.took)*99/100, len(b.took)-1)]
}

// judgement is what came of a program.
type judgement struct {
	right bool
	cpu   time.Duration
	said  any
}

// judge has caisson run a program.
func (d *daemon) judge(ctx context.Context, p judged) (j judgement, err error) {
	res, err := d.Run(ctx, api.Run{Code: p.code, Language: "python"})
	if err != nil {
		return j, err
	}
	if res.CPUMS != nil {
		j.cpu = time.Duration(*res.CPUMS) * time.Millisecond
	}
	j.right, j.said = p.right(res), res
	return j, nil
}

// add adds another part of a burst.
func (b *burstSum) add(part burstSum) {
	b.wall, b.badCPU = b.wall+part.wall, b.badCPU+part.badCPU
	b.bad, b.wrong, b.refused = b.bad+part.bad, b.wrong+part.wrong, b.refused+part.refused
	b.took, b.why = append(b.took, part.took...), append(b.why, part.why...)
}

// burstOf has run run a burst of n, burstAtOnce at a time.
func burstOf(ctx context.Context, n int, of func(i int) judged, run func(context.Context, judged) (judgement, error)) (sum burstSum) {
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, burstAtOnce)
	began := time.Now()
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			p, asked := of(i), time.Now()
			j, err := run(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			sum.took = append(sum.took, time.Since(asked))
			if p.code != good.code {
				sum.bad++
				sum.badCPU += j.cpu
			}
			switch {
			case err != nil:
				sum.refused++
			case !j.right:
				sum.wrong++
			default:
				return
			}
			if len(sum.why) < 3 {
				sum.why = append(sum.why, fmt.Sprintf("%.30q: %.200v, %v", p.code, j.said, err))
			}
		})
	}
	all.Wait()
	sum.wall = time.Since(began)
	return sum
}
