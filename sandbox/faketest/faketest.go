// SPDX-License-Identifier: Apache-2.0

// Package faketest is a driver for tests: it runs programs as ordinary host
// processes and isolates nothing. It gives the rest of caisson a level to run
// on where no real one is built in.
//
// The world of a Spec is laid out with a mount and a PID namespace, so that
// paths, read-only mounts, masks, users and limits look as they do on a real
// level; what runs inside could leave with little effort. Only test binaries
// may import it, which the architecture test holds. It needs root.
//
// A test binary calls [Init] first in TestMain: the driver runs itself again
// as the first process of each sandbox.
package faketest

import (
	"context"
	"sync"

	"github.com/caisson-run/caisson/sandbox"
)

// Driver is the fake level. Its fields are set before use.
type Driver struct {
	// Caps, when set, changes what Probe answers.
	Caps func(*sandbox.Capabilities)
	// HostPIDs leaves programs among the host's processes, for tests of what
	// finds that out. What they leave behind then stays.
	HostPIDs bool
	// Agent gives the level a guest agent: Start makes living sandboxes.
	Agent bool
	// Begun, when set, is called with each Spec before it runs.
	Begun func(*sandbox.Spec, *sandbox.Exec)
	// Changes, when set, is the layer that the level tells of every copy-on-write
	// directory, a tar stream; else nothing was changed, whatever was.
	Changes []byte

	mu      sync.Mutex
	running int
}

var (
	_ sandbox.Driver = (*Driver)(nil)
	_ sandbox.Runner = (*Driver)(nil)
)

// New makes a fake level.
func New() *Driver { return &Driver{} }

// Name is "gvisor": the fake stands where the default level would.
func (d *Driver) Name() string { return "gvisor" }

// Probe says how each limit is imitated.
func (d *Driver) Probe(context.Context) (sandbox.Capabilities, error) {
	held := sandbox.Clause{Enforcement: sandbox.Enforced}
	sampled := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "sampled"}
	caps := sandbox.Capabilities{
		Limits: map[sandbox.LimitName]sandbox.Clause{
			sandbox.LimitWall: held, sandbox.LimitOutput: held, sandbox.LimitCPUTime: sampled, sandbox.LimitMemory: sampled,
			sandbox.LimitProcesses: {Enforcement: sandbox.Enforced, Detail: "only where it is written down: all sandboxes of this level share a uid"}, sandbox.LimitOpenFiles: held, sandbox.LimitFileSize: held,
			sandbox.LimitDisk: held, sandbox.LimitInodes: held, sandbox.LimitTmp: held,
			sandbox.LimitCPUs: sampled,
			sandbox.LimitIO:   {Enforcement: sandbox.Off, Detail: "the fake level has no block device", Remedy: "use a real level"},
			sandbox.LimitIOPS: {Enforcement: sandbox.Off, Detail: "the fake level has no block device", Remedy: "use a real level"},
		},
		Root: true, Pause: d.Agent, Terminal: true, CopyOnWrite: true, Changes: true, ReadWrite: true, LiveFiles: true, Masks: true, Images: true,
		NoSurvival: sandbox.Clause{Enforcement: sandbox.Off, Detail: noSurvival},
		Engine:     "fake, for tests",
		Notes:      []string{"This level isolates nothing."},
	}
	if d.Caps != nil {
		d.Caps(&caps)
	}
	return caps, nil
}

// Adopt finds nothing: a fake sandbox dies with its owner.
func (d *Driver) Adopt(context.Context, *sandbox.Spec) (*sandbox.Adopted, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "adopt sandbox", "%s", noSurvival)
}

const noSurvival = "on the fake level a sandbox dies with its owner"

// Running is how many programs and living sandboxes there are now.
func (d *Driver) Running() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running
}

func (d *Driver) count(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running += n
}
