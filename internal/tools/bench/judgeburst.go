// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	burstCPU    = 2 * time.Second
	burstPolicy = "version: 1\nisolation: process\nlimits: {wall: 2m, cpu_time: 2s}\n"
	// perCore programs run at once, as caisson's daemon decides by itself.
	perCore = 4
)

// verdictsBeside has the burst with bad programs run on the process level, and by go-judge
// through its HTTP, in two halves of each: ours, theirs, theirs, ours.
func (s *stage) verdictsBeside(ctx context.Context) row {
	r := row{who: s.users[0].name, goal: "no wrong verdict"}
	ours, theirs, err := s.bothBursts(ctx)
	if err != nil {
		r.notes = append(r.notes, fmt.Sprint("not measured: ", err))
		return r
	}
	perSecond := func(b burstSum) float64 { return float64(len(b.took)) / b.wall.Seconds() }
	line := func(b burstSum) string {
		return fmt.Sprintf("%.1f/s, p99 %.1f s; %d wrong, %d refused", perSecond(b), b.p99().Seconds(), b.wrong, b.refused)
	}
	r.ours, r.theirs = line(ours), "go-judge "+line(theirs)
	r.ratio, r.runs = fmt.Sprintf("%.2f", perSecond(ours)/perSecond(theirs)), fmt.Sprint(len(ours.took))
	r.notes = append(append(r.notes, ours.why...), theirs.why...)
	return r
}

func (s *stage) bothBursts(ctx context.Context) (ours, theirs burstSum, err error) {
	path, err := s.judgePath(ctx)
	if err != nil {
		return ours, theirs, err
	}
	u := s.users[0]
	policy := filepath.Join(filepath.Dir(u.state), "judgeburst.yaml")
	if err := os.WriteFile(policy, []byte(burstPolicy), 0o600); err != nil {
		return ours, theirs, err
	}
	d, err := s.daemon(ctx, u, serving{policy: policy})
	if err != nil {
		return ours, theirs, err
	}
	j, err := startJudge(ctx, path, s.dir, perCore*runtime.NumCPU(), []string{"/bin/true"})
	if err != nil {
		return ours, theirs, errors.Join(err, d.end())
	}
	half := max(s.o.burst/2, 1)
	ours.add(burstOf(ctx, half, oneInTen, d.judge))
	theirs.add(burstOf(ctx, half, oneInTen, j.judge))
	theirs.add(burstOf(ctx, half, oneInTen, j.judge))
	ours.add(burstOf(ctx, half, oneInTen, d.judge))
	return ours, theirs, errors.Join(ctx.Err(), j.stop(), d.end())
}

// judge has go-judge run a program.
func (j *judge) judge(ctx context.Context, p judged) (judgement, error) {
	l := sandbox.DefaultLimits() // which the other side has
	body, err := judgeCall([]string{"/usr/bin/python3", "-c", p.code}, judgeLimits{burstCPU, l.Memory, l.Output, l.Processes})
	if err != nil {
		return judgement{}, err
	}
	v, err := j.ask(ctx, body)
	if err != nil {
		return judgement{}, err
	}
	return judgement{right: p.theirs(v), cpu: v.Time, said: *v}, nil
}
