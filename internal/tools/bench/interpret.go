// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	api "github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/interpreter"
)

// interpreterRows measure the code interpreter through caisson's own client. They have no other side.
func (s *stage) interpreterRows() []bench {
	return []bench{
		s.cells("create to the first cell, nothing ready", "≤ 300 ms", func(n int) int { return max(n/4, 1) }, firstCells),
		s.cells("1+1 in a running context", "≤ 10 ms", func(n int) int { return n }, nextCells),
	}
}

// cells is a row: times has so many runs measured.
func (s *stage) cells(what, goal string, runs func(pairs int) int, times func(context.Context, *daemon, int) ([]time.Duration, error)) bench {
	return bench{"interpreter on gVisor, " + what, func(ctx context.Context) row {
		u := s.users[0]
		r := row{who: u.name, theirs: "none", goal: goal}
		d, err := s.daemon(ctx, u, serving{})
		if err == nil {
			var took []time.Duration
			took, err = times(ctx, d, runs(s.o.pairs))
			if err = errors.Join(err, d.end()); err == nil {
				r.ours, r.runs = shown(took), fmt.Sprint(len(took))
			}
		}
		if err != nil {
			r.notes = append(r.notes, err.Error())
		}
		return r
	}}
}

// firstCells makes a sandbox for each cell.
func firstCells(ctx context.Context, d *daemon, n int) (times []time.Duration, err error) {
	for range n {
		began := time.Now()
		b, err := d.Create(ctx, api.Create{})
		if err != nil {
			return nil, err
		}
		err = d.cell(ctx, b.ID)
		times = append(times, time.Since(began))
		if err = errors.Join(err, d.Kill(ctx, b.ID)); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// nextCells has all cells in the context of one sandbox, after a first that does not count.
func nextCells(ctx context.Context, d *daemon, n int) (times []time.Duration, err error) {
	b, err := d.Create(ctx, api.Create{})
	if err != nil {
		return nil, err
	}
	if err := d.cell(ctx, b.ID); err != nil {
		return nil, err
	}
	for range n {
		began := time.Now()
		if err := d.cell(ctx, b.ID); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	return times, d.Kill(ctx, b.ID)
}

// cell runs a cell that has to go well.
func (d *daemon) cell(ctx context.Context, id string) error {
	x, err := d.RunCell(ctx, id, api.Cell{Code: "1+1"}, nil)
	if err == nil && x.Status != interpreter.Done {
		err = fmt.Errorf("a cell ended with %s", x.Status)
	}
	return err
}
