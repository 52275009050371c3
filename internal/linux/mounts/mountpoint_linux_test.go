// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	outside := t.TempDir()
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "a/b"), 0o755),
		os.WriteFile(filepath.Join(dir, "a/f"), nil, 0o644),
		os.Symlink("b", filepath.Join(dir, "a/link")),
		os.Symlink(outside, filepath.Join(dir, "a/out")),
	)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	for _, c := range []struct {
		place, target string
		dir           bool
		found, none   bool
	}{
		{"/", "/a/b", true, true, false},
		{"/", "/a/f", false, true, false},
		{"/srv", "/srv/a/b", true, true, false},
		{"/srv", "/srv", true, true, false},
		{"/", "/a/b", false, false, false},
		{"/", "/a/f", true, false, false},
		{"/", "/a/c", true, false, true},
		{"/", "/a/f/x", true, false, false},
		{"/", "/a/link", true, false, false},
		{"/", "/a/link/x", true, false, false},
		{"/", "/a/out", true, false, false},
		{"/", "/../" + filepath.Base(outside), true, false, false},
	} {
		err := FindPoint(owner, c.place, c.target, c.dir)
		if (err == nil) != c.found || errors.Is(err, fs.ErrNotExist) != c.none {
			t.Errorf("%s at %s, a directory: %t: %v", c.target, c.place, c.dir, err)
		}
	}
}
