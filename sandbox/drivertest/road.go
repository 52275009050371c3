// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

const (
	oneShot = "oneshot"
	living  = "living"
	ahead   = "ahead"
)

// road is one of the ways to run something. All give the same Result.
type road struct {
	name string
	run  func(context.Context, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error)
	// terminal says that Exec.Terminal is served.
	terminal bool
}

func roadsOf(d sandbox.Driver) []road {
	roads := []road{{living, func(ctx context.Context, spec *sandbox.Spec, exec *sandbox.Exec) (*sandbox.Result, error) {
		return runLiving(ctx, d, spec, exec)
	}, true}}
	if r, ok := d.(sandbox.Runner); ok {
		roads = append([]road{{oneShot, r.Run, false}}, roads...)
	}
	if p, ok := d.(sandbox.Preparer); ok {
		roads = append(roads, road{ahead, func(ctx context.Context, spec *sandbox.Spec, exec *sandbox.Exec) (*sandbox.Result, error) {
			return runPrepared(ctx, p, spec, exec)
		}, false})
	}
	return roads
}

// runPrepared makes a sandbox before it is told what runs in it, as a pool does.
func runPrepared(ctx context.Context, d sandbox.Preparer, spec *sandbox.Spec, exec *sandbox.Exec) (_ *sandbox.Result, err error) {
	p, err := d.Prepare(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Destroy(context.WithoutCancel(ctx))) }()
	return p.Run(ctx, exec)
}

// runLiving makes a living sandbox, runs one program through its agent, and
// destroys it.
func runLiving(ctx context.Context, d sandbox.Driver, spec *sandbox.Spec, exec *sandbox.Exec) (_ *sandbox.Result, err error) {
	inst, err := d.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, inst.Destroy(context.WithoutCancel(ctx))) }()
	client, err := dial(ctx, inst, spec)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return runIn(ctx, inst, client, spec, exec)
}

// runIn runs one program in a living sandbox.
func runIn(ctx context.Context, inst sandbox.Instance, client *guest.Client, spec *sandbox.Spec, exec *sandbox.Exec) (*sandbox.Result, error) {
	done := make(chan struct{})
	defer close(done)
	if exec.Sample != nil {
		go sample(ctx, inst, exec, done)
	}
	// Making the sandbox is in neither figure: its processor time beside the program's wall
	// time is no share, least of all on a slow processor.
	// None at all is less than what can be told: the agent took no tick of the clock.
	var before time.Duration
	if u, err := inst.Usage(ctx); err == nil && u.CPU != nil {
		before = *u.CPU
	}
	start := time.Now()
	exit, err := client.Run(ctx, exec)
	res := &sandbox.Result{Status: sandbox.StatusError, ExitCode: exit.Code, Signal: exit.Signal, WallMS: time.Since(start).Milliseconds()}
	if exit.Code != nil && *exit.Code == 0 {
		res.Status = sandbox.StatusSuccess
	}
	if ctx.Err() == nil {
		if u, err := inst.Usage(ctx); err == nil && u.CPU != nil {
			ms := (*u.CPU - before).Milliseconds()
			res.CPUMS = &ms
			res.MemoryPeakBytes = u.MemoryPeak
		}
	}
	if exit.Code != nil || exit.Signal != "" && exit.Signal != "SIGKILL" {
		return res, nil // no limit ends a program so; 127 and 126 come with an error
	}
	// A limit may have ended the sandbox under the program's feet; how the
	// stream broke says nothing about that, the instance does. Where the test has
	// set no limit there is none to wait for.
	bound := runLimit
	if ctx.Err() != nil || reflect.DeepEqual(spec.Limits, sandbox.DefaultLimits()) {
		bound = 100 * time.Millisecond
	}
	select {
	case <-inst.Ended():
	case <-time.After(bound):
	}
	switch {
	case inst.Limit() != "":
		res.Status, res.Resource, res.Signal, res.ExitCode = sandbox.StatusResourceExceeded, inst.Limit(), "SIGKILL", nil
		return res, nil
	case ctx.Err() != nil:
		res.Signal, res.ExitCode = "SIGKILL", nil
		return res, nil
	case exit.Signal != "":
		return res, nil
	}
	return nil, err
}

// lasting is a road to w on which the living sandbox stays for all that runs there, until
// it is ended: for promises about programs, that are none about a new sandbox. To make one
// takes seconds where it is a virtual machine.
func (s *suite) lasting(t *testing.T, r road, w *fixture) (_ road, end func()) {
	t.Helper()
	if r.name != living {
		return r, func() {}
	}
	inst, err := s.driver.Start(timeout(t), w.spec)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dial(timeout(t), inst, w.spec)
	if err != nil {
		_ = inst.Destroy(context.WithoutCancel(t.Context()))
		t.Fatal(err)
	}
	spec := *w.spec
	r.run = func(ctx context.Context, _ *sandbox.Spec, exec *sandbox.Exec) (*sandbox.Result, error) {
		return runIn(ctx, inst, client, &spec, exec)
	}
	return r, func() {
		client.Close()
		if err := inst.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

func dial(ctx context.Context, inst sandbox.Instance, spec *sandbox.Spec) (*guest.Client, error) {
	conn, err := inst.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return guest.NewClient(conn, guest.Options{User: spec.User, Limits: spec.Limits, NewPrivileges: spec.Sudo})
}

// sample does what a Runner does for Exec.Sample.
func sample(ctx context.Context, inst sandbox.Instance, exec *sandbox.Exec, done <-chan struct{}) {
	tick := time.NewTicker(exec.SampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			if u, err := inst.Usage(ctx); err == nil {
				exec.Sample(u)
			}
		}
	}
}
