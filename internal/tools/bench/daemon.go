// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	api "github.com/caisson-run/caisson/client"
)

// The rows of caisson serve have no other side: a stock runsc has no daemon. They
// are asked by package client, whose own time is in them; E2B's SDK adds that of
// Node.js or Python.

// daemonRows are about sandboxes that live on.
func (s *stage) daemonRows() []bench {
	return []bench{
		{"a sandbox of caisson serve made, no pool", s.served(0, "≤ 120 ms", creates)},
		{"a sandbox of caisson serve made, one of a pool of 4 ready", s.served(4, "≤ 25 ms, p99 ≤ 60 ms", creates)},
		{"20 sandboxes made at once, no pool", s.served(0, "≤ 1200 ms", createsAtOnce)},
		{"a program in a running sandbox: bash -l -c true", s.served(0, "≤ 25 ms", commands)},
		{"32 MB of a program's output", s.served(0, "≥ 30 MB/s", output)},
		{"10 MB written to a sandbox and read back", s.served(0, "≥ 100 MB/s", files)},
	}
}

// daemon is a caisson serve.
type daemon struct {
	*api.Client
	cmd    *exec.Cmd
	stderr bytes.Buffer
	pool   int
	pairs  int
	key    string
	url    string
}

// asked measures something of a daemon, as often as is wished, and says what the
// column shows.
type asked func(ctx context.Context, d *daemon) (shown string, runs int, err error)

// served starts a daemon for one row.
func (s *stage) served(pool int, goal string, ask asked) func(context.Context) row {
	return func(ctx context.Context) row {
		u := s.users[0]
		r := row{who: u.name, goal: goal}
		d, err := s.daemon(ctx, u, pool)
		if err != nil {
			r.notes = append(r.notes, err.Error())
			return r
		}
		shown, runs, err := ask(ctx, d)
		if err = errors.Join(err, d.end()); err != nil {
			r.notes = append(r.notes, err.Error())
			return r
		}
		r.ours, r.theirs, r.runs = shown, "none", strconv.Itoa(runs)
		return r
	}
}

func (s *stage) daemon(ctx context.Context, u user, pool int) (*daemon, error) {
	d := &daemon{pool: pool, pairs: s.o.pairs, key: "bench-" + rand.Text()}
	d.cmd = s.caisson(ctx, u, "serve", "--listen", "127.0.0.1:0", "--pool", strconv.Itoa(pool), "--state", filepath.Join(filepath.Dir(u.state), "served"))
	d.cmd.Env = append(d.cmd.Env, "CAISSON_API_KEY="+d.key)
	d.cmd.Stderr = &d.stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for d.url == "" && lines.Scan() {
		_, d.url, _ = strings.Cut(lines.Text(), " serves sandboxes at ")
	}
	go io.Copy(io.Discard, out)
	if d.Client, err = api.New(api.Options{URL: d.url, Key: d.key}); err != nil || d.url == "" {
		return nil, errors.Join(err, d.stop())
	}
	return d, d.settle(ctx)
}

// settle waits until the pool is full, by the time that nothing takes.
func (d *daemon) settle(ctx context.Context) error {
	for range 3 { // the first of all makes the root tree and unpacks the engine
		b, err := d.Create(ctx, api.Create{Limits: &api.Limits{Processes: 500}})
		if err == nil {
			err = d.Kill(ctx, b.ID)
		}
		if err != nil {
			return errors.Join(err, d.stop())
		}
	}
	return d.rest(ctx)
}

// rest lets the pool be filled again: making one takes some 100 ms.
func (d *daemon) rest(ctx context.Context) error {
	if d.pool == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(500 * time.Millisecond):
		return nil
	}
}

func (d *daemon) end() error {
	d.Close()
	return d.stop()
}

func (d *daemon) stop() error {
	d.cmd.Process.Signal(syscall.SIGTERM)
	if err := d.cmd.Wait(); err != nil {
		return failure(d.cmd, err, d.stderr.String())
	}
	return nil
}

