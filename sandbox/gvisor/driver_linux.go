// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"context"
	"os"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// Driver runs sandboxes behind the embedded gVisor. It is safe for use from
// many goroutines.
type Driver struct {
	opts   Options
	groups cgroup.Lookup
}

// Options say how the driver works; the zero value is right.
type Options struct {
	// NoCgroups leaves sandboxes in the caller's control group, for tests of
	// hosts without delegation.
	NoCgroups bool
	// DebugDir, when set, gets gVisor's own logs: for finding out why gVisor
	// does what it does, never in production.
	DebugDir string
}

// New makes the driver. It does nothing until it is used.
func New(opts Options) *Driver {
	return &Driver{opts: opts, groups: cgroup.Lookup{Off: opts.NoCgroups}}
}

// host is what this host's control groups can do; nil when they are not used.
func (d *Driver) host() *cgroup.Host { return d.groups.Host() }

// Name is "gvisor".
func (d *Driver) Name() string { return Name }

var (
	_ sandbox.Driver = (*Driver)(nil)
	_ sandbox.Runner = (*Driver)(nil)
)

// Run runs one program as the first process of a sandbox of its own.
func (d *Driver) Run(ctx context.Context, spec *sandbox.Spec, exec *sandbox.Exec) (_ *sandbox.Result, err error) {
	b, err := d.oneShot(spec, exec)
	if err != nil {
		return nil, err
	}
	defer func() {
		if left := b.close(); err == nil {
			err = left
		}
	}()
	return b.runToEnd(ctx, exec)
}

// oneShot is a box that has exec's program as its first process.
func (d *Driver) oneShot(spec *sandbox.Spec, exec *sandbox.Exec) (*box, error) {
	if exec.Terminal != nil {
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "run", "a one-shot of gvisor has no terminal; start an instance")
	}
	if spec.Sudo {
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "sudo", "a one-shot of gvisor cannot become root; start an instance")
	}
	return d.newBox(spec, first{argv: exec.Argv, env: exec.Env, dir: exec.Dir, user: spec.User}, 0)
}

// Start makes a living sandbox with the guest agent as its first process.
func (d *Driver) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	return d.startInstance(ctx, spec, "")
}

var _ sandbox.Sweeper = (*Driver)(nil)

// Sweep removes the control group of the sandbox with the given id and state
// directory.
func (d *Driver) Sweep(ctx context.Context, id, stateDir string) error {
	return d.groups.Sweep(ctx, id, stateDir)
}

var _ sandbox.EmptySweeper = (*Driver)(nil)

// SweepEmpty removes control groups whose sandbox's directory is gone.
func (d *Driver) SweepEmpty(ctx context.Context, dir string, owned func(id string) bool) error {
	return d.groups.SweepEmpty(ctx, dir, owned)
}

// euid is who caisson runs as.
var euid, egid = os.Geteuid(), os.Getegid()
