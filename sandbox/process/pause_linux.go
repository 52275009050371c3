// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"sync"

	"github.com/caisson-run/caisson/sandbox"
)

var _ sandbox.Pauser = (*instance)(nil)

// pause is a sandbox standing still, by its control group's freezer. A signal
// would not do: code inside could be anywhere in a fork, and could be told by
// SIGCONT to go on by whatever else it left running.
type pause struct {
	mu     sync.Mutex
	over   bool // it is being destroyed: nothing stops it any more
	paused bool
}

// Pause has the kernel stop everything inside. Where the sandbox has no control
// group, or the host no freezer, it is refused.
func (i *instance) Pause(ctx context.Context) error {
	i.pause.mu.Lock()
	defer i.pause.mu.Unlock()
	host, group := i.host, i.box.group
	if i.pause.over || group == nil || host == nil {
		return sandbox.Errorf(sandbox.ErrUnsupported, "pause sandbox "+i.ID(), "it has no control group that could stand still")
	}
	err := host.Freeze(ctx, group)
	i.pause.paused = err == nil
	return err
}

// Resume lets it go on.
func (i *instance) Resume(context.Context) error {
	i.pause.mu.Lock()
	defer i.pause.mu.Unlock()
	if i.pause.over || i.box.group == nil {
		return nil
	}
	i.pause.paused = false
	return i.box.group.Thaw()
}

// endPause lets a sandbox die that was killed while it stood still: cgroup v1
// keeps a frozen process from taking any signal.
func (i *instance) endPause() {
	i.pause.mu.Lock()
	defer i.pause.mu.Unlock()
	i.pause.over = true
	if i.box.group != nil {
		_ = i.box.group.Thaw() // Destroy sees whether it died
	}
}
