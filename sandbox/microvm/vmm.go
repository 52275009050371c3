// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"io"
	"math"
	"net"
	"runtime"

	"github.com/caisson-run/caisson/sandbox"
)

// vmm is a kind of machine monitor: a program that runs a machine.
type vmm interface {
	// name is for people.
	name() string
	// program is its file on this host; without one, why says so and remedy how to get it.
	program() (file, why, remedy string)
	// taps says whether its machines' network card is a TAP of this host's kernel.
	taps() bool
	// rate says how it bounds how much its machines' disks do in a second.
	rate() string
	// prepare makes what a monitor for s will be spoken to by, in dir, which is new and
	// empty and which it sees as boxSockets. What the machine's console says goes to c.
	prepare(dir string, s *sandbox.Spec, c *console) (monitor, error)
}

// monitor is one of them, with its machine. It runs in a box of its own, whose end is its
// end: close ends what caisson holds of it alone.
type monitor interface {
	// box adds to the plan of its box what this monitor has beyond others, and returns the
	// program's name in there.
	box(p *boxPlan, program string) (string, error)
	// argv is its command line.
	argv(program string, m *machine) []string
	// connect returns when it can be spoken to and its machine boots; errMonitorGone when
	// gone is closed before.
	connect(ctx context.Context, gone <-chan struct{}) error
	// channel is the stream to the machine's first process, once it is connected.
	channel() net.Conn
	// control is the stream on which that process takes orders, once it is connected.
	control() net.Conn
	// pause stops the machine's processors, resume lets them go on. Each may be asked for
	// twice.
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	// reach is called when the sandbox of a machine that was let go on does so, too: its agent
	// can be spoken to from there on.
	reach(ctx context.Context) error
	// save writes the memory of a machine that stands still to w, and returns what its devices
	// are where they are not in there. It stands still afterwards, after an error too. Its
	// processors may run meanwhile, and its first process take orders.
	save(ctx context.Context, o *orders, w io.Writer) (devices []byte, err error)
	// load has a machine that is incoming stand where it was written down. It reads its memory
	// from r to the end, which is an error where that is not as it was written. What a monitor
	// is shown of a snapshot itself is the very file.
	load(ctx context.Context, r io.Reader) error
	// stuck is closed when the machine stands still as its disk cannot be written to, once it
	// is connected; nil where the machine is told instead.
	stuck() <-chan struct{}
	close()
}

// machine is what a monitor is to run.
type machine struct {
	id         string
	memory     int64 // in MiB
	processors int
	disks      []disk
	io, iops   int64            // of all disks together, a second and in each direction; 0 is no bound
	network    *sandbox.Network // nil is none
	incoming   bool             // it does not boot, and waits for load
}

// disk is a block device of a machine.
type disk struct {
	serial   string // which the guest knows it by
	file     string // in the monitor's box
	writable bool
}

// Where things are in the monitor's box.
const (
	boxSockets = "/run/vm"
	boxImage   = "/run/root.erofs"
	boxKernel  = "/run/vmlinux"
	boxInitrd  = "/run/initrd"
	boxCopies  = "/run/copies.erofs"
	boxScratch = "/run/scratch"
)

// The serials of disks: the root, the copies of what is mounted, and what is written.
const (
	rootSerial    = "root"
	copiesSerial  = "copies"
	scratchSerial = "scratch"
)

// guestShare is the guest kernel's own share of a machine's memory, with the agent's, in
// bytes, on top of what programs may use; the page tables grow with the memory.
func guestShare(memory int64) int64 { return 80<<20 + memory/32 }

// newMachine is the machine for s. Its initial RAM disk, of that many bytes, is in its
// memory twice while it boots.
func newMachine(s *sandbox.Spec, initrd int64, room *scratch) *machine {
	m := &machine{
		id: s.ID, processors: processors(&s.Limits), network: s.Network,
		memory: (s.Limits.Memory + guestShare(s.Limits.Memory) + 2*initrd + 1<<20 - 1) >> 20,
		disks:  []disk{{serial: rootSerial, file: boxImage}},
		io:     s.Limits.IO, iops: s.Limits.IOPS,
	}
	if len(s.Mounts) > 0 {
		m.disks = append(m.disks, disk{serial: copiesSerial, file: boxCopies})
	}
	if !room.empty() {
		m.disks = append(m.disks, disk{serial: scratchSerial, file: boxScratch, writable: true})
	}
	return m
}

// processors is how many a machine has.
func processors(l *sandbox.Limits) int {
	if l.CPUs <= 0 {
		return runtime.NumCPU()
	}
	return max(1, min(int(math.Ceil(l.CPUs)), runtime.NumCPU()))
}
