// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// What one sandbox has read-write another does not get, by whatever name, nor what lies in
// it or above; until the lock of its run directory is free.
func TestClaim(t *testing.T) {
	state, tree := t.TempDir(), t.TempDir()
	for _, dir := range []string{"a/in", "b"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tree, "a/file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(tree, "a/file"), filepath.Join(tree, "b/file")); err != nil {
		t.Fatal(err)
	}
	locks := map[string]*os.File{}
	claim := func(id, rel string, own, shared bool) error {
		t.Helper()
		run := filepath.Join(state, "run", id)
		if locks[id] == nil {
			if err := os.MkdirAll(run, 0o700); err != nil {
				t.Fatal(err)
			}
			f, err := os.Create(filepath.Join(run, ownerLock))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			if err := flock(f, unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			locks[id] = f
		}
		src, err := Open(filepath.Join(tree, rel), Options{AllowDangerous: true, Write: true, StateDir: state})
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		return src.Claim(Use{Run: run, StateDir: state, Level: "gvisor", Own: own, Shared: shared})
	}
	if err := claim("first", "a", true, false); err != nil {
		t.Fatal(err)
	}
	for _, rel := range []string{"a", "a/in", ".", "a/file"} {
		for _, own := range []bool{true, false} {
			if err := claim("second", rel, own, false); !errors.Is(err, sandbox.ErrConflict) {
				t.Errorf("%s, own %v: %v", rel, own, err)
			}
		}
	}
	for _, rel := range []string{"b", "b/file"} {
		if err := claim("third", rel, true, false); err != nil {
			t.Errorf("%s: %v", rel, err)
		}
	}
	if err := claim("fourth", "a/file", true, false); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("a file that another has by another name: %v", err)
	}
	if err := claim("first", "a/in", true, false); err != nil {
		t.Errorf("of one sandbox: %v", err)
	}
	if err := claim("fifth", "a", true, true); err != nil {
		t.Errorf("shared: %v", err)
	}
	for _, id := range []string{"first", "third", "fifth"} {
		locks[id].Close() // as when its owner is killed
	}
	if err := claim("sixth", ".", false, false); err != nil {
		t.Errorf("after their end: %v", err)
	}
	if err := claim("seventh", "a", false, false); err != nil {
		t.Errorf("where both have the host's locks: %v", err)
	}
}
