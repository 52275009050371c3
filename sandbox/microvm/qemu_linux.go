// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/sandbox"
)

// qemu is QEMU, with one of its machines.
type qemu struct {
	machine  Machine
	emulated bool
}

func (q *qemu) name() string { return qemuName }
func (q *qemu) taps() bool   { return false }
func (q *qemu) rate() string { return "by the machine's monitor, of all its disks together" }

// qemuName names it in snapshots, too.
const qemuName = "QEMU"

// program is QEMU's for this host's architecture.
func (q *qemu) program() (file, why, remedy string) {
	file, err := findQEMU()
	if err != nil {
		return "", "there is no QEMU here", "install it: apt-get install qemu-system-x86, or name it in CAISSON_QEMU"
	}
	return file, "", ""
}

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

func (q *qemu) prepare(dir string, s *sandbox.Spec, c *console) (monitor, error) {
	sockets, err := listen(dir, s.Network != nil)
	if err != nil {
		return nil, err
	}
	return &qemuMonitor{qemu: q, sockets: sockets, console: c, network: s.Network, stall: stallTimeout}, nil
}

// translationBuffer is how much QEMU may keep of translated code, in MiB, where it
// emulates.
const translationBuffer = 128

// argv is QEMU's command line. Nothing of it comes from code inside.
func (q *qemu) argv(program string, m *machine) []string {
	board, bus, rom := "q35,usb=off,sata=off,smbus=off", "pci", ",romfile="
	if q.machine == Micro {
		board, bus, rom = "microvm,acpi=on,rtc=on,pit=on,pic=on,isa-serial=on,usb=off", "device", ""
	}
	// No virtual machines in the machine: KVM's code for them would be part of the boundary.
	accel, cpu := "kvm", "host,vmx=off,svm=off,pmu=off"
	if q.emulated {
		accel, cpu = fmt.Sprintf("tcg,tb-size=%d", translationBuffer), "max"
	}
	socket := func(id, name string) string {
		return fmt.Sprintf("socket,id=%s,path=%s", id, filepath.Join(boxSockets, name))
	}
	argv := []string{
		program, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-name", m.id, "-accel", accel, "-M", board, "-cpu", cpu,
		"-m", strconv.FormatInt(m.memory, 10), "-smp", strconv.Itoa(m.processors),
		"-chardev", socket("qmp", monitorSocket), "-mon", "chardev=qmp,mode=control",
		"-chardev", socket("agent", agentSocket), "-device", "virtio-serial-" + bus,
		"-device", "virtserialport,chardev=agent,name=" + boot.Port,
		"-chardev", socket("control", controlSocket), "-device", "virtserialport,chardev=control,name=" + boot.ControlPort,
		"-chardev", socket("console", consoleSocket), "-serial", "chardev:console",
		"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-" + bus + ",rng=rng",
		"-kernel", boxKernel, "-initrd", boxInitrd, "-append", q.commandLine(),
	}
	if m.incoming {
		argv = append(argv, "-S", "-incoming", "defer") // nothing of it runs before it is told to
	}
	for _, d := range m.disks {
		argv = append(argv, "-drive", q.drive(m, d), "-device", "virtio-blk-"+bus+",werror=stop,drive="+d.serial+",serial="+d.serial)
	}
	if m.network != nil {
		argv = append(argv, "-netdev", "stream,id=net,server=off,addr.type=unix,addr.path="+filepath.Join(boxSockets, networkSocket),
			"-device", "virtio-net-"+bus+",netdev=net,csum=off,guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,mac="+guestMAC.String()+",host_mtu="+strconv.Itoa(m.network.MTU)+rom)
	}
	return argv
}

// drive is QEMU's side of a disk. There are no locks: a monitor in hostile hands could hold
// one that keeps others out. What a machine writes is nothing once it has ended, so none of
// it is waited for.
func (q *qemu) drive(m *machine, d disk) string {
	s := "id=" + d.serial + ",if=none,format=raw,file.locking=off,file=" + d.file
	if d.writable {
		s += ",cache=unsafe"
	} else {
		s += ",readonly=on"
	}
	if m.io > 0 || m.iops > 0 {
		s += fmt.Sprintf(",throttling.group=io,throttling.bps-read=%[1]d,throttling.bps-write=%[1]d,throttling.iops-read=%[2]d,throttling.iops-write=%[2]d", m.io, m.iops)
	}
	return s
}

// commandLine is the guest kernel's. A restart is how a machine ends: QEMU is told not to.
func (q *qemu) commandLine() string {
	line := "console=ttyS0 quiet panic=-1 reboot=t"
	if q.emulated {
		// The small machine has no timer that a kernel could measure the processor's by.
		line += " tsc=reliable no_timer_check"
		if khz := hostKHz(); khz > 0 && q.machine == Micro {
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
