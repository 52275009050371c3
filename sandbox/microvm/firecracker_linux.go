// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/internal/linux/tun"
	"github.com/caisson-run/caisson/sandbox"
)

// firecracker is Firecracker (https://firecracker-microvm.github.io). It needs KVM.
type firecracker struct {
	share int64 // its own memory, beside the machine's, in bytes
}

// firecrackerShare is ten times of what Firecracker says that it needs (SPECIFICATION.md
// of its sources: 5 MiB), with what the kernel keeps for it. Page tables come on top: this
// host's and the guest's of 4 KiB pages take 1/512 of the memory each.
const firecrackerShare = 50 << 20

// pageTables are those of a machine of that many MiB, in bytes, with room to spare.
func pageTables(memory int64) int64 { return memory << 20 / 128 }

func (f *firecracker) name() string { return "Firecracker" }

func (f *firecracker) taps() bool { return true }

func (f *firecracker) rate() string {
	return "by the machine's monitor: each of its disks has an equal part, reads and writes together"
}

func (f *firecracker) program() (file, why, remedy string) {
	file, err := findFirecracker()
	switch {
	case err != nil && os.Getenv(firecrackerVariable) != "":
		return "", firecrackerVariable + " names no file that is here", "correct it, or unset it: " + err.Error()
	case err != nil:
		return "", "there is no Firecracker here", "get it from github.com/firecracker-microvm/firecracker/releases and put it into PATH as firecracker, or name it in " + firecrackerVariable
	}
	return file, "", ""
}

// firecrackerVariable names its file.
const firecrackerVariable = "CAISSON_FIRECRACKER"

func findFirecracker() (string, error) {
	f := os.Getenv(firecrackerVariable)
	if f == "" {
		var err error
		if f, err = exec.LookPath("firecracker"); err != nil {
			return "", err
		}
	}
	f, err := filepath.EvalSymlinks(f)
	if err != nil {
		return "", err
	}
	return filepath.Abs(f)
}

func (f *firecracker) prepare(_ string, s *sandbox.Spec, c *console) (monitor, error) {
	m := &firecrackerMonitor{firecracker: f, console: c, network: s.Network, writes: s.Snapshots}
	m.life, m.end = context.WithCancelCause(context.Background())
	var err error
	if m.place, err = newGift(); err == nil && s.Network != nil {
		m.card, err = newGift()
	}
	if err == nil {
		m.agent, err = newCarried()
	}
	if err == nil {
		m.orders, err = newCarried()
	}
	if err != nil {
		m.close()
		return nil, unkept(err)
	}
	return m, nil
}

// Where Firecracker's own things are in its box.
const (
	boxProgram = "/run/firecracker"
	boxMemory  = "/run/memory"         // what it writes a machine's memory to
	boxWritten = "/run/written.memory" // the memory that a machine goes on from
	boxDevices = "/run/written.devices"
	fcSocket   = "api.sock"
	fcStreams  = "vsock"   // its socket for connections to the machine
	fcDevices  = "devices" // what it writes of a machine beside its memory
)

// fcMemoryFile is boxMemory in the state directory.
const fcMemoryFile = "memory"

// Bounds of the directory of its sockets.
const (
	fcDirSize  = 64 << 10
	fcDirFiles = 8
)

// devicesSize is how many bytes Firecracker may write of a machine's devices: some tens of KiB,
// and some more for each processor.
func devicesSize(processors int) int64 { return 256<<10 + int64(processors)*64<<10 }

// box shows Firecracker's own program, wherever that lies on this host, gives it a
// directory in memory to make its sockets in, and a TAP where there is a network.
func (m *firecrackerMonitor) box(p *boxPlan, program string) (string, error) {
	if err := p.show(program, boxProgram, false); err != nil {
		return "", err
	}
	size := int64(fcDirSize)
	if m.writes {
		size += devicesSize(p.machine.processors)
		if err := m.makeMemory(p); err != nil {
			return "", unkept(err)
		}
	}
	if w := p.from; w.remembers() {
		if w.devices == nil { // none of its own
			return "", notAsWritten(machineFile, nil)
		}
		p.spec.Mounts = append(p.spec.Mounts,
			sandbox.Mount{Source: w.memory, Name: w.memory.Name(), Target: boxWritten}, sandbox.Mount{Source: w.devices, Name: w.devices.Name(), Target: boxDevices})
	}
	p.spec.Scratch = append(p.spec.Scratch, sandbox.Scratch{Target: boxSockets, Size: size, Inodes: fcDirFiles, Give: m.place.theirs})
	if n := m.network; n != nil {
		p.spec.Network = &sandbox.Network{NIC: m.card.theirs, Address: n.Address, Gateway: n.Gateway, MTU: n.MTU}
	}
	p.spec.Limits.Memory = p.machine.memory<<20 + m.share + pageTables(p.machine.memory)
	p.stdout = m.console
	m.machine = p.machine
	return boxProgram, nil
}

