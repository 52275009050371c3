// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"io"
	"net/netip"
	"os"
)

// Spec is the world inside a sandbox. The zero value is the safest one: no
// network, nothing writable, nothing of the host.
type Spec struct {
	// ID names the sandbox; see CheckID.
	ID string

	// Hostname inside; "sandbox" when empty.
	Hostname string

	// MachineID, 32 of 0-9a-f, is the sandbox's own, of machine-id(5), and its files tell
	// that and Hostname: see NameFiles. Empty leaves the root's files as they are. A sandbox
	// that is restored with others than it was written down with has these before anything
	// runs on. A level that cannot set them fails.
	MachineID string

	// Root is the read-only tree everything else is placed on.
	Root Root

	// Mounts are host files and directories the operator named, in the order
	// in which they are mounted.
	Mounts []Mount

	// Scratch are the private writable directories; they vanish with the
	// sandbox. No other path is writable.
	Scratch []Scratch

	// Masks are paths inside that show as an empty, unreadable file or
	// directory, whatever a mount put there. They must exist in a mount. To
	// keep a path from being changed instead, mount it once more, read-only.
	Masks []Mask

	// User is who code runs as.
	User User

	// Sudo lets code become the sandbox's own root: a request may name root, and
	// set-user-id programs work. Its root file system has a private layer that takes
	// what root changes, and a sudo in ProgramDir. Levels whose root would be the host's refuse it
	// (Capabilities.Root). It is for living sandboxes; a Runner refuses it.
	Sudo bool

	// RootSize is how many bytes that layer takes; 0 is no bound.
	RootSize int64

	// RootChanges says that ChangeReader will be asked for that layer, at "/". A level
	// without Capabilities.Root has none.
	RootChanges bool

	// Snapshots says that the sandbox may be asked for a snapshot, which a level
	// may have to be prepared for (see Snapshotter). Any other level ignores it.
	Snapshots bool

	// Outlives says that the sandbox may be let outlive its owner, which a
	// level has to be prepared for (see Survivor). Any other level ignores it.
	Outlives bool

	// Hold is the lock that makes StateDir its owner's, where Outlives is set: a
	// copy of it is held for as long as the sandbox lives, so that no sweep
	// takes it meanwhile. The maker of the Spec closes it.
	Hold *os.File

	// Executables, when not nil, are all that code may execute. A driver whose
	// Capabilities.Executables is false refuses it.
	Executables *Executables

	// Network is the only way out; nil is none. A driver whose
	// Capabilities.Network is false refuses it.
	Network *Network

	// Limits bound what code inside may use.
	Limits Limits

	// OnChanges, when not nil, gets the layer of each copy-on-write mount of a directory at
	// the end of Runner.Run, as ChangeReader has it: once nothing inside runs any more, after
	// a time limit too, and before Run returns. It is not called for a layer that could not
	// be read, as after a memory limit that ended the sandbox's kernel. An error of its own
	// ends the reading of that layer alone. Instances ignore it, and Preparers refuse it.
	OnChanges func(target string, layer io.Reader) error `json:"-"`

	// StateDir is a directory of this sandbox alone, mode 0700, which the
	// session made and removes; the driver keeps its files and file-backed
	// scratch there. It lies in another private directory, where a driver may
	// keep what outlives a sandbox, under names that begin with a dot.
	StateDir string
}

// Executables are the files that code may execute. Nothing else is executed, by
// whatever name it is reached; nothing in Scratch, and in Mounts nothing where none
// is named below them, is mapped as a program or a library either; and no program
// comes out of memory (memfd_create). What runs already, or a program that is named
// does with its own memory, is not bounded by it. Of what can be changed inside a
// level may execute scripts only, by interpreters that are named. A driver refuses
// them together with Spec.Sudo.
//
// The program that a Runner is told to run is its caller's, who names it too.
type Executables struct {
	// Files are regular files by their absolute paths inside, with no link in them;
	// what they need to start (a loader, a script's interpreter) is among them.
	Files []string
	// Loaders are those of Files that are there to load others. A level that can tell
	// does not execute them by themselves: they take any file for their program.
	Loaders []string
	// Trees are directories of which every file may be executed.
	Trees []string
	// Closed are directories of the root of which other files are not mapped as
	// code, so that no loader that may be executed takes them for its program;
	// where a level cannot tell they cannot be read.
	Closed []string
}

// Network is a wire whose other end decides about every packet. It is the only
// one that a sandbox gets beside its own loopback.
type Network struct {
	// NIC is the sandbox's end, of the kind that the level asked for
	// (Capabilities.Wire). The maker of the Spec closes it.
	NIC *os.File
	// Far is the other end, for a sandbox that Outlives: it is kept with it, so
	// that the next owner can put a router there. No packet is read until then.
	// nil where the level makes the wire itself (WireDevice).
	Far *os.File
	// Address is the sandbox's own, Gateway is at the other end and answers
	// DNS queries.
	Address, Gateway netip.Addr
	// MTU is how long a packet may be, in bytes.
	MTU int
}

