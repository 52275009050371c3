// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"net/http"
	"sync"

	"github.com/caisson-run/caisson/sandbox"
)

var _ sandbox.Pauser = (*instance)(nil)

// pause is whether a container stands still, by the engine's freezer.
type pause struct {
	mu sync.Mutex
	on bool
}

// pauses says that the engine can stop a container. A rootless one on cgroup v1
// has no control group to stop it in.
func (f *facts) pauses() bool {
	return f.info.CgroupDriver != "none" && (!f.has("rootless") || f.cgroups() == "2")
}

// Pause has the engine stop everything in the container.
func (i *instance) Pause(ctx context.Context) error { return i.setPaused(ctx, true, "/pause") }

// Resume has the engine let it go on.
func (i *instance) Resume(ctx context.Context) error { return i.setPaused(ctx, false, "/unpause") }

// setPaused asks only for what is not so yet: an engine refuses to pause twice.
func (i *instance) setPaused(ctx context.Context, on bool, path string) error {
	i.pause.mu.Lock()
	defer i.pause.mu.Unlock()
	if i.pause.on == on {
		return nil
	}
	if err := i.engine.call(ctx, http.MethodPost, "/containers/"+i.name+path, nil, nil, nil); err != nil {
		return &sandbox.Error{Op: "sandbox " + i.id, Kind: sandbox.ErrUnavailable, Problem: "the engine does not " + path[1:] + " its container", Cause: err}
	}
	i.pause.on = on
	return nil
}

// standsStill reports whether it is paused: nothing inside ends by itself then.
func (i *instance) standsStill() bool {
	i.pause.mu.Lock()
	defer i.pause.mu.Unlock()
	return i.pause.on
}

// letGo has a container that stands still under a runtime of Runtimes go on, before it
// is removed. An engine kills first and lets go on afterwards, as the freezer of the
// host's kernel wants it; what such a runtime has stopped has ended by then and cannot,
// which the engine waits ten seconds for, and has a process of its own left after that.
// What fails here is removed all the same.
func (e *engine) letGo(ctx context.Context, name string) {
	var c struct {
		State      struct{ Paused bool }
		HostConfig struct{ Runtime string }
	}
	if e.call(ctx, http.MethodGet, "/containers/"+name+"/json", nil, nil, &c) == nil && c.State.Paused && isRuntime(c.HostConfig.Runtime) {
		_ = e.call(ctx, http.MethodPost, "/containers/"+name+"/unpause", nil, nil, nil)
	}
}
