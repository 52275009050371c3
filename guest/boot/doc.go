// SPDX-License-Identifier: Apache-2.0

// Package boot is the first process of a virtual machine: it makes the sandbox out of
// the machine's devices and starts the guest agent in it.
//
//	kernel ──► /init (this) ── modules, root, scratch, control group
//	              └── clone: new pid, mount, cgroup and IPC namespaces ──► agent, pid 1 of its own
//
// It is the same program as the agent ([github.com/caisson-run/caisson/guest]), in an
// initial RAM disk that image/kernel makes. What the machine is to be comes over the
// channel that the agent serves later: one line of JSON, a [Config], which is answered
// with one line, an [Answer]. From there on the channel is the agent's.
//
// Another port stays this process's ([ControlPort]): there the host has the sandbox stand
// still, and go on with another clock, other random numbers and another name.
//
// When the agent ends the machine ends. Code inside that becomes root (sudo) owns the
// machine's kernel, which is why nothing that is said here is trusted.
package boot

import (
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Port is the name of the virtio-serial port that is the channel, and ControlPort that of
// the one that takes orders.
const (
	Port        = "caisson.agent"
	ControlPort = "caisson.boot"
)

// Words of the kernel's command line, for monitors that have no such port and whose disks
// have no serials of ours.
const (
	// ChannelVsock has the machine listen for the host instead, on VsockPorts. What a port
	// carries goes on in the next connection when one has ended.
	ChannelVsock = "caisson.channel=vsock"
	// ChannelPorts does that with Port: each time that the host opens its end is a
	// connection. It stands for vsock where a monitor has none, in tests.
	ChannelPorts = "caisson.channel=ports"
	// Disks lists the serials of the disks in the order in which the machine has them.
	Disks = "caisson.disks="
)

// VsockPorts are the ports of AF_VSOCK in the place of the virtio-serial ports.
func VsockPorts() map[string]uint32 { return map[string]uint32{Port: 1024, ControlPort: 1025} }

// Argv0 is what the kernel starts it as, and inner what it starts itself as in the
// sandbox's own namespaces.
const (
	Argv0 = "/init"
	inner = "caisson-boot"
)

// Config is what a machine is to be.
type Config struct {
	Hostname string `json:"hostname"`
	// Names are the files that tell the sandbox's names, of sandbox.Spec.NameFiles. One
	// without a text says what the root has there, until an Order has another.
	Names []sandbox.NameFile `json:"names,omitempty"`
	// Root is the serial of the block device with the root file system, an EROFS.
	Root string `json:"root"`
	// Copies is the serial of the block device with copies of what the host mounts, an
	// EROFS with a file or directory for each; empty is none.
	Copies string `json:"copies,omitempty"`
	// Disk is the serial of the block device that parts lie on; empty is none.
	Disk string `json:"disk,omitempty"`
	// Layer takes changes of the root; nil is none: it is read-only then.
	Layer *Part `json:"layer,omitempty"`
	// Mounts are made in their order.
	Mounts []Mount `json:"mounts,omitempty"`
	// Memory bounds programs and what they write to a Mount in memory, in bytes; 0 is no bound.
	Memory int64 `json:"memory,omitempty"`
	// Processes bounds how many there are, threads included; 0 is no bound.
	Processes int64 `json:"processes,omitempty"`
	// Argv and Env are the agent's.
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	// Time is the host's, in nanoseconds since 1970.
	Time int64 `json:"time"`
	// Network is the machine's one device; nil is none.
	Network *Network `json:"network,omitempty"`

	channel *wire.Carrier // of Port, where that is no port

	parts  parts
	layers map[string]layer // what takes changes, by target
}

// layer is a directory that takes changes.
type layer struct {
	dir string
	// covered are the places in the root where something is mounted; nil in other layers.
	covered map[string]bool
}

// Part is a piece of the disk with an ext4 file system, in bytes.
type Part struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// parts are the pieces of the disk that were told to the kernel so far.
type parts struct {
	device string
	n      int
}

// Mount is a private directory, a copy of something of the host's, or nothing over what is
// to be hidden.
type Mount struct {
	Target string `json:"target"`
	// Part is where the directory lies, or the changes over a copy; the file system there
	// has the owner and mode. A directory without one is in memory.
	Part *Part `json:"part,omitempty"`
	// Copy is the name of what is shown in Config.Copies, read-only, or with a Part for
	// changes over it.
	Copy string `json:"copy,omitempty"`
	// Hide covers the target with something empty that cannot be read; Dir says that
	// it is a directory.
	Hide bool `json:"hide,omitempty"`
	Dir  bool `json:"dir,omitempty"`
	// Size, in bytes, and Inodes bound a directory in memory; 0 is half of it.
	Size   int64  `json:"size,omitempty"`
	Inodes int64  `json:"inodes,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`
	UID    int    `json:"uid,omitempty"`
	GID    int    `json:"gid,omitempty"`
	NoExec bool   `json:"noexec,omitempty"`
}

// Network is a point-to-point wire to a gateway.
type Network struct {
	Address string `json:"address"` // IPv4
	Gateway string `json:"gateway"`
	// MAC is the gateway's: nothing on the wire answers who has an address.
	MAC string `json:"mac"`
	MTU int    `json:"mtu"`
}

// Answer says that the agent begins, or why it does not.
type Answer struct {
	Error string `json:"error,omitempty"`
}

// The orders. Each is one line of JSON, an [Order], and is answered with one, a [Done].
const (
	// Freeze has every process of the sandbox stand still, as many as do, until Resume: an
	// error says that some do not. It may be ordered of a sandbox that stands still.
	Freeze = "freeze"
	// Flush writes out what is to be written to disks.
	Flush = "flush"
	// Resume sets what is not empty and then lets the sandbox go on.
	Resume = "resume"
	// Changes gives a piece of the layer over a copy, or over the root where that has a Part,
	// as a tar stream: the first piece of the layer at Target, or the next of the one that was begun last where that is empty.
	// The sandbox stands still meanwhile.
	Changes = "changes"
	// Hold and Leave come before the machine is written down by a monitor that loses its
	// connections by that. Hold has nothing more be sent on the channel, and answers how
	// much was. Leave waits until so much as the host has sent has come, and hangs up; the
	// channel takes another connection once it was ordered to Resume.
	Hold  = "hold"
	Leave = "leave"
)

// MaxPiece is how many bytes of a layer come at once.
const MaxPiece = 256 << 10

// EntropySize is how many bytes of Order.Entropy count.
const EntropySize = 64

// Order is what the host wants of the machine.
type Order struct {
	ID uint64 `json:"id"`
	Do string `json:"do"`
	// Within is how long Freeze and Flush may take, in nanoseconds.
	Within time.Duration `json:"within,omitempty"`
	// Time is the host's, in nanoseconds since 1970.
	Time int64 `json:"time,omitempty"`
	// Entropy is what the kernel draws other numbers by than a copy of it.
	Entropy []byte `json:"entropy,omitempty"`
	// Hostname is the sandbox's name, and Names are the files that tell it, as in Config;
	// without Hostname they stay.
	Hostname string             `json:"hostname,omitempty"`
	Names    []sandbox.NameFile `json:"names,omitempty"`
	// Moved says that the wire leads to another gateway than before, which knows none of the
	// connections that there are.
	Moved bool `json:"moved,omitempty"`
	// Target is where the copy is mounted, or "/".
	Target string `json:"target,omitempty"`
	// Sent is how many bytes the host has sent over the channel's connection, for Leave.
	Sent int64 `json:"sent,omitempty"`
}

// Done says that the order of that number was carried out, or why not.
type Done struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"`
	// Piece is of a layer; an empty one is its end.
	Piece []byte `json:"piece,omitempty"`
	// Sent is how many bytes were sent over the channel's connection, after Hold.
	Sent int64 `json:"sent,omitempty"`
}
