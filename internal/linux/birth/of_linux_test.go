// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"os"
	"path/filepath"
	"testing"
)

// A copy has another mark, also where a file system does not say when a directory was
// made, as that of /proc.
func TestOf(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "a")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	before := Of(at)
	if err := os.Rename(at, at+"2"); err != nil {
		t.Fatal(err)
	}
	if before == "" || Of(at+"2") != before || Of(dir) == before {
		t.Errorf("%q became %q when it was renamed; the directory above has %q", before, Of(at+"2"), Of(dir))
	}
	if one, other := Of("/proc"), Of("/proc/sys"); one == "" || one == other {
		t.Errorf("%q and %q", one, other)
	}
	if got := Of(at); got != "" {
		t.Errorf("what is missing has %q", got)
	}
}
