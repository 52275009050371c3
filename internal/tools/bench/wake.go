// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	api "github.com/caisson-run/caisson/client"
)

// wakes is how often a sandbox is woken.
const wakes = 10

// wakeRows measure how long a caller waits for a sandbox that has gone cold.
func (s *stage) wakeRows() []bench {
	u := s.users[0]
	row := func(what, goal, cooling, cold string, setup ...string) bench {
		return bench{what, func(ctx context.Context) row {
			times, err := s.wake(ctx, u, cooling, cold, setup)
			if err != nil {
				return row{goal: goal, notes: []string{err.Error()}}
			}
			return row{who: u.name, ours: shown(times), goal: goal, runs: fmt.Sprint(len(times))}
		}}
	}
	pandas := []string{"sh", "-c", `/usr/bin/python3 -c 'import pandas, time; open("/tmp/up", "w").close(); time.sleep(1e6)' >/dev/null 2>&1 & until [ -e /tmp/up ]; do sleep 0.1; done`}
	return []bench{
		row("gVisor, woken where it stands still to the first answer", "", "{freeze: 1s}", "frozen"),
		row("gVisor, woken from the disk to the first answer", "≤ 180 ms", "{disk: 1s}", "disk"),
		row("gVisor, woken from the disk to the first answer, with pandas in memory", "≤ 300 ms", "{disk: 1s}", "disk", pandas...),
	}
}

// wake has one sandbox go cold, over and over, and measures a call that wakes it.
func (s *stage) wake(ctx context.Context, u user, cooling, cold string, setup []string) (times []time.Duration, err error) {
	policy := filepath.Join(filepath.Dir(u.state), "cooling.yaml")
	if err := os.WriteFile(policy, []byte("version: 1\ncooling: "+cooling+"\n"), 0o600); err != nil {
		return nil, err
	}
	d, err := s.daemon(ctx, u, serving{policy: policy})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.end()) }()
	b, err := d.Create(ctx, api.Create{Timeout: api.Seconds(3600)})
	if err != nil {
		return nil, err
	}
	call := func(argv ...string) error {
		r, err := d.Exec(ctx, b.ID, api.Exec{Command: argv})
		if err == nil && r.Status != "success" {
			err = fmt.Errorf("%q: %s %s", argv, r.Status, r.Reason)
		}
		return err
	}
	if len(setup) > 0 {
		if err := call(setup...); err != nil {
			return nil, err
		}
	}
	for range wakes {
		for now := (*api.Sandbox)(nil); now == nil || now.Cold != cold; {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
			if now, err = d.Get(ctx, b.ID); err != nil {
				return nil, err
			}
		}
		began := time.Now()
		if err := call("true"); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	return times, nil
}
