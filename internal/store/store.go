// SPDX-License-Identifier: Apache-2.0

// Package store keeps caisson's state directory: who may own it, where it
// lies, what of it belongs to whom, and what a dead owner left in it.
//
// # The directory
//
// [Open] finds or makes one directory, mode 0700, owned by the effective uid.
// It walks to it component by component, on open descriptors, and refuses what
// another user could swap: a component owned by neither root nor us, a
// directory that everybody may write to without the sticky bit, and a symbolic
// link. One kind of link is followed: a link that root made in a directory that
// is root's own, as /var/run and macOS-like /tmp layouts have it; root alone
// can point it elsewhere.
//
// # Runs
//
// [Dir.Run] makes run/<id> for one sandbox. Its owner.lock is flock'ed for as
// long as its owner lives; the kernel drops the lock when the owner dies, by
// SIGKILL too. [Dir.Sweep] takes what is not held any more and never touches
// what is held. A run directory appears under its name by rename, with the lock
// already held, so there is no moment at which a living owner's directory can
// be had.
//
// Everything here is safe for use by many goroutines and many processes.
package store

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/caisson-run/caisson/sandbox"
)

// Options say where the state directory is. The zero value is the default
// place.
type Options struct {
	// Dir overrides the place; relative to the working directory if it is not
	// absolute. Empty takes $CAISSON_STATE, then the default: for root
	// /var/lib/caisson, also under sudo; for others $XDG_STATE_HOME/caisson or
	// ~/.local/state/caisson, and where there is no usable home
	// /tmp/caisson-<uid> or $XDG_RUNTIME_DIR/caisson, which Dir.Note then says.
	Dir string

	// ReadOnly neither makes the directory nor asks for free space: for
	// readers, and for who takes away what is there, which must work on a full
	// disk. A directory that does not exist is ErrNotFound then.
	ReadOnly bool
}

// place is one directory that may become the state directory.
type place struct {
	path string
	home string // must exist already; nothing is made in or above it but path's own components
	note string // what Dir.Note says when this place is taken
}

// places lists where the state directory may be, best first. Only when a place
// is missing or cannot be written is the next one asked; a place that is
// refused for its owner, mode or a link ends the search.
func places(o Options, euid int, getenv func(string) string) ([]place, error) {
	for _, explicit := range []string{o.Dir, getenv("CAISSON_STATE")} {
		if explicit == "" {
			continue
		}
		abs, err := filepath.Abs(explicit)
		if err != nil {
			return nil, &sandbox.Error{Op: "state directory " + explicit, Kind: sandbox.ErrInvalid,
				Problem: "the working directory it is relative to cannot be found", Hint: "give an absolute path", Cause: err}
		}
		return []place{{path: abs}}, nil
	}
	if euid == 0 {
		// HOME and XDG_* are the caller's under sudo -E: never asked.
		return []place{{path: "/var/lib/caisson"}}, nil
	}
	var list []place
	// The XDG specification says to ignore relative paths.
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		list = append(list, place{path: filepath.Join(dir, "caisson")})
	} else if home := getenv("HOME"); filepath.IsAbs(home) {
		list = append(list, place{path: filepath.Join(home, ".local/state/caisson"), home: filepath.Clean(home)})
	}
	tmp := "/tmp/caisson-" + strconv.Itoa(euid)
	list = append(list, place{path: tmp, home: "/tmp",
		note: "there is no home directory that can be written, so state is kept in " + tmp + " and may be gone after a reboot"})
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		run := filepath.Join(dir, "caisson")
		list = append(list, place{path: run, home: filepath.Clean(dir),
			note: "there is no home directory that can be written, so state is kept in " + run + " and will be gone after logout"})
	}
	return list, nil
}

// Place is where Open looks first, whether there is anything or not; empty where the
// working directory is gone.
func Place(o Options) string {
	list, err := places(o, os.Geteuid(), os.Getenv)
	if err != nil {
		return ""
	}
	return list[0].path
}

// Open finds the state directory, makes it where it is missing, and checks it.
//
// Errors are *sandbox.Error: ErrDenied when the directory or the way to it
// could be swapped or read by another user, ErrUnavailable when the disk is
// read-only, full, or may not be written, ErrNotFound with Options.ReadOnly
// when there is none, ErrUnsupported on a system other than Linux.
func Open(o Options) (*Dir, error) {
	list, err := places(o, os.Geteuid(), os.Getenv)
	if err != nil {
		return nil, err
	}
	return open(list, o.ReadOnly)
}

// Look says where Open would find or make the state directory, and why it would not. It
// makes nothing.
func Look(o Options) (path string, err error) {
	list, err := places(o, os.Geteuid(), os.Getenv)
	if err != nil {
		return "", err
	}
	d, err := look(list)
	if err != nil {
		return list[0].path, err
	}
	return d.Path(), nil
}

// MinFree is how many bytes must be free for a run to be started: enough for
// its audit record and the files a level makes.
const MinFree = 16 << 20

// MinInodes is how many files must be free for a run to be started, on file
// systems that count them.
const MinInodes = 64

// Space is what is left on the state directory's file system.
type Space struct {
	Bytes  int64 // free for ordinary users, in bytes
	Inodes int64 // free files; -1 where the file system does not count them
}
