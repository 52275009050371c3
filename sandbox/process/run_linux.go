// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/linux/stdio"
	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox"
)

// runToEnd runs one program in a sandbox of its own.
func (d *Driver) runToEnd(ctx context.Context, spec *sandbox.Spec, exec *sandbox.Exec) (_ *sandbox.Result, err error) {
	streams, err := stdio.New()
	if err != nil {
		return nil, err
	}
	defer streams.Close()
	b, err := d.newBox(spec, first{argv: exec.Argv, env: exec.Env, dir: exec.Dir, stdio: streams.Theirs})
	if err != nil {
		return nil, err
	}
	defer func() {
		if left := b.close(); err == nil {
			err = left
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	started, ended := b.live()
	if err := b.awaitStart(ctx, started); err != nil {
		return nil, err
	}
	res, err := b.serve(ctx, exec, streams, streams.Copy(exec), ended)
	if err == nil {
		b.tellChanges(ctx)
	}
	return res, err
}

// serve is there for a program that has started until it has ended.
func (b *box) serve(ctx context.Context, exec *sandbox.Exec, streams *stdio.Pipes, broken <-chan struct{}, ended <-chan ending) (*sandbox.Result, error) {
	if exec.Started != nil {
		exec.Started()
	}
	e, err := b.control(ctx, exec, broken, ended)
	if err != nil {
		return nil, err
	}
	// Nothing is left inside that has one of their ends.
	streams.Drain()
	return b.result(e), nil
}

// live makes the processes on a thread that stays with them: when it ends they do, too
// (prctl(2), PR_SET_PDEATHSIG). It is not the process's first thread, which may not end.
// The first channel tells how it went, the second how the program ended.
func (b *box) live() (<-chan error, <-chan ending) {
	started, ended := make(chan error, 1), make(chan ending, 1)
	b.gone, b.began = make(chan struct{}), time.Now()
	threads.Lesser(func() (release bool) {
		defer close(b.gone)
		err := b.start()
		if l := b.plan.first.late; l != nil && err != nil {
			l.giveUp()
		}
		started <- err
		if err == nil {
			b.launch.reapBuilder()
			b.end(ended)
		}
		return true
	})
	return started, ended
}

// watchEvery is how often limits are looked at that the kernel does not end a
// sandbox for by itself.
const watchEvery = 50 * time.Millisecond

// control passes on what the outside wants while the program runs, and returns
// its end. A sandbox that was killed and does not end in time is an error.
func (b *box) control(ctx context.Context, exec *sandbox.Exec, broken <-chan struct{}, ended <-chan ending) (ending, error) {
	var tick <-chan time.Time
	if exec.Sample != nil && exec.SampleEvery > 0 {
		t := time.NewTicker(exec.SampleEvery)
		defer t.Stop()
		tick = t.C
	}
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	signals, cancel := exec.Signals, ctx.Done()
	for {
		select {
		case e := <-ended:
			return e, nil
		case <-cancel:
			b.kill()
			cancel = nil
		case <-broken:
			b.kill()
			broken = nil
		case s, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			b.signal(s)
		case <-tick:
			exec.Sample(b.measure())
		case <-watch.C:
			b.watch()
			if b.remaining() <= 0 {
				return ending{}, b.stuck()
			}
		}
	}
}

// result turns an end into a Result.
func (b *box) result(e ending) *sandbox.Result {
	r := &sandbox.Result{Status: sandbox.StatusError, WallMS: e.wall.Milliseconds()}
	code := -1
	switch {
	case !b.execed():
		code, r.Reason = b.shellCode()
	case e.status.Signaled():
		r.Signal = unix.SignalName(e.status.Signal())
	default:
		code = e.status.ExitStatus()
	}
	if code >= 0 {
		r.ExitCode = &code
		if code == 0 {
			r.Status = sandbox.StatusSuccess
		}
	}
	if limit := b.endedBy(); limit != "" {
		r.Status, r.Resource = sandbox.StatusResourceExceeded, limit
		r.Signal, r.ExitCode = "SIGKILL", nil
	}
	if e.usage.CPU != nil {
		ms := e.usage.CPU.Milliseconds()
		r.CPUMS = &ms
	}
	r.MemoryPeakBytes = e.usage.MemoryPeak
	if e.pids {
		r.LimitsHit = append(r.LimitsHit, sandbox.LimitProcesses)
	}
	r.LimitsHit = append(r.LimitsHit, e.full...)
	return r
}

// endedBy is the limit that ended it.
func (b *box) endedBy() sandbox.LimitName {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit
}

// execed reports whether the program was executed. What kept it from that is in
// errno otherwise; it is set before the thread that we waited for went on.
func (b *box) execed() bool { return b.child.errno == 0 }

// shellCode is what a shell would make of a program that cannot be executed:
// 127 when it is not there, 126 when it is no program.
func (b *box) shellCode() (int, string) {
	name := b.plan.first.argv[0]
	switch b.child.errno {
	case syscall.ENOENT, syscall.ENOTDIR:
		return 127, name + ": command not found"
	case syscall.E2BIG:
		return 126, name + ": " + wire.ArgumentsTooLong
	}
	return 126, name + ": cannot be executed"
}
