// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"

	"github.com/caisson-run/caisson/sandbox"
)

// Where things are in the monitor's box.
const (
	boxSockets = "/run/vm"
	boxImage   = "/run/root.erofs"
	boxKernel  = "/run/vmlinux"
	boxInitrd  = "/run/initrd"
	boxCopies  = "/run/copies.erofs"
)

// copiesSerial tells the disk with copies of what is mounted.
const copiesSerial = "copies"

// The sockets, in the order in which QEMU opens them.
const (
	monitorSocket = "qmp"
	agentSocket   = "agent"
	consoleSocket = "console"
	networkSocket = "net"
)

// guestShare is the guest kernel's own share of a machine's memory, with the agent's, in
// bytes, on top of what programs may use; the page tables grow with the memory.
func guestShare(memory int64) int64 { return 80<<20 + memory/32 }

// monitorShare is QEMU's own, beside the machine's memory.
const monitorShare = 128 << 20

// translationBuffer is how much QEMU may keep of translated code, in MiB, where it
// emulates.
const translationBuffer = 128

// machineMemory is a machine's memory in whole MiB. Its initial RAM disk is there twice
// while it boots.
func machineMemory(l *sandbox.Limits, initrd int64) int64 {
	return (l.Memory + guestShare(l.Memory) + 2*initrd + 1<<20 - 1) >> 20
}

// processors is how many a machine has.
func processors(l *sandbox.Limits) int {
	if l.CPUs <= 0 {
		return runtime.NumCPU()
	}
	return max(1, min(int(math.Ceil(l.CPUs)), runtime.NumCPU()))
}

// findQEMU is QEMU's program for this machine's architecture.
func findQEMU() (string, error) {
	if f := os.Getenv("CAISSON_QEMU"); f != "" {
		return filepath.EvalSymlinks(f)
	}
	name := "qemu-system-" + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	f, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(f)
}

// argv is QEMU's command line for a machine of that many MiB. Nothing of it comes from code inside.
func (d *Driver) argv(program string, s *sandbox.Spec, memory int64) []string {
	machine, bus, rom := "q35,usb=off,sata=off,smbus=off", "pci", ",romfile="
	if d.opts.Machine == Micro {
		machine, bus, rom = "microvm,acpi=on,rtc=on,pit=on,pic=on,isa-serial=on,usb=off", "device", ""
	}
	// No virtual machines in the machine: KVM's code for them would be part of the boundary.
	accel, cpu := "kvm", "host,vmx=off,svm=off,pmu=off"
	if d.opts.Emulated {
		accel, cpu = fmt.Sprintf("tcg,tb-size=%d", translationBuffer), "max"
	}
	socket := func(id, name string) string {
		return fmt.Sprintf("socket,id=%s,path=%s", id, filepath.Join(boxSockets, name))
	}
	argv := []string{
		program, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-name", s.ID, "-accel", accel, "-M", machine, "-cpu", cpu,
		"-m", strconv.FormatInt(memory, 10), "-smp", strconv.Itoa(processors(&s.Limits)),
		"-chardev", socket("qmp", monitorSocket), "-mon", "chardev=qmp,mode=control",
		"-chardev", socket("agent", agentSocket), "-device", "virtio-serial-" + bus,
		"-device", "virtserialport,chardev=agent,name=caisson.agent",
		"-chardev", socket("console", consoleSocket), "-serial", "chardev:console",
		// Without locks: a monitor in hostile hands could hold one that keeps others out.
		"-drive", "id=root,if=none,format=raw,readonly=on,file.locking=off,file=" + boxImage,
		"-device", "virtio-blk-" + bus + ",drive=root,serial=root",
		"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-" + bus + ",rng=rng",
		"-kernel", boxKernel, "-initrd", boxInitrd, "-append", d.commandLine(),
	}
	if len(s.Mounts) > 0 {
		argv = append(argv, "-drive", "id=copies,if=none,format=raw,readonly=on,file.locking=off,file="+boxCopies, "-device", "virtio-blk-"+bus+",drive=copies,serial="+copiesSerial)
	}
	if s.Network != nil {
		argv = append(argv, "-netdev", "stream,id=net,server=off,addr.type=unix,addr.path="+filepath.Join(boxSockets, networkSocket),
			"-device", "virtio-net-"+bus+",netdev=net,csum=off,guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,mac="+guestMAC.String()+",host_mtu="+strconv.Itoa(s.Network.MTU)+rom)
	}
	return argv
}

// commandLine is the guest kernel's. A restart is how a machine ends: QEMU is told not to.
func (d *Driver) commandLine() string {
	line := "console=ttyS0 quiet panic=-1 reboot=t"
	if d.opts.Emulated {
		// The small machine has no timer that a kernel could measure the processor's by.
		line += " tsc=reliable no_timer_check"
		if khz := hostKHz(); khz > 0 && d.opts.Machine == Micro {
			line += fmt.Sprintf(" tsc_early_khz=%d", khz)
		}
	}
	return line
}

var cpuMHz = regexp.MustCompile(`(?m)^cpu MHz\s*:\s*([0-9]+)\.([0-9]{3})`)

// hostKHz is how fast this machine's processors count, as far as it is known.
func hostKHz() int {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return 0
	}
	m := cpuMHz.FindSubmatch(b)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(string(m[1]) + string(m[2]))
	if err != nil {
		return 0
	}
	return n
}
