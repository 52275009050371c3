// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// filesDir is where, in a kept directory, the files alone lie beside the memory.
const filesDir = "files"

// seal makes what is in a kept directory readable for this user alone, and notes what it is.
func (d *keptDirs) seal(name string) (s *registry.Seal, err error) {
	dir := d.path(name)
	s = &registry.Seal{Blocks: true}
	// It is 0600 from then on, and outlives the host's power once its row says that it is there.
	own := digest{blocks: true, each: func(f *os.File) error { return errors.Join(f.Chmod(0o600), f.Sync()) }}
	if s.Memory, err = own.of(dir); err != nil {
		return nil, err
	}
	files := filepath.Join(dir, filesDir)
	if _, err = os.Lstat(files); err == nil {
		if s.Files, err = own.of(files); err == nil {
			err = syncDir(files)
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		s.Bytes, err = d.size(name)
	}
	if err = errors.Join(err, syncDir(dir), syncDir(d.dir)); err != nil {
		return nil, err
	}
	return s, nil
}

// syncDir has the names in a directory outlive the host's power.
func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// keptState is a kept directory and what has to be in it; the zero value is none.
type keptState struct {
	dir  string
	seal *registry.Seal // nil for one that was written a moment ago, or before there were seals
}

// slowDisk is what a disk reads that others use as well, in bytes a second.
const slowDisk = 50 << 20

// reading is how long its reading may take: it is looked at whole, and then read.
func (s keptState) reading() time.Duration {
	if s.seal == nil {
		return 0
	}
	return 2 * time.Duration(s.seal.Bytes/slowDisk) * time.Second
}

// memory refuses memory that is not what was written down.
func (s keptState) memory() error {
	if s.seal == nil {
		return nil
	}
	return s.same(s.dir, s.seal.Memory, "its memory")
}

// files is the directory of the files alone; an error where there are none that can be used.
func (s keptState) files() (string, error) {
	if s.seal == nil || s.seal.Files == "" {
		return "", errNoFiles
	}
	dir := filepath.Join(s.dir, filesDir)
	return dir, s.same(dir, s.seal.Files, "what its files were")
}

var errNoFiles = errors.New("no files were kept beside it")

// same compares what is in a directory with its digest.
func (s keptState) same(dir, want, what string) error {
	got, err := (&digest{blocks: s.seal.Blocks}).of(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &sandbox.Error{Op: "resume sandbox", Kind: sandbox.ErrUnavailable, Problem: what + " cannot be read from the disk", Cause: err}
	}
	if got != want {
		return &sandbox.Error{Op: "resume sandbox", Kind: sandbox.ErrUnavailable, Problem: what + " is not on the disk as it was written there",
			Hint: "look at the disk of the state directory", Cause: sandbox.ErrMisfit}
	}
	return nil
}
