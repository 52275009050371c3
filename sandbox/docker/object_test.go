// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// openFollowing is a handle of what a path leads to.
func openFollowing(name string) (*os.File, error) {
	return os.OpenFile(name, unix.O_PATH|unix.O_CLOEXEC, 0)
}

// What the kernel shows at a target is compared as an object: the test's own
// mount namespace is as good as a container's.
func TestShown(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := shown(os.Getpid(), []string{dir, file})
	if err != nil || got[1] != objectOf(info) || got[0] == got[1] {
		t.Errorf("%v, %v", got, err)
	}
	if err := os.Rename(file, file+"2"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file+"2", file); err != nil {
		t.Fatal(err)
	}
	if got, err := shown(os.Getpid(), []string{file}); err == nil && got[0] == objectOf(info) {
		t.Error("a link passes for what it leads to")
	}
	if _, err := shown(1<<30, []string{dir}); err == nil {
		t.Error("a process that does not exist shows something")
	}
}

func TestNameOf(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	if err := os.Mkdir(old, 0o755); err != nil {
		t.Fatal(err)
	}
	f := open(t, old)
	if err := os.Rename(old, old+"er"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(old, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := nameOf(f); err != nil || got != old+"er" {
		t.Errorf("moved: %q, %v", got, err)
	}
	if err := os.Remove(old + "er"); err != nil {
		t.Fatal(err)
	}
	if got, err := nameOf(f); err == nil {
		t.Errorf("removed: %q", got)
	}
}
