// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
)

const (
	atOnce  = 20 // sandboxes started together
	onCores = 2
)

// burst starts many sandboxes at once and measures until the last has ended.
// Throughput is compared, so its ratio is the other way round than the rest:
// more is better.
func (s *stage) burst(ctx context.Context) row {
	u := s.users[0]
	var failed [2]int // of single runs, not rounds
	crowd := func(side int, command func(context.Context) *exec.Cmd) once {
		return func(ctx context.Context) (took, error) {
			t, n, err := together(ctx, command)
			failed[side] += n
			return t, err
		}
	}
	p := interleave(ctx, s.o.rounds,
		crowd(0, func(ctx context.Context) *exec.Cmd { return s.caissonRun(ctx, u, "/bin/true") }),
		crowd(1, func(ctx context.Context) *exec.Cmd { return s.runscDo(ctx, u, "/bin/true") }))
	r := p.row("≥ 1.50, no failure")
	r.who = u.name
	r.notes = append(r.notes, fmt.Sprintf("%d of caisson's runs failed and %d of runsc's; ratio of throughput", failed[0], failed[1]))
	p.throughput(&r)
	return r
}

// throughput turns the times of a row into runs per second.
func (p *pairs) throughput(r *row) {
	if len(p.ours) == 0 {
		return
	}
	perSecond := func(s []took) string { return fmt.Sprintf("%.1f/s", atOnce/median(walls(s)).Seconds()) }
	r.ours, r.theirs = perSecond(p.ours), perSecond(p.theirs)
	r.ratio, r.cpu = fmt.Sprintf("%.2f (%.2f)", 1/p.ratio(), 1/p.paired()), p.cpu(atOnce)
}

// together starts atOnce commands on onCores cores and waits for all of them.
func together(ctx context.Context, command func(context.Context) *exec.Cmd) (sum took, failures int, first error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	began := time.Now()
	for range atOnce {
		all.Go(func() {
			cmd := command(ctx)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := startOn(onCores, cmd)
			if err == nil {
				err = cmd.Wait()
			}
			mu.Lock()
			defer mu.Unlock()
			if cmd.ProcessState != nil {
				sum.cpu += processorTime(cmd)
			}
			if err == nil {
				return
			}
			if failures++; first == nil {
				first = failure(cmd, err, stderr.String())
			}
		})
	}
	all.Wait()
	sum.wall = time.Since(began)
	return sum, failures, first
}

// startOn starts cmd on the first cores only. What a process may run on is
// inherited from the thread that forks it; that thread is thrown away.
func startOn(cores int, cmd *exec.Cmd) error {
	if runtime.NumCPU() <= cores {
		return cmd.Start()
	}
	return threads.Ending(func() error {
		var have unix.CPUSet
		err := unix.SchedGetaffinity(0, &have)
		if err == nil {
			want := firstOf(cores, &have)
			err = unix.SchedSetaffinity(0, &want)
		}
		if err == nil {
			err = cmd.Start()
		}
		return err
	})
}

// firstOf is the first n of the processors in have.
func firstOf(n int, have *unix.CPUSet) (want unix.CPUSet) {
	for cpu := 0; want.Count() < min(n, have.Count()); cpu++ {
		if have.IsSet(cpu) {
			want.Set(cpu)
		}
	}
	return want
}
