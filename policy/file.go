// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"path/filepath"
	"strconv"

	"github.com/caisson-run/caisson/sandbox"
)

// Pos is a place in a policy file, both counted from 1. The zero Pos means
// that the file does not say it.
type Pos struct{ Line, Column int }

// Said reports whether the file says it.
func (p Pos) Said() bool { return p.Line > 0 }

// Value is something a policy file says, and where.
type Value[T any] struct {
	V  T
	At Pos
}

// Said reports whether the file says it.
func (v Value[T]) Said() bool { return v.At.Said() }

// File is a policy file that was read and found well-formed.
type File struct {
	// Name is the file's name as it appears in messages.
	Name string
	// Dir is the directory relative host paths in the file start from. Parse
	// takes it from the name; a caller that has only a relative name sets it to
	// the absolute directory before [New].
	Dir string
	// From is what it was read from; the zero value where it was not read from a file.
	From sandbox.HostFile

	Isolation  Value[string]   // "" means DefaultIsolation
	Image      Value[string]   // the container image that is the root
	Images     []Value[string] // patterns of images that a call may name
	User       Value[string]   // "user", "sudoer" or "root"
	BestEffort Value[bool]

	// Limits holds the limits that the file says, Explicit names them.
	Limits   sandbox.Limits
	limitsAt map[sandbox.LimitName]Pos
	// NoWall says that the operator's own runs have no wall limit: limits.wall is none.
	// For all other calls it is as if the file said nothing about it.
	NoWall Pos
	// Terminal has a run of the command line have a terminal where there is one.
	Terminal Value[bool]

	Watch   []WatchRule
	Cooling Cooling
	Files   Files
	Env     Env

	Changes Changes

	Network  Network
	Commands Commands
	Code     Code

	Approvals Approvals
	Tools     Tools
	Risk      Risk

	Secrets []Secret
	Servers []*Server
	Tests   []Trial // they decide nothing; see [Trial]
}

// Files is the section files.
type Files struct {
	At         Pos
	Workspace  *Mount
	Mounts     []Mount
	Volumes    []Volume
	Writable   Value[[]Value[string]] // paths inside; an empty list means none
	Deny       []Value[string]        // Globs
	Collect    []Value[string]        // Globs
	Toolchains []Value[string]        // host directories
	Rootfs     Value[string]          // host directory
}

// Mount is a host file or directory that a policy file names.
type Mount struct {
	At     Pos
	Source string // as written
	Target string // "" is the base name in the working directory
	Access sandbox.Access
	// GitWrite lets code write in the repositories of a read-write mount.
	GitWrite bool `json:",omitempty"`
	// Shared lets several sandboxes have a read-write mount at once.
	Shared bool `json:",omitempty"`
}

// Env is the section env.
type Env struct {
	At   Pos
	Any  Value[bool]     // calls may set what they like; nothing of the caller's is passed by it
	Pass []Value[string] // names
	Set  map[string]Value[string]
}

// rule is "file:line", which verdicts and errors name.
func (f *File) rule(p Pos) string {
	if !p.Said() {
		return f.Name
	}
	return f.Name + ":" + strconv.Itoa(p.Line)
}

// position is "file:line:column".
func (f *File) position(p Pos) string {
	return f.rule(p) + ":" + strconv.Itoa(p.Column)
}

// hostPath is a host path of the file, as text: relative ones start from the
// file's directory.
func (f *File) hostPath(p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(f.Dir, p)
}
