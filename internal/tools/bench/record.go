// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
)

const (
	recorders = 64     // calls under way at once
	recorded  = 10_000 // calls, two records each
)

// record measures the audit record by itself: calls of a busy daemon, each with its
// intent and its outcome, every one on the disk before its caller goes on.
func (s *stage) record(ctx context.Context) row {
	many, err := s.records(ctx, recorders, recorded)
	one, oerr := s.records(ctx, 1, recorded/20)
	if err := errors.Join(err, oerr); err != nil {
		return row{notes: []string{err.Error()}}
	}
	return row{ours: fmt.Sprintf("%.0f/s", many), goal: "≥ 5000/s", notes: []string{fmt.Sprintf("%.0f/s from one caller, who waits for the disk each time", one)}}
}

// records is how many a second so many callers get written.
func (s *stage) records(ctx context.Context, callers, calls int) (_ float64, err error) {
	dir, err := os.MkdirTemp(s.path("."), "audit")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	log, err := audit.Open(ctx, audit.Options{Dir: dir})
	if err != nil {
		return 0, err
	}
	defer log.Close()
	var next atomic.Int64
	failed := make(chan error, callers)
	var all sync.WaitGroup
	began := time.Now()
	for range callers {
		all.Go(func() {
			for n := next.Add(1); n <= int64(calls); n = next.Add(1) {
				if err := recordCall(ctx, log, n); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	close(failed)
	return float64(2*calls) / took.Seconds(), <-failed
}

func recordCall(ctx context.Context, log *audit.Log, n int64) error {
	e, err := log.Begin(ctx, audit.Intent{
		Actor: "key:bench", Kind: "run_command", Sandbox: fmt.Sprintf("sbx_%d", n), Argv: []string{"/bin/echo", fmt.Sprint(n)}, Env: []string{"LANG"},
		Policy: "/p.yaml", Isolation: "gvisor", Network: "none", Limits: sandbox.DefaultLimits(),
	})
	if err != nil {
		return err
	}
	exit := 0
	return e.End(ctx, audit.Outcome{Status: audit.Allowed, Result: &sandbox.Result{
		Status: sandbox.StatusSuccess, ExitCode: &exit, WallMS: 12, Stdout: fmt.Appendln(nil, n),
		Posture: sandbox.Posture{Isolation: "gvisor", Network: "none"},
	}})
}
