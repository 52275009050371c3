// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// instance is a machine that runs.
type instance struct {
	id      string
	limits  sandbox.Limits
	layered []string // the targets of directories that are mounted copy-on-write
	box     *box
	monitor monitor
	console *console
	opener  *wire.Opener
	orders  *orders
	mark    wire.Mark
	parts   []boot.Part // of its disk

	emulated bool // its processor

	base  sandbox.Usage // when the agent began
	ended chan struct{}

	mu      sync.Mutex
	limit   sandbox.LimitName
	failure error // why it ended, where nothing inside did it
	destroy sync.Mutex

	pausing sync.Mutex // held while the machine is stopped or let go on
	stands  bool       // it was told to stand still, whether it does or not
	frozen  bool       // what the sandbox runs stands still inside
	flushed bool       // its disks have since then what was to be written to them
}

var (
	_ sandbox.Instance = (*instance)(nil)
	_ sandbox.Failer   = (*instance)(nil)
)

// follow ends the machine for its limits, and closes ended when it is gone.
func (i *instance) follow() {
	defer close(i.ended)
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	oom, stuck := i.console.oom, i.monitor.stuck()
	for {
		select {
		case <-i.box.ended:
			i.console.wait()
			i.look()
			if r := i.box.reached(); r != "" {
				i.reach(r)
			}
			return
		case <-oom:
			oom = nil
			i.look()
			i.box.stop()
		case <-stuck:
			stuck = nil
			i.fail(&sandbox.Error{Op: "sandbox " + i.id, Kind: sandbox.ErrUnavailable, Problem: "the host's disk took no more of what the virtual machine wrote, which has ended therefore",
				Hint: "look whether the disk of the state directory is full"})
			i.box.stop()
		case <-tick.C:
			if i.overtime() {
				i.reach(sandbox.LimitCPUTime)
				i.box.stop()
			}
		}
	}
}

// overtime says whether the machine has used its time on processors.
func (i *instance) overtime() bool {
	used := i.since()
	return i.limits.CPUTime > 0 && used.CPU != nil && *used.CPU > i.limits.CPUTime
}

// since is what was used since the agent began: what the machine's boot took is ours.
func (i *instance) since() sandbox.Usage {
	u := i.box.now()
	if u.CPU != nil && i.base.CPU != nil {
		d := max(*u.CPU-*i.base.CPU, 0)
		u.CPU = &d
	}
	return u
}

// reach notes which limit ended the machine; the first one stays.
func (i *instance) reach(l sandbox.LimitName) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.limit == "" {
		i.limit = l
	}
}

// look notes that the agent has told of the memory limit.
func (i *instance) look() {
	select {
	case <-i.console.oom:
		i.reach(sandbox.LimitMemory)
	default:
	}
}

func (i *instance) ID() string { return i.id }

// Dial opens a session with the agent. Where the guest's kernel has ended itself it says so.
func (i *instance) Dial(ctx context.Context) (net.Conn, error) {
	c, err := i.opener.Open(ctx)
	if err != nil && i.console.panicked() {
		return nil, &sandbox.Error{Op: "sandbox " + i.id, Kind: sandbox.ErrUnavailable, Problem: "the guest's kernel has panicked; its console ends with\n" + i.console.lastLines(8), Cause: err}
	}
	return c, err
}

func (i *instance) Ended() <-chan struct{} { return i.ended }

// Limit names the limit that ended the machine, once it has ended.
func (i *instance) Limit() sandbox.LimitName {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.limit
}

func (i *instance) fail(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failure = err
}

// Failure implements sandbox.Failer.
func (i *instance) Failure() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.failure
}

// lastLook is how long Usage waits for the end of a machine that a limit ends.
const lastLook = 2 * time.Second

// Usage is what the machine and its monitor use, as of the last sample. A caller that
// asks after a program's end learns a limit that ended it by then.
func (i *instance) Usage(ctx context.Context) (sandbox.Usage, error) {
	i.console.settle(ctx)
	if i.look(); i.Limit() != "" {
		wait, cancel := context.WithTimeout(ctx, lastLook)
		defer cancel()
		select {
		case <-i.ended:
		case <-wait.Done():
		}
	}
	return i.since(), nil
}

// told is what became of a command to the monitor.
func (i *instance) told(err error) error {
	if err != nil {
		return &sandbox.Error{Op: "sandbox " + i.id, Kind: sandbox.ErrUnavailable, Problem: "the machine monitor does not answer", Cause: err}
	}
	return nil
}

// Destroy ends the monitor, and everything with it.
func (i *instance) Destroy(context.Context) error {
	i.destroy.Lock()
	defer i.destroy.Unlock()
	i.box.stop()
	<-i.ended
	i.monitor.close()
	i.box.mu.Lock()
	defer i.box.mu.Unlock()
	return i.box.err
}
