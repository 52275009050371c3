// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// endLimit is how long the processes of a sandbox may take to end once they are
// killed. Longer takes only what no signal reaches: a process that the kernel has
// wait for a disk or a file server. It is a variable for tests.
var endLimit = 10 * time.Second

// ending is how the program ended.
type ending struct {
	status unix.WaitStatus
	wall   time.Duration
	usage  sandbox.Usage
	pids   bool // a fork failed for want of processes
	full   []sandbox.LimitName
}

// end waits for the program's end and tells it when nothing that it started is
// left, kills init, and waits for that, too. It is called by the goroutine that
// called start.
func (b *box) end(tell chan<- ending) {
	waitQuietly(b.program)
	e := ending{wall: time.Since(b.began)}
	var ru unix.Rusage
	b.mu.Lock()
	e.status = reap(b.program, &ru)
	b.program = 0
	b.mu.Unlock()
	e.full = b.full()
	if b.plan.first.late == nil {
		b.kill() // dying takes init longer than what follows; who waits for a sandbox made ahead does not wait for that
	}
	// What the program has used with all that it waited for: more exact than
	// what was sampled, and less where something ended without being waited
	// for.
	b.sampler.cpu = max(b.sampler.cpu, time.Duration(ru.Utime.Nano()+ru.Stime.Nano()))
	b.sampler.close()
	if u := b.measure(); u.Processes != nil && *u.Processes == 0 {
		e.usage = u
		tell <- b.judge(e)
		b.endInit()
		return
	}
	b.endInit()
	e.usage = b.measure()
	tell <- b.judge(e)
}

// endInit kills init, and with it all that is left in its pid namespace, and
// waits for it, which ends last. No other goroutine waits meanwhile: only the
// reaping frees the number.
func (b *box) endInit() {
	b.kill()
	awaitInit(b.init)
	b.mu.Lock()
	defer b.mu.Unlock()
	reap(b.init, nil)
	b.init, b.over = 0, true
}

// judge adds what the control group says of the end.
func (b *box) judge(e ending) ending {
	if b.group != nil {
		e.pids = b.group.PidsMaxHit()
		if b.spec.Limits.Memory > 0 && b.group.OOMKilled() {
			b.exceeded(sandbox.LimitMemory)
		}
	}
	return e
}

// waitQuietly waits until a child has ended and leaves its number to it.
func waitQuietly(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// kill ends everything inside. init cannot refuse, and everything dies with it. A
// sandbox that is being made ends when it is.
func (b *box) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.killed.IsZero() {
		b.killed = time.Now()
	}
	if b.init != 0 {
		_ = unix.Kill(b.init, unix.SIGKILL)
	}
}

// awaitStart waits until the program is executed, or cannot be. When ctx ends
// before that, it waits as long as an end may take.
func (b *box) awaitStart(ctx context.Context, started <-chan error) error {
	select {
	case err := <-started:
		return err
	case <-ctx.Done():
	}
	b.kill()
	select {
	case err := <-started:
		return err
	case <-time.After(b.remaining()):
		return b.stuck()
	}
}

// remaining is how much of endLimit is left.
func (b *box) remaining() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.killed.IsZero() {
		return endLimit
	}
	return time.Until(b.killed.Add(endLimit))
}

// stuck is the error for a sandbox that was killed and has not ended in time.
func (b *box) stuck() error {
	return sandbox.Unended("end sandbox "+b.spec.ID, fmt.Sprintf("%s after it was killed these processes are left: %s", endLimit, strings.Join(b.left(), ", ")))
}

// left names the processes that are still there.
func (b *box) left() []string {
	b.mu.Lock()
	pids := []int{b.init, b.program}
	b.mu.Unlock()
	if b.group != nil {
		more, _ := b.group.Pids() // for people
		pids = append(pids, more...)
	}
	slices.Sort(pids)
	var names []string
	for _, pid := range slices.Compact(pids) {
		if s, ok := readStatus(pid); ok && pid != 0 {
			names = append(names, fmt.Sprintf("%d (%q, state %s)", pid, s.name, s.state))
		}
	}
	return names
}

// close waits until the processes, which were ended before, are gone. It takes
// away what else is left. Where they do not end in time that is an error, and the
// rest is taken away when they do. It may be called twice.
func (b *box) close() error {
	if b.gone == nil {
		return b.clear()
	}
	select {
	case <-b.gone:
		return b.clear()
	case <-time.After(b.remaining()):
	}
	err := b.stuck()
	go func() {
		<-b.gone
		_ = b.clear() // who waited was told
	}()
	return err
}

// clear takes away what is left of a sandbox without processes.
func (b *box) clear() error {
	b.clearing.Do(func() {
		b.closeFiles()
		if b.group == nil {
			return
		}
		// Everything in it has died with init. Without a deadline each waits 5 s.
		ctx := context.Background()
		if b.group.Remove(ctx) != nil {
			b.unclear = errors.Join(b.group.Kill(ctx), b.group.Remove(ctx))
		}
	})
	return b.unclear
}
