// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// The rows of caisson serve have no other side: a stock runsc has no daemon. They
// are asked by E2B's official client for Node.js, whose own time is in them, by the
// script bench.mjs beside the client's tests.

// asked is one row.
type asked struct {
	name, goal string
	row        string // in the script
	serving
	isolation string        // of the sandboxes; empty is the default
	bytes     int64         // moved each time; the row shows a speed then
	rest      time.Duration // between two, for the pool to fill
	times     func(pairs int) int
}

const (
	printed = 32 << 20 // bytes of a program's output, as in the script
	moved   = 2 * 10e6 // bytes of a file, there and back
	refills = 500 * time.Millisecond
	fills   = 90 * time.Second // a pool of 100
)

// sdkRows are about persistent sandboxes.
func (s *stage) sdkRows() []bench {
	few := func(pairs int) int { return max(pairs/8, 1) }
	once := func(pairs int) int { return max(pairs/16, 1) }
	var list []bench
	for _, a := range []asked{
		{name: "Sandbox.create(), no pool", goal: "≤ 120 ms", row: "create"},
		{name: "Sandbox.create(), one of a pool of 4 ready", goal: "≤ 25 ms, p99 ≤ 60 ms", row: "create", serving: serving{pool: 4}, rest: refills},
		{name: "create and its first command, one of a pool of 4 ready", goal: "≤ 50 ms, p99 ≤ 120 ms", row: "first", serving: serving{pool: 4}, rest: refills},
		{name: "100 creates at once, each to its first command, pool of 100", goal: "≤ 3 s", row: "hundred", serving: serving{pool: 100}, rest: fills, times: once},
		{name: "100 creates at once, each to its first command, no pool", goal: "all, ≤ 5 s", row: "hundred", times: once},
		{name: "20 Sandbox.create() at once, no pool", goal: "≤ 1200 ms", row: "crowd", times: few},
		{name: "commands.run('true')", goal: "≤ 25 ms", row: "command"},
		{name: "commands.run('true'), process level", goal: "≤ 10 ms", row: "command", isolation: "process"},
		{name: "32 MB of a program's output, written 128 KiB at a time", goal: "≥ 30 MB/s", row: "output", bytes: printed, times: few},
		{name: "32 MB of a program's output, written 8 KiB at a time", goal: "≥ 30 MB/s", row: "pieces", bytes: printed, times: few},
		{name: "files.write and files.read of 10 MB", goal: "≥ 100 MB/s", row: "files", bytes: moved, times: few},
	} {
		list = append(list, bench{"E2B's client: " + a.name, func(ctx context.Context) row { return s.ask(ctx, a) }})
	}
	return list
}

// ask starts a daemon for one row and has the client measure it.
func (s *stage) ask(ctx context.Context, a asked) row {
	u := s.users[0]
	r := row{who: u.name, goal: a.goal}
	times, err := s.askDaemon(ctx, u, a)
	if err != nil {
		r.notes = append(r.notes, err.Error())
		return r
	}
	r.ours, r.theirs, r.runs = shown(times), "none", strconv.Itoa(len(times))
	if a.bytes > 0 {
		r.ours = fmt.Sprintf("%.0f MB/s", float64(a.bytes)/1e6/median(times).Seconds())
	}
	return r
}

func (s *stage) askDaemon(ctx context.Context, u user, a asked) (times []time.Duration, err error) {
	if a.isolation != "" {
		a.policy = s.path(a.isolation + ".yaml")
		if err := os.WriteFile(a.policy, []byte("version: 1\nisolation: "+a.isolation+"\n"), 0o644); err != nil {
			return nil, err
		}
	}
	d, err := s.daemon(ctx, u, a.serving)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.end()) }()
	n := s.o.pairs
	if a.times != nil {
		n = a.times(n)
	}
	return s.script(ctx, d, a.row, n, a.rest)
}

// script has the client measure.
func (s *stage) script(ctx context.Context, d *daemon, row string, n int, rest time.Duration) ([]time.Duration, error) {
	cmd := exec.CommandContext(ctx, "node", "bench.mjs", row, strconv.Itoa(n), strconv.FormatInt(rest.Milliseconds(), 10))
	cmd.Dir = s.o.sdk
	cmd.Env = append(os.Environ(), "E2B_API_URL="+d.url, "E2B_SANDBOX_URL="+d.url, "E2B_API_KEY="+d.key)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if _, missing := os.Stat(filepath.Join(s.o.sdk, "node_modules", "e2b")); missing != nil {
			return nil, fmt.Errorf("E2B's client is not installed: npm ci --prefix %s", s.o.sdk)
		}
		return nil, failure(cmd, err, stderr.String())
	}
	var ms []float64
	if err := json.Unmarshal(out, &ms); err != nil || len(ms) == 0 {
		return nil, fmt.Errorf("the client says %.100q", out)
	}
	var times []time.Duration
	for _, m := range ms {
		times = append(times, time.Duration(m*float64(time.Millisecond)))
	}
	return times, nil
}

// shown writes times as a median, and the 99th of 100.
func shown(times []time.Duration) string {
	slices.Sort(times)
	last := times[min(len(times)*99/100, len(times)-1)]
	return fmt.Sprintf("%.1f ms, p99 %.1f", float64(median(times))/1e6, float64(last)/1e6)
}
