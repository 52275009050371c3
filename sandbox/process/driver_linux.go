// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// Driver runs sandboxes of ordinary processes. It is safe for use from many
// goroutines.
type Driver struct {
	opts   Options
	groups cgroup.Lookup
}

// Options say how the driver works; the zero value is right.
type Options struct {
	// NoCgroups leaves sandboxes in the caller's control group, for tests of
	// hosts without delegation.
	NoCgroups bool
	// KVM shows /dev/kvm inside, for a sandbox whose program runs virtual machines.
	KVM bool
	// TAP gives a sandbox with a network a TAP device that its program opens by name
	// (tun.TapName), for a machine monitor. The sandbox's NIC is a socket then, and over it
	// comes one descriptor, for tun.Frames.
	TAP bool
}

// New makes the driver. It does nothing until it is used.
func New(opts Options) *Driver {
	return &Driver{opts: opts, groups: cgroup.Lookup{Off: opts.NoCgroups}}
}

// host is what this host's control groups can do; nil when they are not used.
func (d *Driver) host() *cgroup.Host { return d.groups.Host() }

// Name is "process".
func (d *Driver) Name() string { return Name }

var (
	_ sandbox.Driver = (*Driver)(nil)
	_ sandbox.Runner = (*Driver)(nil)
)

// Run runs one program in a sandbox of its own.
func (d *Driver) Run(ctx context.Context, spec *sandbox.Spec, exec *sandbox.Exec) (*sandbox.Result, error) {
	if err := runnable(exec); err != nil {
		return nil, err
	}
	return d.runToEnd(ctx, spec, exec)
}

// runnable refuses what is no one-shot.
func runnable(exec *sandbox.Exec) error {
	if exec.Terminal != nil {
		return sandbox.Errorf(sandbox.ErrUnsupported, "run", "a one-shot of this level has no terminal; start an instance")
	}
	if len(exec.Argv) == 0 {
		return sandbox.Errorf(sandbox.ErrInvalid, "run", "there is no command")
	}
	return nil
}

// Adopt has nothing to adopt: the processes of a sandbox are its owner's children
// and die with it, by the kernel's word.
func (d *Driver) Adopt(context.Context, *sandbox.Spec) (*sandbox.Adopted, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "adopt sandbox", "%s", noSurvival)
}

// noSurvival is why.
const noSurvival = "on the process level a sandbox dies with its owner"

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
