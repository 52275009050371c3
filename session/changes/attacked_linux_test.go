// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// endless is a layer with one file of zeros that no disk could have, in a directory that is
// not kept. It ends ctx when some of it was read.
type endless struct {
	head io.Reader
	read int
	end  context.CancelFunc
}

func (e *endless) Read(p []byte) (int, error) {
	if n, err := e.head.Read(p); err == nil {
		return n, nil
	}
	if e.read += len(p); e.read > 1<<20 {
		e.end()
	}
	clear(p)
	return len(p), nil
}

// What is not kept ends with the context, too: code makes a file of any size by a hole.
func TestEndlessLayer(t *testing.T) {
	ws := newWorkspace(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var head bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: ".git/x", Typeflag: tar.TypeReg, Size: 1 << 50, Mode: 0o644, Format: tar.FormatPAX}); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.store.Keep(ctx, ws.src, &endless{&head, 0, cancel}); err == nil {
		t.Error("it is kept")
	}
	// And without an end of the context it is bounded.
	s := &stream{t.Context(), &endless{strings.NewReader(""), 0, func() {}}, 4 << 20}
	if n, err := io.Copy(io.Discard, s); n != 4<<20 || !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// Many long links are bounded as many long names are.
func TestManyLinks(t *testing.T) {
	ws := newWorkspace(t, nil)
	w := newTar()
	for i := range maxNames/maxPath + 2 {
		w.link("l"+strings.Repeat("x", i%100)+strings.Repeat("y", i/100), strings.Repeat("\x01", maxPath))
	}
	if _, err := ws.store.Keep(t.Context(), ws.src, bytes.NewReader(w.bytes())); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// One content under many names takes the host's disk as often.
func TestManyNames(t *testing.T) {
	ws := newWorkspace(t, nil)
	s, err := Open(ws.store.dir, Options{MaxBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	w := newTar().file("f", strings.Repeat("x", 300), 0o644)
	for _, name := range []string{"a", "b", "c"} {
		w.file(name, strings.Repeat("x", 300), 0o644)
	}
	if _, err := s.Keep(t.Context(), ws.src, bytes.NewReader(w.bytes())); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("%v", err)
	}
}

// A yes to one entry is for it alone, whatever it is called and whatever lies in it.
func TestExact(t *testing.T) {
	ws := newWorkspace(t, tree{"src": {Dir, "", false}, "src/old": {File, "1", false}})
	set := ws.keep(newTar().file("**", "*", 0o644).dirs("src", 0o700).file("src/evil.c", "e", 0o644).file("zz", "z", 0o644).bytes())
	for name, want := range map[string][]string{"**": {"**"}, "src": nil} {
		o := ApplyOptions{Paths: []string{name}, Exact: true}
		if name == "src" {
			o.Held = o.Paths // its mode may be held back
		}
		sel, err := choose(set, &o)
		if err != nil {
			t.Fatal(err)
		}
		for i, chosen := range sel.chosen {
			if at := set.Entries[i].Path; chosen && at != name && !slices.Contains(want, at) {
				t.Errorf("a yes to %q is one to %q", name, at)
			}
		}
	}
	// By its name alone a file is no pattern, either.
	sel, err := choose(set, &ApplyOptions{Paths: []string{"**"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, chosen := range sel.chosen {
		if chosen && set.Entries[i].Path != "**" {
			t.Errorf("the file ** is a pattern: %q", set.Entries[i].Path)
		}
	}
}

// What the host moved into a directory that the code removed meanwhile is in conflict,
// however old it is.
func TestMovedIntoRemoved(t *testing.T) {
	ws := newWorkspace(t, tree{"d": {Dir, "", false}, "d/f": {File, "1", false}, "mine": {Dir, "", false}, "mine/work": {File, "precious", false}})
	ws.src.Began = Clock(time.Now())
	if err := os.Rename(filepath.Join(ws.dir, "mine"), filepath.Join(ws.dir, "d/mine")); err != nil {
		t.Fatal(err)
	}
	for name, layer := range map[string][]byte{
		"removed":  newTar().whiteout("d").bytes(),
		"replaced": newTar().dir("d", "opaque=y").file("d/new", "2", 0o644).bytes(),
	} {
		set := ws.keep(layer)
		if _, err := ws.apply(set, ApplyOptions{}); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
		_, _ = ws.apply(set, ApplyOptions{SkipConflicts: true})
		if got := ws.read("d/mine/work"); got != "precious" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// What the code could not read does not reach it, or the set, by a new name of a directory.
func TestMovedUnreadable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, which alone reads what others may not")
	}
	ws := newWorkspace(t, tree{"d": {Dir, "", false}, "d/open": {File, "1", false}, "d/secret": {File, "canary", false}})
	if err := os.Chmod(filepath.Join(ws.dir, "d/secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"", "d", "d/open"} {
		if err := os.Chown(filepath.Join(ws.dir, at), 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	set := ws.keep(newTar().whiteout("d").dir("e", "redirect=/d").bytes())
	if got := paths(set); slices.Contains(got, "A file e/secret") || !slices.Contains(got, "A file e/open") || set.Skipped != 1 {
		t.Errorf("%q, %d skipped", got, set.Skipped)
	}
}
