// SPDX-License-Identifier: Apache-2.0

package fstree_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	other "github.com/erofs/go-erofs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caisson-run/caisson/image/fstree"
)

// build makes an image of root, the contents of whose files are text.
func build(t testing.TB, root *fstree.Node, text map[*fstree.Node][]byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	must(t, err)
	t.Cleanup(func() { f.Close() })
	at := int64(fstree.DataStart)
	var walk func(*fstree.Node)
	walk = func(d *fstree.Node) {
		for _, name := range d.Names() {
			switch c := d.Children[name]; {
			case c.Kind == fstree.Dir:
				walk(c)
			case c.Kind == fstree.File && c.Offset == 0 && len(text[c]) > 0:
				c.Size, c.Offset = int64(len(text[c])), at
				_, err := f.WriteAt(text[c], at)
				must(t, err)
				at += (c.Size + fstree.Block - 1) / fstree.Block * fstree.Block
			}
		}
	}
	walk(root)
	size, err := fstree.WriteEROFS(f, root, at, [16]byte{1})
	must(t, err)
	must(t, f.Truncate(size))
	return f
}

// sample is a tree with everything in it.
func sample() (*fstree.Node, map[*fstree.Node][]byte) {
	root, text := fstree.NewDir(), map[*fstree.Node][]byte{}
	file := func(d *fstree.Node, name, s string) *fstree.Node {
		n := &fstree.Node{Kind: fstree.File, Mode: 0o644, UID: 70000, GID: 80000, MTime: 1700000000}
		d.Children[name], text[n] = n, []byte(s)
		return n
	}
	dir := func(d *fstree.Node, name string) *fstree.Node {
		n := fstree.NewDir()
		d.Children[name] = n
		return n
	}
	etc := dir(root, "etc")
	passwd := file(etc, "passwd", "root:x:0:0::/root:/bin/sh\n")
	etc.Children["passwd-"] = passwd
	file(root, "empty", "")
	file(root, "large", strings.Repeat("0123456789abcdef", 70_000))
	root.Children["link"] = &fstree.Node{Kind: fstree.Link, Target: "../../etc/passwd"}
	root.Children["long link"] = &fstree.Node{Kind: fstree.Link, Target: strings.Repeat("x/", 2040)}
	tmp := dir(root, "tmp")
	tmp.Mode = 0o1777
	wide := dir(root, "wide") // many blocks, and a tail
	for i := range 1500 {
		file(wide, fmt.Sprintf("a name that is not short, number %d", i), fmt.Sprint(i))
	}
	exact := dir(root, "exact") // ends with a block: 2*12+3 for the dots
	for i, rest := 0, fstree.Block-27; rest > 0; i++ {
		n := min(rest, 100)
		if rest-n < 20 {
			n = rest
		}
		file(exact, fmt.Sprintf("%0*d", n-12, i), "x")
		rest -= n
	}
	full := dir(root, "almost a block") // too large for a tail
	for i := range 40 {
		file(full, fmt.Sprintf("%089d", i), "")
	}
	deep := root
	for range 60 {
		deep = dir(deep, "d")
	}
	file(deep, "\xff\xfe", "bytes")
	return root, text
}

func TestReadWhatWasWritten(t *testing.T) {
	root, text := sample()
	f := build(t, root, text)
	info, err := f.Stat()
	must(t, err)
	got, err := fstree.ReadEROFS(f, info.Size())
	must(t, err)
	if diff := cmp.Diff(root, got, cmp.Comparer(func(a, b *fstree.Node) bool { return same(a, b) })); diff != "" {
		t.Error(diff)
	}
	if got.Children["etc"].Children["passwd"] != got.Children["etc"].Children["passwd-"] {
		t.Error("two names of one file became two files")
	}
}

