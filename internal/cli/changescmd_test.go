// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// Files are counted as changed and paths as applied: a directory is one, and no file.
func TestChangesAreCountedByTheirKind(t *testing.T) {
	for want, c := range map[string]*sandbox.Changes{
		"2 files changed, 3 paths applied: ": {ID: "7f3a", Files: 2, Applied: []string{"d", "d/a", "d/b"}},
		"1 file changed, 1 path applied: ":   {ID: "7f3a", Files: 1, Applied: []string{"a"}},
		"1 file changed: ":                   {ID: "7f3a", Files: 1},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "err"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		(&app{err: f}).showChanges(c)
		if got, err := os.ReadFile(f.Name()); err != nil || !strings.Contains(string(got), want+"caisson changes show 7f3a") {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}
