// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// cleanup removes the control group that this process is in, and the sandbox's
// directory. The owner does that where it can.
type cleanup struct {
	msg   *protocol.InitMessage
	group *cgroup.Group // nil without one
	taken sync.Once     // away
}

func openCleanup(b *protocol.InitMessage) (*cleanup, error) {
	e := &cleanup{msg: b}
	if b.Cgroup == nil {
		return e, nil
	}
	var err error
	e.group, err = cgroup.Open(b.Cgroup.Dirs)
	return e, err
}

// run removes both, once: the owner is gone. A second caller waits for the first.
func (e *cleanup) run() { e.taken.Do(e.takeAway) }

func (e *cleanup) takeAway() {
	if e.group != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := e.group.Leave(e.msg.Cgroup.Outside); err == nil {
			_ = e.group.Kill(ctx)
			_ = e.group.Remove(ctx)
		}
	}
	e.clear()
}

// ownerLock is what says whose a sandbox's directory is (internal/store).
const ownerLock = "owner.lock"

// clear removes the directory, and its lock last: another caisson may be sweeping just
// then, and without it could not tell that the rest has no owner; nor could any later
// one, should this process be killed.
func (e *cleanup) clear() {
	// RemoveAll does not follow symlinks, and code inside never had the
	// directory in sight.
	entries, _ := os.ReadDir(e.msg.StateDir)
	for _, entry := range entries {
		if entry.Name() != ownerLock {
			_ = os.RemoveAll(filepath.Join(e.msg.StateDir, entry.Name()))
		}
	}
	_ = os.RemoveAll(e.msg.StateDir)
}
