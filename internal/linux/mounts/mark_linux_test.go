// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"os"
	"path/filepath"
	"testing"
)

// A copy has another mark, also where a file system does not say when a directory was
// made, as that of /proc.
func TestDirectoryMark(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "a")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	before := DirectoryMark(at)
	if err := os.Rename(at, at+"2"); err != nil {
		t.Fatal(err)
	}
	if before == "" || DirectoryMark(at+"2") != before || DirectoryMark(dir) == before {
		t.Errorf("%q became %q when it was renamed; the directory above has %q", before, DirectoryMark(at+"2"), DirectoryMark(dir))
	}
	if one, other := DirectoryMark("/proc"), DirectoryMark("/proc/sys"); one == "" || one == other {
		t.Errorf("%q and %q", one, other)
	}
	if got := DirectoryMark(at); got != "" {
		t.Errorf("what is missing has %q", got)
	}
}
