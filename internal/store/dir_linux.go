// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// Dir is the state directory, checked and held open.
type Dir struct {
	path string
	note string
	root *os.File // the directory itself
}

// Path is the directory's absolute path without links. Every component of it
// was checked, so it stays what it is unless root changes it.
func (d *Dir) Path() string { return d.path }

// Note is a sentence for people when the directory is not in its usual place;
// empty otherwise.
func (d *Dir) Note() string { return d.note }

// Close gives the directory back. Run directories made from it stay.
func (d *Dir) Close() error { return d.root.Close() }

// open takes the first of places that can be had.
func open(list []place, readOnly bool) (*Dir, error) {
	return first(list, func(p place) (*Dir, error) { return openPlace(p, readOnly) })
}

// look is open for a caller that only asks: it makes nothing.
func look(list []place) (*Dir, error) {
	return first(list, func(p place) (*Dir, error) {
		d, err := openPlace(p, true)
		switch {
		case err == nil:
			defer d.Close()
			return d, d.usable()
		case errors.Is(err, unix.ENOENT) && (p.home == "" || exists(p.home) == nil):
			return &Dir{path: p.path, note: p.note}, makable(p.path)
		}
		return nil, err
	})
}

// makable says why a directory that is missing cannot be made, by the nearest one above it
// that is not; whose that is [walk] has looked at.
func makable(path string) error {
	above := filepath.Dir(path)
	for above != "/" && exists(above) != nil {
		above = filepath.Dir(above)
	}
	err := unix.Faccessat(unix.AT_FDCWD, above, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	if err != nil {
		return walkError(path, path, err)
	}
	d, err := os.Open(above)
	if err != nil {
		return nil // who may write there need not be able to read it
	}
	defer d.Close()
	return (&Dir{path: path, root: d}).usable()
}

// first is the first of places that try gives a directory for.
func first(list []place, try func(place) (*Dir, error)) (*Dir, error) {
	var failed error
	for _, p := range list {
		p = p.onVolume()
		d, err := try(p)
		if err == nil {
			return d, nil
		}
		missing := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS)
		if failed == nil || !missing {
			failed = err
		}
		// A place that is missing or may not be written gives way to the next;
		// one that was tampered with does not. A place with a note is the
		// exception: a neighbour who took our name in /tmp must not keep us
		// from a runtime directory that is truly ours.
		if !missing && p.note == "" {
			break
		}
	}
	return nil, failed
}

func openPlace(p place, readOnly bool) (*Dir, error) {
	if err := readable(p.path); err != nil {
		return nil, err
	}
	if p.home != "" {
		if err := exists(p.home); err != nil {
			return nil, walkError(p.path, p.home, err)
		}
	}
	root, path, err := walk(p.path, !readOnly)
	if err != nil {
		return nil, err
	}
	if err := readable(path); err != nil { // a link may have led there
		root.Close()
		return nil, err
	}
	d := &Dir{path: path, note: p.note, root: root}
	if readOnly {
		return d, nil
	}
	if err := d.ready(); err != nil {
		root.Close()
		return nil, err
	}
	return d, nil
}

// readable refuses a name that is no text: levels write it down as such (in JSON), which
// would make another name of it.
func readable(path string) error {
	if utf8.ValidString(path) {
		return nil
	}
	return &sandbox.Error{
		Op: fmt.Sprintf("state directory %q", path), Kind: sandbox.ErrInvalid, Problem: "its name is not UTF-8",
		Hint: "set CAISSON_STATE to a directory with another name",
	}
}

// exists says whether a home directory is there at all: ours to use, not to make.
func exists(path string) error {
	var st unix.Stat_t
	return unix.Stat(path, &st)
}

// ready refuses a disk that cannot take a run and makes the run directory.
func (d *Dir) ready() error {
	if err := d.usable(); err != nil {
		return err
	}
	return d.makeRuns()
}

// usable refuses a disk that cannot take a run.
func (d *Dir) usable() error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.root.Fd()), &st); err != nil {
		return walkError(d.path, d.path, err)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return walkError(d.path, d.path, unix.EROFS)
	}
	if err := unix.Faccessat(int(d.root.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return walkError(d.path, d.path, err)
	}
	return d.Require(MinFree)
}

// makeRuns makes the directory that holds the run directories.
func (d *Dir) makeRuns() error {
	err := unix.Mkdirat(int(d.root.Fd()), runs, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return walkError(d.path, filepath.Join(d.path, runs), err)
	}
	return nil
}

// FreeSpace is what is left on the directory's file system.
func (d *Dir) FreeSpace() (Space, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.root.Fd()), &st); err != nil {
		return Space{}, walkError(d.path, d.path, err)
	}
	// Bavail, not Bfree: the reserve that a file system keeps for root is for
	// mending the host, not for sandboxes of a root caisson.
	s := Space{Bytes: int64(st.Bavail) * st.Frsize, Inodes: int64(st.Ffree)}
	if st.Files == 0 {
		s.Inodes = -1
	}
	return s, nil
}

// Require returns ErrUnavailable unless at least bytes, and MinInodes files,
// are free: the check that refuses a run on a full disk.
func (d *Dir) Require(bytes int64) error {
	s, err := d.FreeSpace()
	if err != nil {
		return err
	}
	what := ""
	switch {
	case s.Bytes < bytes:
		what = fmt.Sprintf("%d KiB are free, %d are needed", s.Bytes>>10, bytes>>10)
	case s.Inodes >= 0 && s.Inodes < MinInodes:
		what = fmt.Sprintf("%d more files can be made, %d are needed", s.Inodes, MinInodes)
	default:
		return nil
	}
	return &sandbox.Error{Op: "state directory " + d.path, Kind: sandbox.ErrUnavailable,
		Problem: "the disk is full: " + what, Cause: unix.ENOSPC,
		Hint: "free some space, or set CAISSON_STATE to a directory on another disk"}
}
