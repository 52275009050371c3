// SPDX-License-Identifier: Apache-2.0

// Package hostpath opens the host paths that the operator names (mounts,
// workspaces, toolchains, another root filesystem) and refuses those that no
// sandbox should see.
//
// A path is a spelling; what is judged is the object. [Open] opens once, with
// O_PATH, and from then on everything is decided on that descriptor: its kind,
// its (device, inode), and the (device, inode) of every directory above it.
// The descriptor itself is what is mounted later, so that renaming, linking or
// replacing a component after the check changes nothing. Spellings (symbolic
// links, "..", bind mounts, trailing slashes, upper and lower case) do not
// matter for the same reason.
//
// [Scan] looks through an opened tree for what must be hidden from the code
// inside (deny globs), and for what later runs on the host and must therefore
// stay as it is in a read-write workspace. [Placeholders] make the latter exist
// for as long as a sandbox runs, because only what exists can be mounted over.
// [Baseline.Look] tells afterwards what came into being all the same.
package hostpath

import "os"

// Source is a host file or directory that was checked. Its descriptor is the
// object that was checked; Name and Real are for people.
type Source struct {
	File *os.File // O_PATH; its name is Real
	Name string   // as the operator wrote it
	Real string   // where it really was when it was opened: absolute, no symbolic links
	Dir  bool     // a directory; otherwise a regular file

	UID, GID uint32 // owner
	Dev, Ino uint64 // identity
}

// Close closes the descriptor.
func (s *Source) Close() error { return s.File.Close() }
