// SPDX-License-Identifier: Apache-2.0

package sandbox

import "os"

// Spec is the world inside a sandbox. The zero value is the safest one: no
// network, nothing writable, nothing of the host.
type Spec struct {
	// ID names the sandbox: "sbx_" and at least 16 letters or digits.
	ID string

	// Hostname inside; "sandbox" when empty.
	Hostname string

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

	// Limits bound what code inside may use.
	Limits Limits

	// StateDir is a directory of this sandbox alone, mode 0700, which the
	// session made and removes; the driver keeps its files and file-backed
	// scratch there.
	StateDir string
}

// Root is a read-only root filesystem.
type Root struct {
	// Dir is a directory with the tree.
	Dir *os.File

	// Binds are read-only host directories shown on top of it (the host's
	// toolchain); their targets exist in Dir.
	Binds []Mount
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
	// Source is an O_PATH (or wider) handle: the object that was checked is
	// the object that is mounted. Whoever made the Spec closes it.
	Source *os.File
	// Name is Source's name on the host, for messages and records only.
	Name string
	// Target is the absolute, clean path inside.
	Target string
	// Access is read-only unless said.
	Access Access
	// Dir says that Source is a directory.
	Dir bool
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
}

// Mask hides one path inside.
type Mask struct {
	Target string // absolute and clean
	Dir    bool   // what is hidden is a directory
}

// User is who code runs as, in the sandbox's own numbering.
type User struct {
	UID, GID int
	Name     string
	Home     string
}

// DefaultUser is uid 1000 "user", at home in /home/user.
func DefaultUser() User { return User{UID: 1000, GID: 1000, Name: "user", Home: "/home/user"} }

// RootUser is the sandbox's own root, which levels refuse where it would be
// the host's (Capabilities.Root).
func RootUser() User { return User{Name: "root", Home: "/root"} }
