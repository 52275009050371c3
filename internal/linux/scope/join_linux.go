// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
)

// Join moves this process below another service of the system's service manager,
// into its group cgroup.LeafName, where it would otherwise be in the way of its own
// service: on version 2 a group that hands controllers down takes no process, and
// before systemd 254 that is where the next process of a service is put. Groups are
// made below the other service then, and this one can be started beside them.
//
// The other service runs, has Delegate=yes, this process's user, and nothing in its
// own group: it has put itself into cgroup.LeafName. The manager lets in processes of
// that user alone.
//
// It does nothing, and says so with (false, nil), where that is not needed. An error
// is never more than that limits, or sandboxes without their owner, are as they were;
// its hint is for people. Call it early: only what this process starts afterwards
// is there, too.
func Join(ctx context.Context, service string) (joined bool, err error) {
	return realHost().join(ctx, service)
}

func (h host) join(ctx context.Context, service string) (bool, error) {
	if h.stuck(h.detect()) == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.toJoin)
	defer cancel()
	hint := "see: systemctl status " + service
	attach := request{"AttachProcessesToUnit", []any{service, "/" + cgroup.LeafName, []uint32{uint32(h.pid)}}}
	if err := h.insist(ctx, attach); err != nil {
		return false, unsupported("systemd did not move this process into "+service, hint, err)
	}
	if err := h.arrive(ctx, "/"+service+"/"+cgroup.LeafName); err != nil {
		return false, unsupported("systemd did not move this process into "+service, hint, err)
	}
	groups := h.detect()
	if why := groups.Why; why != "" {
		return true, unsupported(why, hint, nil)
	}
	if why := h.stuck(groups); why != "" {
		return true, unsupported(why, hint, nil)
	}
	return true, nil
}

// insist asks until it is done: a service that has just been started may not have
// made its group yet.
func (h host) insist(ctx context.Context, r request) (last error) {
	for {
		err := h.ask(ctx, h.systemBus, r)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // what cut one short says nothing
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(50 * time.Millisecond):
		}
	}
}
