// SPDX-License-Identifier: Apache-2.0

package files

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// File is a file that has no name before it is whole. It is left to itself with Drop, or
// gets its name with Keep; one of the two has to be called.
type File struct {
	*os.File
	root *os.Root
	dir  string // below root
	temp string // below root: the name that it has meanwhile, where it must have one
}

// tempName begins the names of files that are not whole, where the file system knows no
// file without one, and of those that are about to replace another. Its maker holds a
// lock on it, by which [Sweep] tells it from what a killed process left.
const tempName = ".caisson-"

// Begin begins a file in a directory below root, which no link leads out of. root has to
// stay open for as long.
func Begin(root *os.Root, dir string, perm os.FileMode) (*File, error) {
	if f, err := unnamedBelow(root, dir, perm); err == nil {
		return &File{f, root, dir, ""}, nil
	}
	f, temp, err := createTemp(root, dir, perm)
	if err != nil {
		return nil, err
	}
	return &File{f, root, dir, temp}, nil
}

// createTemp makes a locked file with a name for the time being.
func createTemp(root *os.Root, dir string, perm os.FileMode) (*os.File, string, error) {
	for {
		temp := filepath.Join(dir, tempName+rand.Text())
		f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if err != nil {
			return nil, "", err
		}
		_ = tryLock(f) // without locks nothing is swept
		if named(root, temp, f) {
			return f, temp, nil
		}
		f.Close() // swept before it was locked
	}
}

// named says whether a name is that of an open file.
func named(root *os.Root, name string, f *os.File) bool {
	of, err := root.Lstat(name)
	if err != nil {
		return false
	}
	is, err := f.Stat()
	return err == nil && os.SameFile(of, is)
}

// Sweep removes files from the directory root that killed processes left there before
// they were whole. What cannot be removed stays.
func Sweep(root *os.Root) {
	d, err := root.Open(".")
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		if text, ok := strings.CutPrefix(name, tempName); ok && len(text) == len(rand.Text()) && strings.Trim(text, base32) == "" {
			sweep(root, name)
		}
	}
}

// base32 is the alphabet of rand.Text.
const base32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

func sweep(root *os.Root, name string) {
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return
	}
	f, err := openIdle(root, name)
	if err != nil {
		return
	}
	defer f.Close()
	if tryLock(f) == nil && named(root, name, f) {
		_ = root.Remove(name)
	}
}

// Written says that nothing more is written: what a file system finds wrong with it only
// then, it says here.
func (f *File) Written() error {
	if f.temp == "" {
		return nil // no file system that says so late makes such files
	}
	return flush(f.File)
}

// KeepNew gives the file its name in its directory, and closes it. Where something has
// that name it is os.ErrExist. When it fails nothing of the file is left.
func (f *File) KeepNew(name string) error {
	defer f.Drop()
	to := filepath.Join(f.dir, name)
	if f.temp == "" {
		err := nameBelow(f.File, f.root, to)
		if err == nil || errors.Is(err, os.ErrExist) {
			return err
		}
		if err := f.becomeNamed(); err != nil {
			return err
		}
	}
	err := f.root.Link(f.temp, to)
	if err == nil || errors.Is(err, os.ErrExist) {
		return err // Drop takes the other name away
	}
	// Some file systems have no second names.
	if err := renameNew(f.root, f.temp, to); err != nil {
		return err
	}
	f.temp = ""
	return nil
}

// Keep is KeepNew by which what has the name gives way.
func (f *File) Keep(name string) error {
	defer f.Drop()
	to := filepath.Join(f.dir, name)
	if f.temp == "" {
		if err := nameBelow(f.File, f.root, to); err == nil {
			return nil
		}
		// Nothing but a name takes a name's place.
		if err := f.becomeNamed(); err != nil {
			return err
		}
	}
	if err := f.root.Rename(f.temp, to); err != nil {
		return err
	}
	f.temp = ""
	return nil
}

// becomeNamed gives the file a name for a moment, by a copy where the file system makes
// files without names and has none for them later.
func (f *File) becomeNamed() error {
	_ = tryLock(f.File)
	temp := filepath.Join(f.dir, tempName+rand.Text())
	if err := nameBelow(f.File, f.root, temp); err == nil {
		f.temp = temp
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	to, temp, err := createTemp(f.root, f.dir, info.Mode().Perm())
	if err != nil {
		return err
	}
	f.temp = temp
	_, err = io.Copy(to, io.NewSectionReader(f.File, 0, info.Size()))
	f.File.Close()
	f.File = to // locked for as long as it is open
	return errors.Join(err, to.Sync(), flush(to))
}

// Drop takes away what has not been kept.
func (f *File) Drop() {
	f.Close()
	if f.temp != "" {
		_ = f.root.Remove(f.temp)
		f.temp = ""
	}
}

// Replace makes a file that this user alone may read, as [Make] does, in the place of
// what there is.
func Replace(path string, content []byte) error {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := Begin(root, ".", 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(f.File, content), f.Written()); err != nil {
		f.Drop()
		return err
	}
	return f.Keep(filepath.Base(path))
}
