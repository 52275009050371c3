// SPDX-License-Identifier: Apache-2.0

package files

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// begin begins a file in sub, with and without a name meanwhile.
func begin(t *testing.T, named bool) (dir string, f *File) {
	t.Helper()
	dir = t.TempDir()
	root, err := os.OpenRoot(dir)
	if err == nil {
		t.Cleanup(func() { root.Close() })
		err = root.Mkdir("sub", 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	if f, err = Begin(root, "sub", 0o644); err != nil {
		t.Fatal(err)
	}
	if f.temp != "" {
		t.Fatal("this file system wants a name")
	}
	if named {
		if err := f.becomeNamed(); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "sub"), f
}

func TestBegin(t *testing.T) {
	for name, named := range map[string]bool{"without a name": false, "with one": true} {
		t.Run(name, func(t *testing.T) {
			dir, f := begin(t, named)
			if _, err := f.WriteString("new"); err != nil {
				t.Fatal(err)
			}
			if names := list(t, dir); !named && len(names) > 0 {
				t.Errorf("%v are there before the file is", names)
			}
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o600), f.Written(), f.Keep("f")); err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(text) != "new" {
				t.Errorf("%q, %v", text, err)
			}
			if names := list(t, dir); len(names) != 1 {
				t.Errorf("%v are left", names)
			}
			info, err := os.Stat(filepath.Join(dir, "f"))
			if err != nil || info.Mode() != 0o644 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
		})
	}
}

// What is not kept, or cannot be, leaves nothing.
func TestDrop(t *testing.T) {
	for name, named := range map[string]bool{"without a name": false, "with one": true} {
		t.Run(name, func(t *testing.T) {
			dir, f := begin(t, named)
			f.Drop()
			if names := list(t, dir); len(names) > 0 {
				t.Errorf("%v are left", names)
			}
			dir, f = begin(t, named)
			if err := os.Mkdir(filepath.Join(dir, "f"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := f.Keep("f"); !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EISDIR) {
				t.Errorf("%v, want that there is a directory", err)
			}
			if names := list(t, dir); len(names) != 1 {
				t.Errorf("%v are left", names)
			}
		})
	}
}

// A link that lies there gives way, and what it leads to stays.
func TestKeepFollowsNothing(t *testing.T) {
	dir, f := begin(t, false)
	victim := filepath.Join(t.TempDir(), "victim")
	err := errors.Join(os.WriteFile(victim, []byte("untouched"), 0o600), os.Symlink(victim, filepath.Join(dir, "f")), f.Keep("f"))
	if text, _ := os.ReadFile(victim); err != nil || string(text) != "untouched" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "f")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
}

// What is no directory any more is not waited for, and no link leads out.
func TestBeginBelow(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(unix.Mkfifo(filepath.Join(root.Name(), "pipe"), 0o600), os.Symlink(t.TempDir(), filepath.Join(root.Name(), "out"))); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"pipe", "out", "..", "missing"} {
		if f, err := Begin(root, dir, 0o600); err == nil {
			f.Drop()
			t.Errorf("one is begun in %s", dir)
		}
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	defer func(was func()) { written = was }(written)
	written = func() {
		for _, name := range list(t, dir) {
			if name != "key" {
				t.Errorf("%s is there before the file is", name)
			}
		}
	}
	for _, text := range []string{"first", strings.Repeat("second", 10)} {
		if err := Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if got, rerr := os.ReadFile(path); err != nil || rerr != nil || string(got) != text || info.Mode() != 0o600 {
			t.Errorf("%q, %v, %v, %v", got, info, err, rerr)
		}
	}
	if names := list(t, dir); len(names) != 1 {
		t.Errorf("%v are left", names)
	}
	if err := Replace(filepath.Join(dir, "missing", "key"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want that the directory is missing", err)
	}
}

// What exists stays, and is told.
func TestKeepNew(t *testing.T) {
	for name, named := range map[string]bool{"without a name": false, "with one": true} {
		t.Run(name, func(t *testing.T) {
			for what, there := range map[string]func(at string) error{
				"a file":      func(at string) error { return os.WriteFile(at, []byte("old"), 0o600) },
				"a directory": func(at string) error { return os.Mkdir(at, 0o700) },
				"a link":      func(at string) error { return os.Symlink("nowhere", at) },
			} {
				dir, f := begin(t, named)
				at := filepath.Join(dir, "f")
				if err := there(at); err != nil {
					t.Fatal(err)
				}
				before, err := os.Lstat(at)
				if err != nil {
					t.Fatal(err)
				}
				if err := f.KeepNew("f"); !errors.Is(err, os.ErrExist) {
					t.Errorf("%s: %v, want that there is one", what, err)
				}
				if after, err := os.Lstat(at); err != nil || !os.SameFile(before, after) {
					t.Errorf("%s: %v, %v", what, after, err)
				}
				if names := list(t, dir); len(names) != 1 {
					t.Errorf("%s: %v are left", what, names)
				}
			}
			dir, f := begin(t, named)
			if _, err := f.WriteString("new"); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(f.Written(), f.KeepNew("f")); err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(text) != "new" {
				t.Errorf("%q, %v", text, err)
			}
			if names := list(t, dir); len(names) != 1 {
				t.Errorf("%v are left", names)
			}
		})
	}
}

// What a killed process left goes, and nothing else: what is being written is
// locked, and files of others have other names.
func TestSweep(t *testing.T) {
	dir, f := begin(t, true)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	left, mine, link := tempName+rand.Text(), tempName+"mine", tempName+rand.Text()
	err = errors.Join(root.WriteFile(left, nil, 0o600), root.WriteFile(mine, nil, 0o600), root.Symlink(mine, link),
		root.Mkdir(tempName+rand.Text(), 0o700), unix.Mkfifo(filepath.Join(dir, tempName+rand.Text()), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	Sweep(root)
	if names := list(t, dir); len(names) != 5 || slices.Contains(names, left) {
		t.Errorf("%v are left", names)
	}
	if err := errors.Join(f.Written(), f.Keep("f")); err != nil {
		t.Errorf("it was swept while it was written: %v", err)
	}
}
