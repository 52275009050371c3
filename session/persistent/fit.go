// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"fmt"
	"sync"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// What a sandbox takes before anything runs in it: on gVisor 54 MiB and 34 tasks, as measured
// of many in a pod, and some more; other levels take less.
const (
	idleMemory = 64 << 20
	idleTasks  = 40
)

// fit is what there is for more sandboxes where this process and they are bounded together, as
// in a pod: one too many would have the kernel end others, or this process.
type fit struct {
	left func() cgroup.Left // nil: nothing bounds them

	mu       sync.Mutex
	starting int64 // sandboxes that are being started, whose use is not seen yet
}

// take refuses a sandbox that would not fit, and else counts it until started.
func (f *fit) take() (started func(), _ error) {
	if f.left == nil {
		return func() {}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l, n := f.left(), f.starting+1
	what := ""
	// A sixteenth is for what is not foreseen, 256 MiB at most.
	switch {
	case l.MemoryMax > 0 && l.Memory < n*idleMemory+min(l.MemoryMax/16, 256<<20):
		what = fmt.Sprintf("%s are left of the memory of %s that caisson and its sandboxes have together", session.Size(l.Memory), session.Size(l.MemoryMax))
	case l.TasksMax > 0 && l.Tasks < n*idleTasks+min(l.TasksMax/16, 256):
		what = fmt.Sprintf("%d are left of the %d processes and threads that caisson and its sandboxes have together", l.Tasks, l.TasksMax)
	default:
		f.starting++
		return sync.OnceFunc(func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.starting--
		}), nil
	}
	return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "there is no room for another one", Cause: noRoom(what), Hint: "try again later, or end a sandbox"}
}

// noRoom is why a sandbox does not fit. It is nothing that another try would show.
type noRoom string

func (n noRoom) Error() string { return string(n) }

func isNoRoom(err error) bool { var n noRoom; return errors.As(err, &n) }
