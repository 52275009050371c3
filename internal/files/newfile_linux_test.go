// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// A process that dies before the file has its name leaves nothing.
func TestNothingBefore(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	defer func(was func()) { written = was }(written)
	looked := false
	written = func() {
		looked = true
		if names := list(t, dir); len(names) > 0 {
			t.Errorf("%v are there before the file is", names)
		}
	}
	if err := Make(path, []byte("secret")); err != nil || !looked {
		t.Fatal(looked, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "secret" {
		t.Errorf("%q, %v", text, err)
	}
	written = func() {}
	if err := Make(path, []byte("another")); !errors.Is(err, os.ErrExist) {
		t.Errorf("%v, want that there is one", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "secret" {
		t.Errorf("%q, %v", text, err)
	}
	if names := list(t, dir); len(names) != 1 {
		t.Errorf("%v are left", names)
	}
}

// Of many at once one makes it, with what it brought.
func TestAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	var all sync.WaitGroup
	var made atomic.Pointer[string]
	for i := range 16 {
		all.Go(func() {
			mine := fmt.Sprint("of ", i)
			switch err := Make(path, []byte(mine)); {
			case err == nil && !made.CompareAndSwap(nil, &mine):
				t.Error("it was made twice")
			case err != nil && !errors.Is(err, os.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if text, err := os.ReadFile(path); err != nil || made.Load() == nil || string(text) != *made.Load() {
		t.Errorf("%q, %v", text, err)
	}
}

func TestNowhere(t *testing.T) {
	if err := Make(filepath.Join(t.TempDir(), "missing", "key"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want that the directory is missing", err)
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
