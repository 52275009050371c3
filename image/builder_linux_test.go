// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// tarOf is an archive of small files of root's.
func tarOf(t *testing.T, names ...string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, n := range names {
		name, text, _ := strings.Cut(n, "=")
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
	}
	w.Close()
	return &b
}

func builtFrom(t *testing.T, s *Store, base *Stored, digit string, names ...string) *Stored {
	t.Helper()
	b, err := s.Build(base)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, n := range names { // a layer each
		if err := b.Put(t.Context(), tarOf(t, n)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Root(Config{}, RootOptions{Targets: []Target{{Path: "/new/target", Dir: true}}}); err != nil {
			t.Fatal(err)
		}
	}
	info, err := b.Finish(t.Context(), "sha256:"+strings.Repeat(digit, 64), Config{User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// What is put in is there, layer by layer, also on another one; the base stays as it was,
// and nothing is left of what was not kept.
func TestBuilder(t *testing.T) {
	s, err := OpenStore(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	base := builtFrom(t, s, nil, "1", "a=one", "home/user/note=mine", "b="+strings.Repeat("x", 10_000))
	more := builtFrom(t, s, base, "2", "a=two", "c=three")
	for info, want := range map[*Stored]string{base: "one", more: "two"} {
		if got, err := s.ReadFile(info, "/a", 100); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", info.Digest[:10], got, err)
		}
		home, err := s.Home(info)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(home.Name(), "note")); err != nil || string(b) != "mine" {
			t.Errorf("the home has %q, %v", b, err)
		}
		home.Close()
	}
	if b, err := s.ReadFile(more, "/b", 1<<20); err != nil || len(b) != 10_000 {
		t.Errorf("of the base: %d bytes, %v", len(b), err)
	}
	b, err := s.Build(base)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Account("who"); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("an unknown user: %v", err)
	}
	if u, err := b.Account("user"); err != nil || u.UID != 1000 {
		t.Errorf("the user: %v, %v", u, err)
	}
	if u, err := b.Account("4321:0"); err != nil || u.UID != 4321 || u.GID != 0 {
		t.Errorf("a number: %v, %v", u, err)
	}
	b.Close()
	entries, _ := os.ReadDir(s.dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// A template is its owner's alone, and the operator's serve who has none of the name.
func TestTemplatesOfOwners(t *testing.T) {
	s, err := OpenStore(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := builtFrom(t, s, nil, "1", "a=ours"), builtFrom(t, s, nil, "2", "a=theirs")
	r, err := reference.Parse("template:data")
	if err != nil {
		t.Fatal(err)
	}
	other, _ := reference.Parse("template:other")
	for _, err := range []error{s.Name(r, "", ours), s.Name(r, "key1", theirs), s.Name(other, "key1", theirs)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for owner, want := range map[string]*Stored{"": ours, "key1": theirs, "key2": ours} {
		got, err := s.Get(t.Context(), r, PullOptions{Owner: owner})
		if err != nil || got.Digest != want.Digest {
			t.Errorf("%q gets %v, %v", owner, got, err)
		}
	}
	for _, owner := range []string{"", "key2"} {
		if _, err := s.Get(t.Context(), other, PullOptions{Owner: owner}); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%q gets key1's: %v", owner, err)
		}
		if err := s.Unname(other, owner); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%q removes key1's: %v", owner, err)
		}
	}
	if list, err := s.Templates("key1"); err != nil || len(list) != 2 {
		t.Errorf("key1 has %v, %v", list, err)
	}
	if gone, err := s.Prune(false); err != nil || len(gone) != 0 {
		t.Errorf("prune took %v, %v", gone, err)
	}
	if err := s.Unname(r, "key1"); err != nil {
		t.Error(err)
	}
	if err := s.Unname(other, "key1"); err != nil {
		t.Error(err)
	}
	if _, err := s.Info(theirs.Digest); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("an image that no name leads to: %v", err)
	}
}

// The image that had a template's name goes with it, where no sandbox uses it, and no more
// than some stay that have none: builds in a row take no more and more room.
func TestNameOfAnother(t *testing.T) {
	s, err := OpenStore(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := reference.Parse("template:data")
	if err != nil {
		t.Fatal(err)
	}
	first, second, third := builtFrom(t, s, nil, "1", "a=1"), builtFrom(t, s, nil, "2", "a=2"), builtFrom(t, s, nil, "3", "a=3")
	if _, _, err := s.Hold(t.Context(), r, PullOptions{}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Fatal(err)
	}
	for _, info := range []*Stored{first, second} {
		if err := s.Name(r, "", info); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Info(first.Digest); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("the one that had the name: %v", err)
	}
	_, held, err := s.Hold(t.Context(), r, PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Name(r, "", third); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Info(second.Digest); err != nil {
		t.Errorf("one that is in use: %v", err)
	}
	held.Close()
	for _, digit := range strings.Split("456789abcdef", "") {
		builtFrom(t, s, nil, digit, "a="+digit)
	}
	last := builtFrom(t, s, nil, "0", "a=0")
	if err := s.Name(r, "", last); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(); err != nil || len(list) != keepUnnamed+1 {
		t.Errorf("%d images stay, %v", len(list), err)
	}
	if err := s.Remove(last); err != nil {
		t.Fatal(err)
	}
	if err := s.Name(r, "", last); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("an image that is not here gets a name: %v", err)
	}
}
