// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// A place for a file is made in what is mounted read-write, and through no link that code
// may have left there.
func TestMakePlace(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	mount := func(access sandbox.Access) sandbox.Mount {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return sandbox.Mount{Source: f, Target: "/home/user", Access: access, Dir: true}
	}
	for range 2 { // the second time it is there
		if err := makePlace(mount(sandbox.ReadWrite), "/home/user/.codex/auth.json"); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Lstat(filepath.Join(dir, ".codex/auth.json")); err != nil || !info.Mode().IsRegular() || info.Size() != 0 {
		t.Errorf("%v, %v", info, err)
	}
	for name, plant := range map[string]func() error{
		"a link to a directory": func() error { return os.Symlink(outside, filepath.Join(dir, ".claude")) },
		"a link to a file": func() error {
			os.Remove(filepath.Join(dir, ".claude"))
			if err := os.Mkdir(filepath.Join(dir, ".claude"), 0o700); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(outside, "made"), filepath.Join(dir, ".claude/.credentials.json"))
		},
		"a directory": func() error { return os.MkdirAll(filepath.Join(dir, ".gemini/.credentials.json"), 0o700) },
	} {
		os.RemoveAll(filepath.Join(dir, ".claude"))
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		target := "/home/user/.claude/.credentials.json"
		if name == "a directory" {
			target = "/home/user/.gemini/.credentials.json"
		}
		if err := makePlace(mount(sandbox.ReadWrite), target); err == nil {
			t.Errorf("%s: a place was made", name)
		}
		if made, _ := os.ReadDir(outside); len(made) != 0 {
			t.Errorf("%s: outside are %v", name, made)
		}
	}
	if err := makePlace(mount(sandbox.CopyOnWrite), "/home/user/.other/f"); err == nil {
		t.Error("a place was made in a copy-on-write mount of the host's")
	}
}