// IPv4 is the two addresses as a kernel takes them; zero, which no device can have, is
// what one of another kind becomes.
func (n *Network) IPv4() (address, gateway [4]byte) {
	if n.Address.Is4() && n.Gateway.Is4() {
		address, gateway = n.Address.As4(), n.Gateway.As4()
	}
	return address, gateway
}

// Wire is how a level takes the sandbox's end of a network.
type Wire string

const (
	// WirePackets: NIC is a packet socket on which each message is one IPv4
	// packet without a header of a lower layer. It is given to a kernel inside
	// that writes no checksums.
	WirePackets Wire = "packets"
	// WireDevice: the level makes a TUN device of the host's kernel in the
	// sandbox's network namespace (internal/linux/tun) and sends its descriptor
	// over NIC, a socket that the router receives from. It keeps no copy.
	WireDevice Wire = "device"
)

// Root is a read-only root filesystem: a directory, or an image as one file.
type Root struct {
	// Dir is a directory with the tree. It may be shared with other sandboxes
	// and is never changed. It is nil when Image.EROFS is the root instead.
	Dir *os.File

	// Binds are read-only host directories shown on top of it (the host's
	// toolchain); their targets exist in Dir.
	Binds []Mount

	// Image is the container image that this is the tree of; nil for any
	// other root.
	Image *Image
}

// Image is a container image, unpacked. Its tree has /proc, /sys, /dev, /tmp,
// and the user's home directory, each a directory of its own and no link; an
// /etc with names for root and the user; and no device, no set-id bit and no
// name of this host. Mountpoints beyond these need not be there: where a mount
// or scratch directory has none, the driver makes it in a tree or layer of the
// sandbox's own.
type Image struct {
	// Digest is the manifest's, "sha256:" and 64 hex digits. Roots with the
	// same digest have the same tree.
	Digest string

	// EROFS is the tree as one read-only file, for a level that says
	// Capabilities.EROFS, and nil for all others. The format is the kernel's,
	// uncompressed, with 4096-byte blocks, and no regular file inline; owners are
	// the image's. In a directory everything belongs to the user who runs
	// caisson.
	EROFS *os.File
}

// Access is what a sandbox may do with a mount. The zero value is read-only.
type Access int

const (
	// ReadOnly lets code read.
	ReadOnly Access = iota
	// CopyOnWrite shows the host's files; writes stay in the sandbox and count
	// as scratch.
	CopyOnWrite
	// ReadWrite lets code change the host's files.
	ReadWrite
)

// String is the word used in flags and policy files: ro, cow or rw.
func (a Access) String() string {
	return [...]string{"ro", "cow", "rw"}[a]
}

// Mount shows a host file or directory inside.
type Mount struct {
	// Source is an O_PATH (or wider) handle: the object that was checked is the
	// object that is mounted. The maker of the Spec closes it.
	Source *os.File
	// Name is Source's name on the host, for messages and records only.
	Name string
	// Target is the absolute, clean path inside.
	Target string
	// Access is read-only unless said.
	Access Access
	// Dir says that Source is a directory.
	Dir bool
	// Public is for a level that copies what is mounted: of what not everybody may read on
	// the host it copies the name alone, and the source's owner is not the sandbox's user.
	// Others ignore it.
	Public bool
}

// Scratch is a private writable directory inside.
type Scratch struct {
	// Target is the absolute, clean path inside.
	Target string
	// Size in bytes; more is ENOSPC. 0 takes its share of Limits.Disk.
	Size int64
	// Inodes is how many files and directories it may hold; 0 means Size/4096.
	Inodes int64
	// Memory keeps it in memory, charged to Limits.Memory (for /dev/shm);
	// otherwise it lies on the host's disk.
	Memory bool
	// Sticky gives mode 1777, as /tmp has; otherwise it is the user's own, 0755.
	Sticky bool
	// Give, where it is not nil, is a socket over which the sandbox's owner gets one
	// descriptor (O_PATH) of the directory when it is made, for what the program makes there
	// for its owner alone. The process level does that, others ignore it.
	Give *os.File
}

// Limit names the limit of its bytes; empty for memory.
func (s *Scratch) Limit() LimitName {
	switch {
	case s.Memory:
		return ""
	case s.Target == "/tmp":
		return LimitTmp
	}
	return LimitDisk
}

// Mask hides one path inside.
type Mask struct {
	Target string // absolute and clean
	Dir    bool   // what is hidden is a directory
}

// User is who code runs as, in the sandbox's own numbering.
type User struct {
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	Name string `json:"name"`
	Home string `json:"home"`
}

// DefaultUser is uid 1000 "user", at home in /home/user.
func DefaultUser() User { return User{UID: 1000, GID: 1000, Name: "user", Home: "/home/user"} }

// RootUser is the sandbox's own root, which levels refuse where it would be
// the host's (Capabilities.Root).
func RootUser() User { return User{Name: "root", Home: "/root"} }

// ProgramDir is a directory for programs that persistent sandboxes have beside
// those of their image or host. It comes first in PATH.
const ProgramDir = "/opt/caisson/bin"
