// SPDX-License-Identifier: Apache-2.0

package newfile

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
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
// file without one.
const tempName = ".caisson-"

// Begin begins a file in a directory below root, which no link leads out of. root has to
// stay open for as long.
func Begin(root *os.Root, dir string, perm os.FileMode) (*File, error) {
	if f, err := unnamedBelow(root, dir, perm); err == nil {
		return &File{f, root, dir, ""}, nil
	}
	temp := filepath.Join(dir, tempName+rand.Text())
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, err
	}
	return &File{f, root, dir, temp}, nil
}

// Written says that nothing more is written: what a file system finds wrong with it only
// then, it says here.
func (f *File) Written() error {
	if f.temp == "" {
		return nil // it would be gone; no file system that says so late makes such files
	}
	return f.Close()
}

// Keep gives the file its name in its directory, and closes it. What lies there gives
// way. When that fails nothing of the file is left.
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
	temp := filepath.Join(f.dir, tempName+rand.Text())
	if err := nameBelow(f.File, f.root, temp); err == nil {
		f.temp = temp
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	to, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	f.temp = temp
	_, err = io.Copy(to, io.NewSectionReader(f.File, 0, info.Size()))
	return errors.Join(err, to.Sync(), to.Close())
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