// shown writes times as a median, and the 99th of 100.
func shown(times []time.Duration) string {
	slices.Sort(times)
	last := times[min(len(times)*99/100, len(times)-1)]
	return fmt.Sprintf("%.1f ms, p99 %.1f", float64(median(times))/1e6, float64(last)/1e6)
}

// creates makes sandboxes one after the other, each of which is ended at once.
func creates(ctx context.Context, d *daemon) (string, int, error) {
	var times []time.Duration
	for range d.pairs {
		began := time.Now()
		b, err := d.Create(ctx, api.Create{})
		if err != nil {
			return "", 0, err
		}
		times = append(times, time.Since(began))
		if err := errors.Join(d.Kill(ctx, b.ID), d.rest(ctx)); err != nil {
			return "", 0, err
		}
	}
	return shown(times), len(times), nil
}

// createsAtOnce makes twenty at once, and takes the time until the last is there.
func createsAtOnce(ctx context.Context, d *daemon) (string, int, error) {
	var times []time.Duration
	for range max(d.pairs/8, 1) {
		ids := make([]string, 20)
		errs := make([]error, len(ids))
		var all sync.WaitGroup
		began := time.Now()
		for i := range ids {
			all.Go(func() {
				b, err := d.Create(ctx, api.Create{})
				if errs[i] = err; err == nil {
					ids[i] = b.ID
				}
			})
		}
		all.Wait()
		times = append(times, time.Since(began))
		for i, id := range ids {
			if errs[i] == nil {
				errs[i] = d.Kill(ctx, id)
			}
		}
		if err := errors.Join(errs...); err != nil {
			return "", 0, err
		}
	}
	return shown(times), len(times), nil
}

// in is a measurement in one sandbox.
func in(ctx context.Context, d *daemon, each func(id string) error) (times []time.Duration, err error) {
	b, err := d.Create(ctx, api.Create{})
	if err != nil {
		return nil, err
	}
	for i := range warmUp + d.pairs {
		began := time.Now()
		if err := each(b.ID); err != nil {
			return nil, err
		}
		if i >= warmUp {
			times = append(times, time.Since(began))
		}
	}
	return times, d.Kill(ctx, b.ID)
}

func succeeded(r *api.Result, err error) error {
	if err == nil && r.Status != "success" {
		err = fmt.Errorf("%s: %s %s", r.Status, r.Reason, r.Stderr)
	}
	return err
}

func commands(ctx context.Context, d *daemon) (string, int, error) {
	times, err := in(ctx, d, func(id string) error {
		return succeeded(d.Exec(ctx, id, api.Exec{Command: []string{"bash", "-l", "-c", "true"}}))
	})
	if err != nil {
		return "", 0, err
	}
	return shown(times), len(times), nil
}

// speed is bytes in the median of times.
func speed(bytes int64, times []time.Duration, err error) (string, int, error) {
	if err != nil {
		return "", 0, err
	}
	return fmt.Sprintf("%.0f MB/s", float64(bytes)/1e6/median(times).Seconds()), len(times), nil
}

func output(ctx context.Context, d *daemon) (string, int, error) {
	const size = 32 << 20
	times, err := in(ctx, d, func(id string) error {
		got := &count{}
		r, err := d.Attach(ctx, id, api.Exec{Command: []string{"head", "-c", strconv.Itoa(size), "/dev/zero"}}, api.IO{Stdout: got})
		if err = succeeded(r, err); err == nil && got.Load() != size {
			err = fmt.Errorf("%d bytes came", got.Load())
		}
		return err
	})
	return speed(size, times, err)
}

func files(ctx context.Context, d *daemon) (string, int, error) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 10e6/16)
	times, err := in(ctx, d, func(id string) error {
		if _, err := d.WriteFile(ctx, id, "data", bytes.NewReader(data), 0); err != nil {
			return err
		}
		f, err := d.ReadFile(ctx, id, "data")
		if err != nil {
			return err
		}
		defer f.Close()
		got := &count{}
		if _, err = io.Copy(got, f); err == nil && got.Load() != int64(len(data)) {
			err = fmt.Errorf("%d bytes came back", got.Load())
		}
		return err
	})
	return speed(2*int64(len(data)), times, err)
}