// makeMemory makes the file that the machine's memory can be written to: it has its length, of
// holes, since Firecracker can make no file longer than that or the machine's disk.
func (m *firecrackerMonitor) makeMemory(p *boxPlan) error {
	f, err := os.OpenFile(filepath.Join(p.spec.StateDir, fcMemoryFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	p.opened = append(p.opened, f)
	m.memory = f
	p.spec.Limits.FileSize = p.machine.memory << 20
	p.spec.Mounts = append(p.spec.Mounts, sandbox.Mount{Source: f, Name: f.Name(), Target: boxMemory, Access: sandbox.ReadWrite})
	return f.Truncate(p.spec.Limits.FileSize)
}

// argv is Firecracker's command line. It has the box's system call filter, and installs none
// of its own: the box lets no program install one (docs/decisions/074-no-jailer.md).
func (f *firecracker) argv(program string, m *machine) []string {
	return []string{program, "--no-seccomp", "--api-sock", filepath.Join(boxSockets, fcSocket), "--id", fcID(m.id), "--level", "Error"}
}

// fcID is a sandbox's id as Firecracker takes it: letters, digits and hyphens.
func fcID(id string) string { return strings.ReplaceAll(id, "_", "-") }

// guestCID is every machine's: no machine's connections leave its monitor.
const guestCID = 3

// maxFCProcessors is how many Firecracker gives a machine.
const maxFCProcessors = 32

// requests are what makes the machine and starts it, in order.
func requests(m *machine) []fcRequest {
	all := []fcRequest{
		{"/machine-config", fcMachine{Processors: min(m.processors, maxFCProcessors), Memory: m.memory}},
		{"/boot-source", fcBoot{Kernel: boxKernel, Initrd: boxInitrd, Arguments: fcCommandLine(m)}},
	}
	for _, d := range m.disks {
		drive := fcDrive{ID: d.serial, File: d.file, ReadOnly: !d.writable}
		if rate := rateOf(m); rate != (fcRate{}) {
			drive.Rate = &rate
		}
		all = append(all, fcRequest{"/drives/" + d.serial, drive})
	}
	if m.network != nil {
		all = append(all, fcRequest{"/network-interfaces/net", fcNetwork{ID: "net", Device: tun.TapName, MAC: guestMAC.String()}})
	}
	return append(all,
		fcRequest{"/vsock", fcVsock{CID: guestCID, Socket: filepath.Join(boxSockets, fcStreams)}},
		fcRequest{"/entropy", struct{}{}},
		fcRequest{"/actions", fcAction{"InstanceStart"}},
	)
}

// fcRequest is one to put.
type fcRequest struct {
	path string
	body any
}

// rateOf is each drive's. What all of them may do together, in each direction, is divided into
// equal parts, in which reads and writes count together.
func rateOf(m *machine) fcRate {
	n := int64(len(m.disks))
	return fcRate{Bandwidth: bucketOf(m.io, n, largestRequest), Ops: bucketOf(m.iops, n, 1)}
}

const (
	// bucketsPerSecond is how often a bucket is filled anew: what was not used before makes
	// for no more at once than 1/10 of what a second has, as with QEMU, or one request.
	bucketsPerSecond = 10
	// largestRequest is how many bytes the largest request has that a Linux guest makes of itself (its
	// BLK_DEF_MAX_SECTORS_CAP: 4 MiB since 6.16, 1280 KiB before).
	largestRequest = 4 << 20
)

// bucketOf is the n-th part of what there is in a second; 0 is no bound. The most that one
// request takes fits: Firecracker lets one through that does not, fills the bucket also for
// the time that it waits for what was lacking (twice the rate), and does nothing more for
// ever where that is less than a millisecond (RateLimiter::consume of its 1.14 and 1.15).
func bucketOf(all, n, largest int64) fcBucket {
	if all <= 0 {
		return fcBucket{}
	}
	size := max(all/n/bucketsPerSecond, largest)
	// Rounded up, so that the rate is not.
	return fcBucket{Size: size, Refill: int64(math.Ceil(1000 * float64(size) / (float64(all) / float64(n))))}
}

// fcCommandLine is the guest kernel's. Firecracker's own has no modules. A restart is how
// a machine ends: by the keyboard's controller, the one way that Firecracker knows.
func fcCommandLine(m *machine) string {
	serials := make([]string, len(m.disks))
	for i, d := range m.disks {
		serials[i] = d.serial
	}
	return "console=ttyS0 quiet panic=-1 reboot=k i8042.noaux i8042.nomux i8042.dumbkbd " + boot.ChannelVsock + " " + boot.Disks + strings.Join(serials, ",")
}
