// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	api "github.com/caisson-run/caisson/client"
)

const (
	busyOnes = 20
	goCold   = "{freeze: 5s, disk: 20s}"
)

// mostlyCold makes many sandboxes of which a few are used, and looks at what the others cost.
func (s *stage) mostlyCold(ctx context.Context) row {
	u := s.users[0]
	r := row{who: u.name, theirs: "none", goal: "no error; daemon ≤ 2 % of a core for the idle ones"}
	policy := filepath.Join(filepath.Dir(u.state), "cold.yaml")
	err := os.WriteFile(policy, []byte("version: 1\ncooling: "+goCold+"\n"), 0o600)
	var d *daemon
	if err == nil {
		d, err = s.daemon(ctx, u, serving{policy: policy})
	}
	if err == nil {
		err = errors.Join(s.mostlyColdOn(ctx, d, &r), d.end())
	}
	if err != nil {
		r.notes = append(r.notes, err.Error())
	}
	return r
}

func (s *stage) mostlyColdOn(ctx context.Context, d *daemon, r *row) error {
	clients, err := s.clients(ctx, d, s.o.idle)
	if err != nil {
		return err
	}
	began := time.Now()
	made, err := createAll(ctx, clients, s.o.idle)
	defer killAll(ctx, clients, made)
	if err != nil {
		return err
	}
	making := time.Since(began)
	if err := pass(ctx, settled); err != nil {
		return err
	}
	rest, err := d.share(ctx, func() error { return pass(ctx, watched) })
	if err != nil {
		return err
	}
	var calls, failed atomic.Int64
	loaded, err := d.share(ctx, func() error {
		var all sync.WaitGroup
		for i := range min(busyOnes, len(made)) {
			all.Go(func() {
				for end := time.Now().Add(s.o.soak); time.Now().Before(end) && ctx.Err() == nil; {
					res, err := clients[i/perKey].Exec(ctx, made[i].ID, api.Exec{Command: []string{"sh", "-c", "for i in 1 2 3; do echo $i; done; sleep 1"}})
					if calls.Add(1); err != nil || res.Status != "success" {
						failed.Add(1)
					}
				}
			})
		}
		all.Wait()
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	rss, pss, err := memories(d.cmd.Process.Pid)
	r.ours = fmt.Sprintf("made in %.0f s; daemon %.2f %% of a core with all idle, %.1f %% with %d calls; %d failed; daemon %.0f MB, all sandboxes %.0f MB",
		making.Seconds(), rest, loaded, calls.Load(), failed.Load(), float64(rss)/1e6, float64(pss)/1e6)
	r.runs = "1"
	return err
}

// share is what the daemon alone takes of a core meanwhile, in per cent.
func (d *daemon) share(_ context.Context, during func() error) (float64, error) {
	before, _, err := processTimes(d.cmd.Process.Pid)
	began := time.Now()
	if err == nil {
		err = during()
	}
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	after, _, err := processTimes(d.cmd.Process.Pid)
	return 100 * float64(after-before) / float64(took), err
}
