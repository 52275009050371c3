// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// filesDir is where, in a kept directory, the files alone lie beside the memory.
const filesDir = "files"

// seal makes what is in a kept directory readable for this user alone, and notes what it is.
func (d *keptDirs) seal(name string) (s *registry.Seal, err error) {
	dir := d.path(name)
	s = &registry.Seal{}
	if s.Memory, err = sealed(dir); err != nil {
		return nil, err
	}
	files := filepath.Join(dir, filesDir)
	if _, err = os.Lstat(files); err == nil {
		s.Files, err = sealed(files)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		s.Bytes, err = d.size(name)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// sealed is the digest of the files in a directory, by name, which are 0600 from then on.
func sealed(dir string) (string, error) {
	return digestOf(dir, func(f *os.File) error { return f.Chmod(0o600) })
}

// digestOf is the digest of the files in a directory, by name; each is opened once. What is
// no ordinary file has no place there.
func digestOf(dir string, each func(*os.File) error) (string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, e := range list {
		if e.IsDir() && e.Name() == filesDir {
			continue
		}
		if err := digestFile(h, filepath.Join(dir, e.Name()), each); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func digestFile(h io.Writer, path string, each func(*os.File) error) error {
	if info, err := os.Lstat(path); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no ordinary file", filepath.Base(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && each != nil {
		err = each(f)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%q %d\n", info.Name(), info.Size())
	_, err = io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return err
}

// keptState is a kept directory and what has to be in it; the zero value is none.
type keptState struct {
	dir  string
	seal *registry.Seal // nil for one that was written a moment ago, or before there were seals
}

// memory refuses memory that is not what was written down.
func (s keptState) memory() error {
	if s.seal == nil {
		return nil
	}
	return same(s.dir, s.seal.Memory, "its memory")
}

// files is the directory of the files alone; an error where there are none that can be used.
func (s keptState) files() (string, error) {
	if s.seal == nil || s.seal.Files == "" {
		return "", errNoFiles
	}
	dir := filepath.Join(s.dir, filesDir)
	return dir, same(dir, s.seal.Files, "what its files were")
}

var errNoFiles = errors.New("no files were kept beside it")

// same compares what is in a directory with its digest.
func same(dir, want, what string) error {
	got, err := digestOf(dir, nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &sandbox.Error{Op: "resume sandbox", Kind: sandbox.ErrUnavailable, Problem: what + " cannot be read from the disk", Cause: err}
	}
	if got != want {
		return &sandbox.Error{Op: "resume sandbox", Kind: sandbox.ErrUnavailable, Problem: what + " is not on the disk as it was written there",
			Hint: "look at the disk of the state directory", Cause: sandbox.ErrMisfit}
	}
	return nil
}
