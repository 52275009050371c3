// SPDX-License-Identifier: Apache-2.0

// Package image makes root filesystems.
//
// [Host] shows the host's own toolchain: /usr and its friends as read-only
// binds on top of a skeleton, a small tree of our own with empty directories,
// a synthetic account database, and a copy of the needed, harmless part of the
// host's /etc ([etcTable] is the whole list: what is not on it is not shown).
// [Dir] takes another directory as the root.
//
// # The skeleton and its cache
//
// A skeleton is built once and kept in the cache directory under a name that is
// the digest of everything it was made from: the options, the boot id, and name,
// kind, inode, size, mtime and ctime of every file and directory that was copied.
// Using it again costs those lstat calls and nothing else: which they are is in
// notes beside it, for as long as no directory has changed. It is built under a
// temporary name and renamed, so builders may race; it is never changed
// afterwards, so users may share it. A user of one holds a shared flock on it,
// and the pruner takes only what it can lock exclusively.
//
// # Mountpoints
//
// The tree is read-only to the sandbox and shared between runs, so mountpoints
// must be in it beforehand. The usual ones ([layout]) always are. A target
// below another target needs none: the driver makes it inside that scratch, or
// it must exist in that mount. Any other target becomes part of the digest: the
// first run with a new one builds a skeleton out of hard links to the cached copy
// of /etc (about ten milliseconds), the next ones find it.
//
// Nothing here is resolved by name twice: host directories are opened once, by
// openat2 below a handle of the host's root, and handed on as handles.
package image

import (
	"errors"
	"net/netip"
	"os"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// Target is a path inside on which something will be mounted, and which must
// therefore exist.
type Target struct {
	Path string // absolute and clean
	Dir  bool   // a directory; otherwise a file
}

// HostOptions say what [Host] builds. The zero value is the default user on
// the host's toolchain, but Cache is always needed.
type HostOptions struct {
	// Cache is a directory of ours, mode 0700, for skeletons. It is made when
	// it does not exist.
	Cache string

	// Toolchains are further directories, shown read-only at their own (real)
	// path, whose bin comes first in Root.Path. The caller keeps and closes
	// them, after the sandbox was started.
	Toolchains []*hostpath.Source

	// User is who code runs as; the zero value is sandbox.DefaultUser.
	User sandbox.User

	// Hostname is written to /etc/hostname and /etc/hosts; "sandbox" when
	// empty. It is part of the digest: a name of its own for each sandbox
	// costs a build each time.
	Hostname string

	// NameServer is who is asked for names, in /etc/resolv.conf; none when it
	// is not valid.
	NameServer netip.Addr

	// Programs adds what agents' programs expect beside the host's own, in
	// sandbox.ProgramDir: python, where the host has python3 alone.
	Programs bool

	// Targets are the paths of all mounts, scratch directories and masks.
	Targets []Target

	// root is the host's root directory; "/" when empty. Tests give others.
	root string
}

// DirOptions say what [Dir] has to find in a directory.
type DirOptions struct {
	// Toolchains and Targets are as in HostOptions. What of them is not below
	// another target must exist in the directory.
	Toolchains []*hostpath.Source
	Targets    []Target
}

// PackOptions say where a root in one file is kept, and what goes with it.
type PackOptions struct {
	// Cache is a directory of ours, mode 0700. It is made when it does not exist.
	Cache string
	// Toolchains become Root.Mounts, without what not everybody may read on the host. One
	// below what is packed is packed with it.
	Toolchains []*hostpath.Source
	// Progress, when set, is told how many bytes of how many are packed, if any are: first
	// none, and at the end all. It must not block.
	Progress func(done, total int64)
}

// Root is a root filesystem that is ready to be used. Its handles are valid
// until Close, which may be called when the sandbox was started.
type Root struct {
	// Path is PATH inside, in order.
	Path []string
	// Notes are sentences for people about what of the host does not show.
	Notes []string

	root   sandbox.Root
	mounts []sandbox.Mount
	open   []*os.File
}

// Sandbox is the root as a Spec wants it.
func (r *Root) Sandbox() sandbox.Root { return r.root }

// Mounts are toolchains that lie below a target (a version manager in
// /home/user, say), and all of them where the root is a container image: they
// must be mounted after the scratch directories, so they belong in front of
// Spec.Mounts and not into Root.Binds. Usually none.
func (r *Root) Mounts() []sandbox.Mount { return r.mounts }

// Close closes the handles and lets go of the skeleton in the cache.
func (r *Root) Close() error {
	var errs []error
	for _, f := range r.open {
		errs = append(errs, f.Close())
	}
	r.open = nil
	return errors.Join(errs...)
}

// usualPath is PATH inside without toolchains. What an administrator installed
// comes before what the distribution did, programs before those of root.
var usualPath = []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"}
