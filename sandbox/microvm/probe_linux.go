// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"runtime"

	"github.com/caisson-run/caisson/image/kernel"
	"github.com/caisson-run/caisson/internal/linux/tun"
	"github.com/caisson-run/caisson/sandbox"
)

// Probe looks for QEMU, a kernel, KVM and the box. It starts nothing but, once for a
// process, a machine of a few instructions on KVM.
func (d *Driver) Probe(ctx context.Context) (sandbox.Capabilities, error) {
	c := sandbox.Capabilities{
		Limits: d.limits(), Root: true, Terminal: true, Masks: true, CopyOnWrite: true, Changes: true, InertSockets: true, Images: true, EROFS: true, OnlyEROFS: true, Pause: true, Snapshot: true,
		NoSurvival: sandbox.Clause{Enforcement: sandbox.Off, Detail: noSurvival},
		Network:    true, Wire: sandbox.WirePackets,
	}
	c.Engine = d.vmm.name()
	if d.opts.Emulated {
		c.Engine += ", emulated"
		c.SlowStart = bootTimeout
		c.Notes = append(c.Notes, "The processor is emulated (TCG): slow, and no hardware boundary.")
	}
	if d.vmm.taps() {
		if why, remedy := tun.Usable(); why != "" {
			c.Network, c.Wire = false, ""
			c.NoNetwork = sandbox.Clause{Enforcement: sandbox.Off, Detail: why, Remedy: remedy}
			c.Notes = append(c.Notes, "no network with an allow-list: "+why+" ("+remedy+")")
		}
	}
	// Without control groups the monitor has no share: whole processors are what holds.
	if box, err := d.opts.Box.Probe(ctx); err == nil && box.Limits[sandbox.LimitCPUs].Enforcement != sandbox.Enforced {
		share := box.Limits[sandbox.LimitCPUs]
		c.Limits[sandbox.LimitCPUs] = sandbox.Clause{Enforcement: sandbox.Emulated, Detail: "the machine's processors, rounded up to whole ones: " + share.Detail, Remedy: share.Remedy}
	}
	c.Unusable, c.Remedy = d.unusable(ctx)
	return c, nil
}

// unusable says what is missing, and what mends it.
func (d *Driver) unusable(ctx context.Context) (why, remedy string) {
	if runtime.GOARCH != "amd64" {
		return "virtual machines were only tried on x86-64", "use another level"
	}
	if _, why, remedy := d.vmm.program(); why != "" {
		return why, remedy
	}
	box, err := d.opts.Box.Probe(ctx)
	if err != nil {
		return "the box of the machine monitor: " + err.Error(), sandbox.Hint(err)
	}
	if box.Unusable != "" {
		return "the machine monitor runs in a sandbox of the process level, and " + box.Unusable, box.Remedy
	}
	k, err := d.kernels.Newest()
	if err != nil {
		return "the kernels cannot be read: " + err.Error(), "look at " + d.opts.Kernels
	}
	if k == nil {
		return "there is no kernel for a guest", "caisson vm kernel import"
	}
	if d.vmm.taps() && k.Lacks(kernel.Vsock) { // one that was imported before there was Firecracker
		return "the kernel " + k.Version + " was imported without vsock, by which Firecracker's guests are spoken to", "caisson vm kernel import, or take QEMU: --isolation microvm:qemu"
	}
	if d.opts.Emulated {
		return "", ""
	}
	return d.kvmUnusable(ctx)
}

// limits says how each limit holds.
func (d *Driver) limits() map[sandbox.LimitName]sandbox.Clause {
	caisson := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "by caisson"}
	inside := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "by the guest's kernel"}
	disk := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "size of a file system on a disk of the machine's own"}
	rate := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: d.vmm.rate()}
	return map[sandbox.LimitName]sandbox.Clause{
		sandbox.LimitWall: caisson, sandbox.LimitOutput: caisson,
		sandbox.LimitCPUTime:   {Enforcement: sandbox.Enforced, Detail: "of the whole machine, read several times a second"},
		sandbox.LimitCPUs:      {Enforcement: sandbox.Enforced, Detail: "the machine's processors, and the share of its monitor"},
		sandbox.LimitMemory:    {Enforcement: sandbox.Enforced, Detail: "by the guest's kernel, in a machine of that memory"},
		sandbox.LimitProcesses: inside, sandbox.LimitOpenFiles: inside, sandbox.LimitFileSize: inside,
		sandbox.LimitDisk: disk, sandbox.LimitInodes: disk, sandbox.LimitTmp: disk,
		sandbox.LimitIO: rate, sandbox.LimitIOPS: rate,
	}
}
