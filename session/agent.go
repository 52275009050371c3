// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

// withAgent runs the program in a living sandbox, through the guest agent, and
// takes the files out that the plan lets out.
func (r *run) withAgent(ctx context.Context, d sandbox.Driver, w *world, ex *sandbox.Exec) (*sandbox.Result, error) {
	if err := r.openDests(); err != nil {
		return nil, err
	}
	box, err := d.Start(ctx, w.spec)
	if err != nil {
		return nil, err
	}
	r.undo.add(box.Destroy)
	conn, err := box.Dial(ctx)
	if err != nil {
		return nil, err
	}
	client, err := guest.NewClient(conn, guest.Options{User: w.spec.User, Limits: w.spec.Limits})
	if err != nil {
		return nil, err
	}
	r.undo.add(func(context.Context) error { client.Close(); return nil }) // the box goes next
	began := time.Now()
	stop := sampling(ctx, box, ex)
	exit, err := client.Run(ctx, ex)
	stop()
	res := &sandbox.Result{WallMS: time.Since(began).Milliseconds()}
	r.figures(ctx, box, res)
	if err := ended(ctx, box, res, exit, err); err != nil {
		return nil, err
	}
	if res.Resource == "" && ctx.Err() == nil {
		return res, r.collect(ctx, client, w, res)
	}
	return res, nil
}

// ended turns the agent's word on the program's end into a Result. The level's
// word counts more: what a limit ended may have taken the agent with it.
func ended(ctx context.Context, box sandbox.Instance, res *sandbox.Result, exit guest.Exit, err error) error {
	select {
	case <-box.Ended():
		if l := box.Limit(); l != "" {
			res.Status, res.Resource, res.Signal = sandbox.StatusResourceExceeded, l, "SIGKILL"
			return nil
		}
	default:
	}
	return programEnd(ctx, res, exit, err)
}

// programEnd is what the agent says of a program's end as a Result.
func programEnd(ctx context.Context, res *sandbox.Result, exit guest.Exit, err error) error {
	res.Status = sandbox.StatusError
	switch {
	case ctx.Err() != nil:
		res.Signal = "SIGKILL"
		return nil
	case exit.Code != nil:
		res.ExitCode = exit.Code
		if err != nil { // 126 and 127: it says why
			res.Reason = err.Error()
		} else if *exit.Code == 0 {
			res.Status = sandbox.StatusSuccess
		}
		return nil
	case err != nil:
		return err
	}
	res.Signal = exit.Signal
	return nil
}

// figures reads what the program used.
func (r *run) figures(ctx context.Context, box sandbox.Instance, res *sandbox.Result) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	u, err := box.Usage(ctx)
	if err != nil {
		return // absent, not 0
	}
	if u.CPU != nil {
		ms := u.CPU.Milliseconds()
		res.CPUMS = &ms
	}
	res.MemoryPeakBytes = u.MemoryPeak
}

// sampling reads usage while the program runs.
func sampling(ctx context.Context, box sandbox.Instance, ex *sandbox.Exec) (stop func()) {
	if ex.Sample == nil || ex.SampleEvery <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var over sync.WaitGroup
	over.Go(func() {
		tick := time.NewTicker(ex.SampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			u, err := box.Usage(ctx)
			switch {
			case err == nil:
				ex.Sample(u)
			case errors.Is(err, context.Canceled):
				return
			}
		}
	})
	return func() { cancel(); over.Wait() }
}
