// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// keptDir is where paused sandboxes and snapshots lie, in the state directory.
const keptDir = "kept"

// keptDirs are the directories into which sandboxes are written down, one for each paused
// sandbox and each snapshot.
type keptDirs struct {
	dir       string
	removeAll func(path string) error
	unowned   []string // directories without an owner that are still there; each sweep's alone
}

func (d *keptDirs) path(name string) string { return filepath.Join(d.dir, filepath.Base(name)) }

// create makes a directory.
func (d *keptDirs) create() (name, path string, err error) {
	name = registry.NewID("m", 20)
	path = d.path(name)
	if err = os.MkdirAll(d.dir, 0o700); err == nil {
		err = os.Mkdir(path, 0o700)
	}
	if err != nil {
		return "", "", &sandbox.Error{Op: "pause", Kind: sandbox.ErrUnavailable, Problem: "the state directory cannot be written", Hint: "free some space there", Cause: err}
	}
	return name, path, nil
}

// drop removes a directory; "" is none.
func (d *keptDirs) drop(name string) error {
	if name == "" {
		return nil
	}
	return d.removeAll(d.path(name))
}

// find notes the directories without an owner. Their daemon was killed before it had written
// down whose they are.
func (d *keptDirs) find(used map[string]bool) error {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !used[e.Name()] {
			d.unowned = append(d.unowned, e.Name())
		}
	}
	return err
}

// dropUnowned removes what find has found. What cannot be removed stays for the next sweep:
// what is still ending of the killed daemon's may be writing it.
func (d *keptDirs) dropUnowned() error {
	var errs []error
	d.unowned = slices.DeleteFunc(d.unowned, func(name string) bool {
		err := d.drop(name)
		errs = append(errs, err)
		return err == nil
	})
	return errors.Join(errs...)
}

// size is what a directory takes of the disk, in bytes: holes take nothing.
func (d *keptDirs) size(name string) (n int64, err error) {
	err = filepath.WalkDir(d.path(name), func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += taken(info)
		}
		return err
	})
	return n, err
}
