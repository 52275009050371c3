// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"os"
	"path/filepath"
)

// written is called when a file's content is on the disk and its name is not, for tests.
var written = func() {}

// Make makes a file that this user alone may read, with all of its content on the disk.
// Of several that make one at once, in however many processes, one does; for the others,
// and where there is something already, it is os.ErrExist. The name itself is on the disk
// when the directory is synced.
//
// Where the file system can, the file has no name before its own: a process that is
// killed meanwhile leaves nothing, no other name of a key for one.
func Make(path string, content []byte) error {
	if f, err := unnamed(filepath.Dir(path)); err == nil {
		defer f.Close()
		if err := fill(f, content); err != nil {
			return err
		}
		if err = name(f, path); err == nil || errors.Is(err, os.ErrExist) {
			return err
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(fill(f, content), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

func fill(f *os.File, content []byte) error {
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	written()
	return nil
}
