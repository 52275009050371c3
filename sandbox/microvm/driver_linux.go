// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"

	"github.com/caisson-run/caisson/image/kernel"
	"github.com/caisson-run/caisson/sandbox"
)

// Machine is a kind of virtual machine, and the name of its level.
type Machine string

const (
	Micro Machine = "microvm" // few devices, boots fast
	Full  Machine = "vm"      // a whole PC
)

// emulated is the name of the variant without KVM.
const emulated = "tcg"

// Box is the level that the machine monitor runs in.
type Box interface {
	sandbox.Driver
	sandbox.Runner
	sandbox.Sweeper
	sandbox.EmptySweeper
}

// Options say how the driver works. All but Emulation and Emulated are needed.
type Options struct {
	Machine Machine
	// Box is where QEMU runs.
	Box Box
	// Emulation is where it runs when it emulates; nil is Box.
	Emulation Box
	// Kernels is the directory of the kernels that were imported (package image/kernel).
	Kernels string
	// Emulated has QEMU emulate the processor.
	Emulated bool
}

// Driver runs sandboxes as virtual machines. It is safe for use from many goroutines.
type Driver struct {
	opts    Options
	kernels *kernel.Store
	vmm     vmm
	kvm     verdict
}

// New makes the driver. It does nothing until it is used.
func New(opts Options) *Driver {
	return &Driver{opts: opts, kernels: kernel.NewStore(opts.Kernels), vmm: &qemu{machine: opts.Machine, emulated: opts.Emulated}}
}

var (
	_ sandbox.Driver       = (*Driver)(nil)
	_ sandbox.Varied       = (*Driver)(nil)
	_ sandbox.Sweeper      = (*Driver)(nil)
	_ sandbox.EmptySweeper = (*Driver)(nil)
)

// Name is "microvm" or "vm", with ":tcg" behind it where the processor is emulated.
func (d *Driver) Name() string {
	if d.opts.Emulated {
		return string(d.opts.Machine) + ":" + emulated
	}
	return string(d.opts.Machine)
}

// Variant is the driver that emulates, "tcg".
func (d *Driver) Variant(name string) sandbox.Driver {
	switch {
	case d.opts.Emulated:
		return nil
	case name == emulated:
		o := d.opts
		o.Emulated = true
		if o.Emulation != nil {
			o.Box = o.Emulation
		}
		return New(o)
	}
	return nil
}

// Adopt has nothing to adopt: the monitor's box ends with its owner.
func (d *Driver) Adopt(context.Context, *sandbox.Spec) (*sandbox.Adopted, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "adopt sandbox", "%s", noSurvival)
}

// noSurvival is why.
const noSurvival = "a virtual machine's monitor ends with its owner"

// Sweep removes what the monitor's box has left.
func (d *Driver) Sweep(ctx context.Context, id, stateDir string) error {
	return d.opts.Box.Sweep(ctx, id, stateDir)
}

// SweepEmpty removes control groups of boxes that are gone.
func (d *Driver) SweepEmpty(ctx context.Context, dir string, owned func(id string) bool) error {
	return d.opts.Box.SweepEmpty(ctx, dir, owned)
}
