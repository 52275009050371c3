// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/stdio"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// runToEnd starts the box with exec as its first process and waits for its
// end.
func (b *box) runToEnd(ctx context.Context, exec *sandbox.Exec) (*sandbox.Result, error) {
	// gVisor keeps its own offsets into regular files, so these must be pipes.
	streams, err := stdio.New()
	if err != nil {
		return nil, err
	}
	defer streams.Close()
	if err := b.give(streams.Theirs[0], streams.Theirs[1], streams.Theirs[2]); err != nil {
		return nil, err
	}
	return b.follow(ctx, exec, streams)
}

// follow serves the first process until its end.
func (b *box) follow(ctx context.Context, exec *sandbox.Exec, streams *stdio.Pipes) (*sandbox.Result, error) {
	broken := streams.Copy(exec)

	watch := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { b.control(ctx, exec, broken, watch) })
	told := b.tellChanges()
	ev, err := b.waitExit(exec)
	close(watch)
	watching.Wait()
	<-told
	if err != nil {
		return nil, err
	}
	// The sandbox is gone, so the pipes end.
	streams.Drain()
	return result(ev), nil
}

// control passes on what the outside wants while the program runs.
func (b *box) control(ctx context.Context, exec *sandbox.Exec, broken <-chan struct{}, done <-chan struct{}) {
	var tick <-chan time.Time
	if exec.Sample != nil && exec.SampleEvery > 0 {
		t := time.NewTicker(exec.SampleEvery)
		defer t.Stop()
		tick = t.C
	}
	signals, cancel := exec.Signals, ctx.Done()
	for {
		select {
		case <-done:
			return
		case <-cancel:
			b.stop()
			cancel = nil
		case <-broken:
			b.stop()
			broken = nil
		case s, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			_ = b.shim.command(protocol.Command{Kind: protocol.Signal, Signal: int(s)})
		case <-tick:
			_ = b.shim.command(protocol.Command{Kind: protocol.Measure})
		}
	}
}

// waitExit reads events until the sandbox is gone.
func (b *box) waitExit(exec *sandbox.Exec) (*protocol.Event, error) {
	for {
		ev, err := b.next()
		if err != nil {
			return nil, err
		}
		switch ev.Kind {
		case protocol.Started:
			if exec.Started != nil {
				exec.Started()
			}
		case protocol.Usage:
			if exec.Sample != nil && ev.Counters != nil {
				exec.Sample(usage(ev.Counters))
			}
		case protocol.Stopped:
			b.layers.press(time.Time{})
		case protocol.Exited:
			return ev, b.shim.end()
		case protocol.Failed:
			if err := b.shim.end(); err != nil {
				return nil, err
			}
			return b.failed(ev)
		}
	}
}

// next waits for the next event. A memory limit may take the shim along with
// the sandbox, because both are in the group; that is the sandbox's end.
func (b *box) next() (*protocol.Event, error) {
	ev, err := b.shim.next()
	if err == nil || b.group == nil || !b.group.OOMKilled() {
		return ev, err
	}
	u := b.group.Usage()
	return &protocol.Event{
		Kind: protocol.Exited, WaitStatus: uint32(unix.SIGKILL), Limit: string(sandbox.LimitMemory),
		Counters: &protocol.Counters{CPU: u.CPU, MemoryPeak: u.MemoryPeak}, Wall: time.Since(b.began),
	}, nil
}

// failed tells apart a program that cannot be started, which is the program's
// end as a shell would have it, from a sandbox that cannot be made.
func (b *box) failed(ev *protocol.Event) (*protocol.Event, error) {
	text := ev.Error
	if why := noDirectory(text); why != "" {
		return nil, sandbox.NoDirectory(b.plan.oci.Process.Cwd, why)
	}
	if code, ok := shellCode(text); ok {
		reason := b.plan.oci.Process.Args[0] + ": command not found"
		if code == 126 {
			reason = b.plan.oci.Process.Args[0] + ": cannot be executed"
		}
		return &protocol.Event{Kind: protocol.Exited, WaitStatus: uint32(code) << 8, Error: reason}, nil
	}
	return nil, explain(ev)
}

// shellCode recognises gVisor's words for a first program that is not there
// (127) or cannot be executed (126).
func shellCode(text string) (int, bool) {
	if !strings.Contains(text, "finding executable") && !strings.Contains(text, "failed to load") && !strings.Contains(text, "failed to create process") {
		return 0, false
	}
	switch {
	case strings.Contains(text, "no such file or directory"), strings.Contains(text, "not a directory"):
		return 127, true
	case strings.HasSuffix(text, ": invalid argument"):
		// A link through /proc/self, which leads nowhere before there is a process.
		return 127, true
	case strings.Contains(text, "permission denied"), strings.Contains(text, "exec format error"),
		strings.Contains(text, "is a directory"), strings.Contains(text, "not executable"),
		strings.HasSuffix(text, ": file name too long"), strings.HasSuffix(text, ": too many levels of symbolic links"):
		return 126, true
	}
	return 0, false
}

// result turns the shim's last event into a Result.
func result(ev *protocol.Event) *sandbox.Result {
	r := &sandbox.Result{Status: sandbox.StatusError, WallMS: ev.Wall.Milliseconds(), Reason: ev.Error}
	ws := unix.WaitStatus(ev.WaitStatus)
	switch {
	case ws.Signaled():
		r.Signal = unix.SignalName(ws.Signal())
	default:
		code := ws.ExitStatus()
		r.ExitCode = &code
		if code == 0 {
			r.Status = sandbox.StatusSuccess
		}
	}
	if ev.Limit != "" {
		r.Status, r.Resource = sandbox.StatusResourceExceeded, sandbox.LimitName(ev.Limit)
	}
	if n := ev.Counters; n != nil {
		if n.CPU != nil {
			ms := n.CPU.Milliseconds()
			r.CPUMS = &ms
		}
		r.MemoryPeakBytes = n.MemoryPeak
		u := usage(n)
		r.LimitsHit = u.HitSince(time.Time{})
	}
	return r
}

func usage(n *protocol.Counters) sandbox.Usage {
	return sandbox.Usage{At: time.Now(), CPU: n.CPU, Memory: n.Memory, MemoryPeak: n.MemoryPeak, Processes: n.Processes, Hit: n.Hit}
}
