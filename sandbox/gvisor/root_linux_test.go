// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// What is copied of a root for a mount beside it has the readers that it has in the
// root, and no others.
func TestOwnRootIsNoWider(t *testing.T) {
	src := t.TempDir()
	modes := map[string]fs.FileMode{"shadow": 0o600, "group": 0o640, "passwd": 0o644, "setid": 0o4755, "open": 0o666}
	for name, mode := range modes {
		if err := os.MkdirAll(filepath.Join(src, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := writeFile(filepath.Join(src, "etc", name), []byte("x"), mode&fs.ModePerm); err != nil {
			t.Fatal(err)
		}
		if mode&0o4000 != 0 {
			if err := os.Chmod(filepath.Join(src, "etc", name), 0o755|fs.ModeSetuid); err != nil {
				t.Fatal(err)
			}
		}
	}
	root, err := os.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tree := &rootTree{dir: filepath.Join(t.TempDir(), "root"), missing: []sandbox.Mount{{Target: "/etc/more"}}}
	defer tree.close()
	if err := tree.make(root); err != nil {
		t.Fatal(err)
	}
	for name, mode := range modes {
		info, err := os.Lstat(filepath.Join(tree.dir, "etc", name))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := info.Mode(), mode&0o755; got != want {
			t.Errorf("%s is %o, want %o", name, got, want)
		}
	}
}
