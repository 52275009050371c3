// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	api "github.com/caisson-run/caisson/client"
)

// The rows of `make bench-soak` take their time: many sandboxes that do nothing, and
// a loop that makes, uses and ends them. What is looked at is what they leave.

const (
	loopers = 16
	perKey  = 90 // of the hundred that a key may have
	rested  = 10 * time.Second
	settled = time.Minute // what was made for many begins is over
	watched = 30 * time.Second
)

// soakRows are about what persistent sandboxes cost together.
func (s *stage) soakRows() []bench {
	return []bench{
		{fmt.Sprintf("%d idle sandboxes", s.o.idle), s.idle},
		{fmt.Sprintf("%d sandboxes that go cold, %d of them busy for %v", s.o.idle, busyOnes, s.o.soak), s.mostlyCold},
		{fmt.Sprintf("%d runs of Python, %d at a time, one in ten bad", s.o.burst, burstAtOnce), s.verdicts},
		{fmt.Sprintf("%d runs of Python on the process level, %d at a time, one in ten bad, beside go-judge", s.o.burst, burstAtOnce), s.verdictsBeside},
		{fmt.Sprintf("create, run, kill by %d clients for %v", loopers, s.o.soak), s.loop},
	}
}

// clients are those of a daemon, one for so many sandboxes.
func (s *stage) clients(ctx context.Context, d *daemon, sandboxes int) ([]*api.Client, error) {
	list := []*api.Client{d.Client}
	for len(list)*perKey < sandboxes {
		cmd := s.caisson(ctx, s.users[0], "keys", "create", "--state", d.state)
		out, err := cmd.Output()
		if err != nil {
			return nil, failure(cmd, err, "")
		}
		c, err := api.New(api.Options{URL: d.url, Key: strings.TrimSpace(string(out))})
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// idle makes sandboxes, and looks at them when they do nothing.
func (s *stage) idle(ctx context.Context) row {
	r := row{who: s.users[0].name, theirs: "none", goal: "daemon ≤ 200 MB, ≤ 40 MB each, ≤ 2 % of a core"}
	d, err := s.daemon(ctx, s.users[0], serving{})
	if err == nil {
		err = errors.Join(s.idleOn(ctx, d, &r), d.end())
	}
	if err != nil {
		r.notes = append(r.notes, err.Error())
	}
	return r
}

func (s *stage) idleOn(ctx context.Context, d *daemon, r *row) error {
	clients, err := s.clients(ctx, d, s.o.idle)
	if err != nil {
		return err
	}
	made, failed := createAll(ctx, clients, s.o.idle)
	defer killAll(ctx, clients, made)
	if err := errors.Join(failed, pass(ctx, settled)); err != nil {
		return err
	}
	daemon, boxes, err := processTimes(d.cmd.Process.Pid)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := pass(ctx, watched); err != nil {
		return err
	}
	daemonLater, boxesLater, err := processTimes(d.cmd.Process.Pid)
	if err != nil {
		return err
	}
	took := time.Since(began)
	rss, pss, err := memories(d.cmd.Process.Pid)
	if err != nil {
		return err
	}
	share := func(d time.Duration) float64 { return 100 * float64(d) / float64(took) }
	r.ours = fmt.Sprintf("daemon %.0f MB, each %.1f MB, daemon %.1f %% of a core, sandboxes %.1f %%",
		float64(rss)/1e6, float64(pss)/1e6/float64(s.o.idle), share(daemonLater-daemon), share(boxesLater-boxes))
	r.runs = "1"
	return nil
}

// createAll makes so many sandboxes, four at a time.
func createAll(ctx context.Context, clients []*api.Client, n int) ([]*api.Sandbox, error) {
	var all sync.WaitGroup
	errs, made := make([]error, 4), make([]*api.Sandbox, n)
	for w := range errs {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += len(errs) {
				made[i], errs[w] = clients[i/perKey].Create(ctx, api.Create{Timeout: api.Seconds(4 * 3600)})
			}
		})
	}
	all.Wait()
	return made, errors.Join(errs...)
}

// killAll ends them: they would go on in the next row's daemon, whose key is the same to it.
func killAll(ctx context.Context, clients []*api.Client, made []*api.Sandbox) {
	for i, b := range made {
		if b != nil {
			_ = clients[i/perKey].Kill(context.WithoutCancel(ctx), b.ID)
		}
	}
}

// loop has clients make sandboxes, run a program in each, and end them.
func (s *stage) loop(ctx context.Context) row {
	r := row{who: s.users[0].name, theirs: "none", goal: "no error, all within 5 %"}
	d, err := s.daemon(ctx, s.users[0], serving{pool: 4})
	if err == nil {
		err = errors.Join(s.loopOn(ctx, d, &r), d.end())
	}
	if err != nil {
		r.notes = append(r.notes, err.Error())
	}
	return r
}

func (s *stage) loopOn(ctx context.Context, d *daemon, r *row) error {
	first := min(2*time.Minute, s.o.soak/5)
	var done, failed atomic.Int64
	var why atomic.Value
	until := func(end time.Time) {
		var all sync.WaitGroup
		for range loopers {
			all.Go(func() {
				for time.Now().Before(end) && ctx.Err() == nil {
					if err := turn(ctx, d); err != nil {
						failed.Add(1)
						why.CompareAndSwap(nil, err.Error())
					}
					done.Add(1)
				}
			})
		}
		all.Wait()
	}
	began := time.Now()
	until(began.Add(first))
	if err := d.quiet(ctx); err != nil {
		return err
	}
	before, err := d.footprint(ctx)
	if err != nil {
		return err
	}
	until(began.Add(s.o.soak))
	if err := d.quiet(ctx); err != nil {
		return err
	}
	after, err := d.footprint(ctx)
	if err != nil {
		return err
	}
	r.ours = fmt.Sprintf("%d errors; %s", failed.Load(), after.since(before))
	r.runs = fmt.Sprint(done.Load())
	if first, ok := why.Load().(string); ok {
		r.notes = append(r.notes, "the first error: "+first)
	}
	return ctx.Err()
}

// turn is one turn of the loop.
func turn(ctx context.Context, d *daemon) error {
	b, err := d.Create(ctx, api.Create{})
	if err != nil {
		return err
	}
	res, err := d.Exec(ctx, b.ID, api.Exec{Command: []string{"true"}})
	if err == nil && res.Status != "success" {
		err = fmt.Errorf("%s: %s %s", res.Status, res.Reason, res.Stderr)
	}
	return errors.Join(err, d.Kill(ctx, b.ID))
}

// quiet waits until nothing that was ended is still being taken away, by time: the
// pool is full again then, too.
func (d *daemon) quiet(ctx context.Context) error { return pass(ctx, rested) }

func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
