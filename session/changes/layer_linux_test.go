// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

func TestHostileLayers(t *testing.T) {
	deep := strings.Repeat("d/", maxDepth) + "f"
	for name, tc := range map[string]struct {
		layer []byte
		want  string
	}{
		"up":                         {newTar().file("../f", "x", 0o644).bytes(), `../f is no name below`},
		"up in the middle":           {newTar().file("a/../../f", "x", 0o644).bytes(), "is no name below"},
		"absolute":                   {newTar().file("/etc/passwd", "x", 0o644).bytes(), "/etc/passwd is no name below"},
		"a dot":                      {newTar().file("a/./f", "x", 0o644).bytes(), "is no name below"},
		"an empty part":              {newTar().file("a//f", "x", 0o644).bytes(), "is no name below"},
		"twice":                      {newTar().file("f", "x", 0o644).file("f", "y", 0o644).bytes(), "f is there twice"},
		"twice, once with a dot":     {newTar().file("f", "x", 0o644).file("./f", "y", 0o644).bytes(), "f is there twice"},
		"a directory twice":          {newTar().dir("d").dir("d").bytes(), "d is there twice"},
		"a file, then a directory":   {newTar().file("d", "x", 0o644).dir("d").bytes(), "d is there twice"},
		"a directory, then a file":   {newTar().file("d/f", "x", 0o644).file("d", "x", 0o644).bytes(), "d is there twice"},
		"the top twice":              {newTar().dir("./").dir("./").bytes(), "the top is there twice"},
		"below a file":               {newTar().file("f", "x", 0o644).file("f/g", "x", 0o644).bytes(), "f/g is below something that is no directory"},
		"below a link":               {newTar().link("l", "/etc").file("l/passwd", "x", 0o644).bytes(), "l/passwd is below something that is no directory"},
		"below a removal":            {newTar().whiteout("d").file("d/g", "x", 0o644).bytes(), "is below something"},
		"a long name":                {newTar().file(strings.Repeat("n", 256), "x", 0o644).bytes(), "is no name below"},
		"a long path":                {newTar().file(strings.Repeat("n/", 2100)+"f", "x", 0o644).bytes(), "is a name of 4201 bytes"},
		"deep":                       {newTar().file(deep, "x", 0o644).bytes(), "is 257 directories deep"},
		"a link to nothing":          {newTar().link("l", "").bytes(), "is a link to something that is no path"},
		"a second name of nothing":   {hardLink(newTar(), "l", "f").bytes(), "l is a second name of what is not there"},
		"a second name of itself":    {hardLink(newTar(), "l", "l").bytes(), "l is a second name of what is not there"},
		"a second name of up":        {hardLink(newTar(), "l", "../f").bytes(), "is a second name of something that is no path"},
		"a second name of a dir":     {hardLink(newTar().dir("d"), "l", "d").bytes(), "l is a second name of a directory"},
		"another opaque":             {newTar().dir("d", "opaque=x").bytes(), "has an overlay attribute that is not known"},
		"renamed from above":         {newTar().dir("d", "redirect=/../x").bytes(), "was renamed from something that is no path"},
		"renamed from no name":       {newTar().dir("d", "redirect=a/b").bytes(), "was renamed from something that is no name"},
		"renamed from the dir above": {newTar().dir("d", "redirect=..").bytes(), "was renamed from something that is no name"},
		"renamed from the top":       {newTar().dir("d", "redirect=/").bytes(), "was renamed from something that is no path"},
		"a renamed top":              {newTar().dir("./", "redirect=/d").bytes(), "was renamed"},
		"content elsewhere":          {metacopy(), "is a file whose content is elsewhere"},
		"no tar":                     {bytes.Repeat([]byte("no tar"), 200), "the layer cannot be read"},
		"cut off":                    {newTar().file("f", strings.Repeat("x", 5000), 0o644).bytes()[:1024], "the layer cannot be read"},
		"control characters":         {newTar().file("a\x1b[2J/../f", "x", 0o644).bytes(), `a\x1b[2J/../f is no name`},
	} {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t, nil)
			set, err := ws.store.Keep(t.Context(), ws.src, bytes.NewReader(tc.layer))
			if !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), tc.want) || set != nil {
				t.Fatalf("%v, %v; want %s", set, err, tc.want)
			}
			if list, err := ws.store.List(""); err != nil || len(list) > 0 {
				t.Errorf("%v, %v", list, err)
			}
			if left := ws.storeNames(); !cmp.Equal(left, []string{"lock"}) {
				t.Errorf("%v are left", left)
			}
		})
	}
}

func hardLink(w *tarWriter, at, to string) *tarWriter {
	w.add(&tar.Header{Name: at, Typeflag: tar.TypeLink, Linkname: to})
	return w
}