// TestFind looks for every path of the tree, and for some that are not there.
func TestFind(t *testing.T) {
	root, text := sample()
	f := build(t, root, text)
	info, err := f.Stat()
	must(t, err)
	find := func(p string) (*fstree.Node, error) { return fstree.FindEROFS(f, info.Size(), p) }
	var walk func(string, *fstree.Node)
	walk = func(p string, n *fstree.Node) {
		got, err := find(p)
		if err != nil || got.Kind != n.Kind || got.UID != n.UID || got.Target != n.Target || got.Offset != n.Offset {
			t.Errorf("%.60q: %+v, %v", p, got, err)
		}
		for name, c := range n.Children {
			walk(p+"/"+name, c)
		}
	}
	walk("", root)
	for p, want := range map[string]error{"/no": fstree.ErrNotFound, "/etc/no/x": fstree.ErrNotFound, "/etc/passwd/x": nil, "/link/x": nil} {
		if _, err := find(p); err == nil || want != nil && !errors.Is(err, want) || want == nil && errors.Is(err, fstree.ErrNotFound) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestSameTreeSameBytes(t *testing.T) {
	a, atext := sample()
	b, btext := sample()
	if !bytes.Equal(contents(t, build(t, a, atext)), contents(t, build(t, b, btext))) {
		t.Error("the same tree gives other bytes")
	}
}

func contents(t *testing.T, f *os.File) []byte {
	b, err := os.ReadFile(f.Name())
	must(t, err)
	return b
}

func same(a, b *fstree.Node) bool {
	if a.Kind != b.Kind || a.UID != b.UID || a.GID != b.GID || a.MTime != b.MTime || a.Size != b.Size || a.Offset != b.Offset || a.Target != b.Target || len(a.Children) != len(b.Children) {
		return false
	}
	if a.Kind != fstree.Link && a.Mode != b.Mode {
		return false
	}
	for name, c := range a.Children {
		if b.Children[name] == nil || !same(c, b.Children[name]) {
			return false
		}
	}
	return true
}

// TestOtherReader wants an implementation that is not ours to see the tree.
func TestOtherReader(t *testing.T) {
	root, text := sample()
	f := build(t, root, text)
	img, err := other.Open(f)
	must(t, err)
	names := 0
	must(t, fs.WalkDir(img, ".", func(p string, d fs.DirEntry, err error) error {
		must(t, err)
		n, err := root.Lookup(p)
		if p == "." {
			n, err = root, nil
		}
		must(t, err)
		names++
		info, err := d.Info()
		must(t, err)
		switch n.Kind {
		case fstree.Dir:
			if !d.IsDir() || info.Mode().Perm() != fs.FileMode(n.Mode&0o777) {
				t.Errorf("%s: %v", p, info.Mode())
			}
		case fstree.File:
			b, err := fs.ReadFile(img, p)
			if err != nil || !bytes.Equal(b, text[n]) || !info.Mode().IsRegular() {
				t.Errorf("%s: %d bytes, %v, want %d", p, len(b), err, len(text[n]))
			}
			if st := info.Sys().(*other.Stat); st.UID != n.UID || st.GID != n.GID || int64(st.Mtime) != n.MTime {
				t.Errorf("%s: %+v", p, st)
			}
		case fstree.Link:
			to, err := img.(fs.ReadLinkFS).ReadLink(p)
			if err != nil || to != n.Target {
				t.Errorf("%s → %.40q, %v", p, to, err)
			}
		}
		return nil
	}))
	if want, _ := root.Count(); names != want+1 {
		t.Errorf("%d names, want %d", names, want+1)
	}
}

// TestKernelTools asks erofs-utils, where they are installed.
func TestKernelTools(t *testing.T) {
	fsck, err := exec.LookPath("fsck.erofs")
	if err != nil {
		t.Log("fsck.erofs is not installed; the other reader has looked")
		return
	}
	root, text := sample()
	f := build(t, root, text)
	if out, err := exec.Command(fsck, f.Name()).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestRandomTrees(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := map[*fstree.Node][]byte{}
		root := tree(r, text, 3)
		f := build(t, root, text)
		defer f.Close() // shrinking a failure builds thousands
		info, _ := f.Stat()
		got, err := fstree.ReadEROFS(f, info.Size())
		if err != nil || !same(root, got) {
			r.Fatalf("read back: %v", err)
		}
		if _, err := other.Open(f); err != nil {
			r.Fatal(err)
		}
	})
}

// TestRootOfEverySize: a root directory whose tail just fits behind an inode of
// its own block, or just does not, is found where it was put.
func TestRootOfEverySize(t *testing.T) {
	for size := 3900; size <= 4096; size++ {
		root, left := fstree.NewDir(), size-27 // "." and ".." take 12 bytes each and their names
		for n := 0; left > 0; n++ {
			// No name so long that what is left holds no further one.
			take := min(left, 200)
			if rest := left - take; rest > 0 && rest < 16 {
				take -= 16
			}
			root.Children[fmt.Sprintf("%03d", n)+strings.Repeat("n", take-12-3)] = fstree.NewDir()
			left -= take
		}
		f := build(t, root, nil)
		info, err := f.Stat()
		must(t, err)
		if got, err := fstree.ReadEROFS(f, info.Size()); err != nil || !same(root, got) {
			t.Errorf("a root of %d bytes: %v", size, err)
		}
		if _, err := other.Open(f); err != nil {
			t.Errorf("a root of %d bytes: %v", size, err)
		}
		f.Close()
	}
}

func tree(r *rapid.T, text map[*fstree.Node][]byte, depth int) *fstree.Node {
	d := fstree.NewDir()
	name := rapid.StringMatching(`[a-z]{1,3}|[A-Z]{200,250}`)
	for _, s := range rapid.SliceOfNDistinct(name, 0, 25, rapid.ID).Draw(r, "names") {
		switch k := rapid.IntRange(0, 3).Draw(r, "kind"); {
		case k == 0 && depth > 0:
			d.Children[s] = tree(r, text, depth-1)
		case k == 1:
			d.Children[s] = &fstree.Node{Kind: fstree.Link, Target: strings.Repeat("t", rapid.IntRange(1, fstree.MaxTarget).Draw(r, "target"))}
		default:
			n := &fstree.Node{Kind: fstree.File, Mode: 0o755}
			text[n] = bytes.Repeat([]byte{'x'}, rapid.IntRange(0, 9000).Draw(r, "size"))
			d.Children[s] = n
		}
	}
	return d
}

func TestWriteRefuses(t *testing.T) {
	shared := fstree.NewDir()
	for name, root := range map[string]*fstree.Node{
		"no directory":       {Kind: fstree.File},
		"bad name":           {Children: map[string]*fstree.Node{"..": fstree.NewDir()}},
		"slash":              {Children: map[string]*fstree.Node{"a/b": fstree.NewDir()}},
		"directory twice":    {Children: map[string]*fstree.Node{"a": shared, "b": shared}},
		"empty link":         {Children: map[string]*fstree.Node{"a": {Kind: fstree.Link}}},
		"contents elsewhere": {Children: map[string]*fstree.Node{"a": {Kind: fstree.File, Size: 5000, Offset: fstree.DataStart}}},
		"contents at 0":      {Children: map[string]*fstree.Node{"a": {Kind: fstree.File, Size: 5}}},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "image"))
		must(t, err)
		if _, err := fstree.WriteEROFS(f, root, 2*fstree.Block, [16]byte{}); err == nil {
			t.Errorf("%s: it was written", name)
		}
		f.Close()
	}
}

// FuzzRead damages images: no panic, nothing out of bounds, and what is read
// can be walked to its end.
func FuzzRead(f *testing.F) {
	root := fstree.NewDir()
	root.Children["a"] = &fstree.Node{Kind: fstree.Link, Target: "b"}
	root.Children["d"] = fstree.NewDir()
	img := build(f, root, nil)
	b, err := io.ReadAll(img)
	must(f, err)
	f.Add(b[1024:])
	f.Fuzz(func(t *testing.T, b []byte) {
		b = append(make([]byte, 1024), b...)
		_, _ = fstree.FindEROFS(bytes.NewReader(b), int64(len(b)), "/d/a")
		n, err := fstree.ReadEROFS(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		n.Count()
		var walk func(*fstree.Node)
		walk = func(n *fstree.Node) {
			for name, c := range n.Children {
				if err := fstree.CheckName(name); err != nil {
					t.Error(err)
				}
				if c.Kind == fstree.File && c.Size > 0 && (c.Offset < fstree.DataStart || c.Offset+c.Size > int64(len(b))) {
					t.Errorf("contents out of bounds: %d at %d", c.Size, c.Offset)
				}
				walk(c)
			}
		}
		walk(n)
	})
}
