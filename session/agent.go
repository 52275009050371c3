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

// How long the level may take to say that the sandbox has ended, after its agent was
// lost, or said that SIGKILL ended the program: the level and the agent are heard on
// different ways, and the level's is the longer one.
const (
	lostMoment   = 2 * time.Second
	killedMoment = 300 * time.Millisecond
)

// AwaitEnd reports whether the sandbox has ended. It waits for that where the
// program's end looks as if a limit had ended the sandbox under its feet; how the
// agent's stream broke says nothing about it.
func AwaitEnd(ctx context.Context, box sandbox.Instance, exit guest.Exit, err error) bool {
	limit := time.Duration(0)
	switch {
	case ctx.Err() != nil || exit.Code != nil: // ended by the owner of ctx, or not at all
	case errors.Is(err, sandbox.ErrUnavailable):
		limit = lostMoment
	case exit.Signal == "SIGKILL":
		limit = killedMoment
	}
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-box.Ended():
		return true
	case <-wait.Done():
	}
	select { // both were: the level's word counts
	case <-box.Ended():
		return true
	default:
		return false
	}
}

// ended turns the agent's word on the program's end into a Result. The level's
// word counts more: what a limit ended may have taken the agent with it.
func ended(ctx context.Context, box sandbox.Instance, res *sandbox.Result, exit guest.Exit, err error) error {
	if LimitEnded(box, res) {
		return nil
	}
	if f, ok := box.(sandbox.Failer); ok && f.Failure() != nil {
		res.Status = sandbox.StatusError
		return f.Failure()
	}
	return ProgramEnd(ctx, res, exit, err)
}

// LimitEnded says in res which limit ended the sandbox, where one has.
func LimitEnded(box sandbox.Instance, res *sandbox.Result) bool {
	select {
	case <-box.Ended():
	default:
		return false
	}
	l := box.Limit()
	if l != "" {
		res.Status, res.Resource, res.Signal = sandbox.StatusResourceExceeded, l, "SIGKILL"
	}
	return l != ""
}

// ProgramEnd is what the agent says of a program's end as a Result.
func ProgramEnd(ctx context.Context, res *sandbox.Result, exit guest.Exit, err error) error {
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
func figures(ctx context.Context, box sandbox.Instance, res *sandbox.Result) {
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
	res.LimitsHit = u.HitSince(time.Time{})
}

// sampling reads usage while the program runs. blind hears why, once it could not for as
// long as most; nil does not care.
func sampling(ctx context.Context, box sandbox.Instance, ex *sandbox.Exec, maximum time.Duration, blind func(error)) (stop func()) {
	if ex.Sample == nil || ex.SampleEvery <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var over sync.WaitGroup
	over.Go(func() {
		tick := time.NewTicker(ex.SampleEvery)
		defer tick.Stop()
		read := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			u, err := ReadUsage(ctx, box)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				read = time.Now()
				ex.Sample(u)
			case blind != nil && time.Since(read) >= maximum:
				blind(err)
				return
			}
		}
	})
	return func() { cancel(); over.Wait() }
}

// ReadUsage reads usage once, if it takes no time.
func ReadUsage(ctx context.Context, box sandbox.Instance) (sandbox.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, ReadTime)
	defer cancel()
	return box.Usage(ctx)
}

// ReadTime bounds one reading of usage.
const ReadTime = 2 * time.Second