func metacopy() []byte {
	w := newTar()
	w.add(&tar.Header{Name: "f", Typeflag: tar.TypeReg, Mode: 0o644, PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.metacopy": "\x00\x00\x00\x00"}})
	return w.bytes()
}

func TestLayerBounds(t *testing.T) {
	w := newTar()
	for i := range maxNodes + 1 {
		w.whiteout(fmt.Sprint("d/", i))
	}
	f := &filter{repositories: map[string]int{}}
	if _, err := readLayer(t.Context(), bytes.NewReader(w.bytes()), f, nil); err == nil || !strings.Contains(err.Error(), "is one of more than 500000 entries") {
		t.Error(err)
	}
	l := &layer{top: &node{}, filter: f, names: maxNames}
	if err := l.take(&tar.Header{Name: "f", Typeflag: tar.TypeSymlink, Linkname: "x"}, nil); err == nil || !strings.Contains(err.Error(), "too many long names") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readLayer(ctx, bytes.NewReader(newTar().whiteout("f").bytes()), f, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What a layer says is compared with the host.
func TestCompared(t *testing.T) {
	host := tree{}
	for _, at := range []string{"f", "d/a", "d/b", "d/sub/c", "run.sh", "old/x", "old/y/z", ".env"} {
		host.put(at, object{File, "old " + at, at == "run.sh"})
	}
	host.put("l", object{kind: Link, text: "f"})
	for name, tc := range map[string]struct {
		layer []byte
		want  []string
	}{
		"copied up":           {newTar().dir("./").dir("d").file("f", "old f", 0o644).file("run.sh", "old run.sh", 0o700).link("l", "f").bytes(), nil},
		"changed":             {newTar().file("f", "new", 0o600).bytes(), []string{"M file f"}},
		"the exec bit":        {newTar().file("f", "old f", 0o755).file("run.sh", "old run.sh", 0o644).bytes(), []string{"X file f", "X file run.sh"}},
		"a link":              {newTar().link("l", "d").bytes(), []string{"M link l"}},
		"removed":             {newTar().whiteout("f").whiteout("d/a").whiteout("none").bytes(), []string{"D file d/a", "D file f"}},
		"a directory":         {newTar().whiteout("d").bytes(), []string{"D dir d", "D file d/a", "D file d/b", "D dir d/sub", "D file d/sub/c"}},
		"made anew":           {newTar().dir("d", "opaque=y").file("d/a", "new", 0o644).bytes(), []string{"M file d/a", "D file d/b", "D dir d/sub", "D file d/sub/c"}},
		"a file for it":       {newTar().file("old", "new", 0o644).bytes(), []string{"M file old", "D file old/x", "D dir old/y", "D file old/y/z"}},
		"a directory for one": {newTar().dir("f").file("f/g", "new", 0o644).bytes(), []string{"M dir f", "A file f/g"}},
		"a second name":       {hardLink(newTar().file("f", "old f", 0o644), "g", "f").bytes(), []string{"A file g"}},
		"renamed": {newTar().whiteout("old").dir("new", "redirect=/old").file("new/x", "changed", 0o644).bytes(),
			[]string{"A dir new", "A file new/x", "A dir new/y", "A file new/y/z", "D dir old", "D file old/x", "D dir old/y", "D file old/y/z"}},
		"renamed beside": {newTar().whiteout("old").dir("new", "redirect=old").whiteout("new/x").bytes(),
			[]string{"A dir new", "A dir new/y", "A file new/y/z", "D dir old", "D file old/x", "D dir old/y", "D file old/y/z"}},
		"renamed twice": {newTar().whiteout("old").dir("new", "redirect=old").dir("new/v", "redirect=y").whiteout("new/y").bytes(),
			[]string{"A dir new", "A dir new/v", "A file new/v/z", "A file new/x", "D dir old", "D file old/x", "D dir old/y", "D file old/y/z"}},
		"renamed over":      {newTar().whiteout("old").dir("d", "redirect=old").bytes(), []string{"D file d/a", "D file d/b", "D dir d/sub", "D file d/sub/c", "A file d/x", "A dir d/y", "A file d/y/z", "D dir old", "D file old/x", "D dir old/y", "D file old/y/z"}},
		"what is hidden":    {newTar().dir("copy", "redirect=/hidden").file("hidden/new", "x", 0o644).whiteout("hidden/old").bytes(), []string{"A dir copy"}},
		"a mode of a dir":   {dirMode("d", 0o700), []string{"X dir d"}},
		"sockets, devices":  {odd(), []string{"A file z"}},
		"a dir of ignored":  {newTar().file("out/x", "x", 0o644).file("z", "", 0o644).bytes(), []string{"A file z"}},
		"ignored, but kept": {newTar().file("out/keep", "x", 0o644).bytes(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t, host)
			tree{"hidden": {kind: Dir}, "hidden/secret": {File, "canary", false}, "hidden/old": {File, "old", false}, ".gitignore": {File, "out\n", false}}.write(t, ws.dir)
			ws.src.Exclude = func(path string) bool { return path == "hidden" }
			set, err := ws.store.Keep(t.Context(), ws.src, bytes.NewReader(tc.layer))
			if err != nil {
				t.Fatal(err)
			}
			if set == nil {
				set = &Set{}
			}
			if diff := cmp.Diff(tc.want, paths(set)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func dirMode(at string, mode int64) []byte {
	w := newTar()
	w.add(&tar.Header{Name: at, Typeflag: tar.TypeDir, Mode: mode})
	return w.bytes()
}

func odd() []byte {
	w := newTar().file("z", "", 0o644)
	w.add(&tar.Header{Name: "fifo", Typeflag: tar.TypeFifo})
	w.add(&tar.Header{Name: "block", Typeflag: tar.TypeBlock})
	w.add(&tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3})
	return w.bytes()
}

// A file with holes is as large as it says, and the store bounds it.
func TestHoles(t *testing.T) {
	ws := newWorkspace(t, nil)
	store, err := Open(ws.store.dir, Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ws.store = store
	if _, err := store.Keep(t.Context(), ws.src, bytes.NewReader(sparse(1<<40))); !errors.Is(err, sandbox.ErrExhausted) {
		t.Error(err)
	}
}

// sparse is a layer with a file of holes alone.
func sparse(size int64) []byte {
	records := map[string]string{"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "f", "GNU.sparse.size": fmt.Sprint(size), "GNU.sparse.numblocks": "0", "GNU.sparse.map": ""}
	var b bytes.Buffer
	pax := ""
	for k, v := range records {
		n := len(k) + len(v) + 3
		line := fmt.Sprintf("%d %s=%s\n", n+len(fmt.Sprint(n)), k, v)
		if len(line) != n+len(fmt.Sprint(n)) {
			line = fmt.Sprintf("%d %s=%s\n", len(line), k, v)
		}
		pax += line
	}
	raw := func(name string, flag byte, size int) []byte {
		h := make([]byte, 512)
		copy(h, name)
		copy(h[100:], "0000644\x00")
		copy(h[108:], "0000000\x000000000\x00")
		copy(h[124:], fmt.Sprintf("%011o\x00", size))
		copy(h[136:], "00000000000\x00        ")
		h[156] = flag
		copy(h[257:], "ustar\x0000")
		sum := 0
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		return h
	}
	b.Write(raw("pax", 'x', len(pax)))
	b.WriteString(pax)
	b.Write(make([]byte, (512-len(pax)%512)%512))
	b.Write(raw("f", '0', 0))
	b.Write(make([]byte, 1024))
	return b.Bytes()
}

func FuzzLayer(f *testing.F) {
	f.Add(newTar().dir("./").dir("d", "opaque=y").file("d/f", "x", 0o755).whiteout("old").link("l", "d/f").bytes())
	f.Add(hardLink(newTar().file("f", "x", 0o644), "g", "f").bytes())
	f.Add(newTar().dir("new", "redirect=/d").file("new/.git/config", "x", 0o644).bytes())
	f.Add(newTar().file(".GIT/hooks/x", "x", 0o755).file("../f", "x", 0o644).bytes())
	f.Add(sparse(1 << 12))
	f.Add(odd())
	host := tree{}
	host.put("d/f", object{File, "old", false})
	host.put("d/g/h", object{File, "old", false})
	host.put(".gitignore", object{File, "*.o\n", false})
	ws := newWorkspace(f, host)
	f.Fuzz(func(t *testing.T, layer []byte) {
		set, err := ws.store.Keep(t.Context(), ws.src, bytes.NewReader(layer))
		if err != nil || set == nil {
			return
		}
		for i, e := range set.Entries {
			if _, err := cleanName(e.Path, false); err != nil {
				t.Errorf("%q is kept", e.Path)
			}
			if _, git := gitIn(e.Path); git || i > 0 && comparePaths(set.Entries[i-1].Path, e.Path) >= 0 {
				t.Errorf("%q is kept, or in the wrong place", e.Path)
			}
		}
		again, err := ws.store.Get("", set.ID)
		if err != nil || !cmp.Equal(again, set) {
			t.Errorf("it is read as another: %v\n%s", err, cmp.Diff(set, again))
		}
		if err := ws.store.Drop(set.ID); err != nil {
			t.Error(err)
		}
	})
}
