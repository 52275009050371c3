// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"os"
	"sync"

	"github.com/caisson-run/caisson/image/kernel"
	"github.com/caisson-run/caisson/sandbox"
)

// Machine is a kind of virtual machine, and the name of its level.
type Machine string

const (
	Micro Machine = "microvm" // few devices, boots fast
	Full  Machine = "vm"      // a whole PC
)

// The names of variants: without KVM, and with one machine monitor of several.
const (
	emulated        = "tcg"
	withQEMU        = "qemu"
	withFirecracker = "firecracker"
)

// Box is the level that the machine monitor runs in.
type Box interface {
	sandbox.Driver
	sandbox.Runner
	sandbox.Sweeper
	sandbox.EmptySweeper
}

// Options say how the driver works. Machine, Box and Kernels are needed.
type Options struct {
	Machine Machine
	// Box is where the machine monitor runs, with KVM and, for Firecracker, a TAP.
	Box Box
	// Emulation is where it runs when it emulates; nil is Box.
	Emulation Box
	// Kernels is the directory of the kernels that were imported (package image/kernel).
	Kernels string
	// Emulated has QEMU emulate the processor.
	Emulated bool

	monitor string // a variant's; empty takes what is here
}

// Driver runs sandboxes as virtual machines. It is safe for use from many goroutines.
type Driver struct {
	opts    Options
	kernels *kernel.Store
	vmm     vmm
	kvm     *verdict
}

// New makes the driver. It does nothing until it is used.
func New(opts Options) *Driver {
	return &Driver{opts: opts, kernels: kernel.NewStore(opts.Kernels), vmm: opts.vmm(), kvm: new(verdict)}
}

func (o *Options) vmm() vmm {
	q, f := &qemu{machine: o.Machine, emulated: o.Emulated}, &firecracker{share: firecrackerShare}
	switch {
	case o.monitor == withFirecracker:
		return f
	case o.monitor == withQEMU || o.Emulated || o.Machine != Micro:
		return q
	}
	return &oneOf{all: []vmm{f, q}, pick: sync.OnceValue(func() vmm {
		if _, why, _ := f.program(); why == "" || os.Getenv(firecrackerVariable) != "" {
			return f
		}
		return q
	})}
}

// oneOf is one of several machine monitors, which is chosen when it is first needed.
type oneOf struct {
	all  []vmm
	pick func() vmm
}

func (o *oneOf) name() string                      { return o.pick().name() }
func (o *oneOf) taps() bool                        { return o.pick().taps() }
func (o *oneOf) rate() string                      { return o.pick().rate() }
func (o *oneOf) program() (file, why, cure string) { return o.pick().program() }

func (o *oneOf) prepare(dir string, s *sandbox.Spec, c *console) (monitor, error) {
	return o.pick().prepare(dir, s, c)
}

var (
	_ sandbox.Driver       = (*Driver)(nil)
	_ sandbox.Varied       = (*Driver)(nil)
	_ sandbox.Sweeper      = (*Driver)(nil)
	_ sandbox.EmptySweeper = (*Driver)(nil)
)

// Name is "microvm" or "vm", with the name of the variant behind it: ":tcg" where the
// processor is emulated, ":qemu" or ":firecracker".
func (d *Driver) Name() string {
	switch {
	case d.opts.monitor != "":
		return string(d.opts.Machine) + ":" + d.opts.monitor
	case d.opts.Emulated:
		return string(d.opts.Machine) + ":" + emulated
	}
	return string(d.opts.Machine)
}

// Variant is the driver that emulates, "tcg", or that of small machines which has one
// machine monitor whatever else is here: "qemu" or "firecracker".
func (d *Driver) Variant(name string) sandbox.Driver {
	o := d.opts
	switch {
	case o.Emulated || o.monitor != "":
		return nil
	case name == emulated:
		o.Emulated = true
		if o.Emulation != nil {
			o.Box = o.Emulation
		}
	case o.Machine == Micro && (name == withQEMU || name == withFirecracker):
		o.monitor = name
	default:
		return nil
	}
	return New(o)
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
