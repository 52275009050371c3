// SPDX-License-Identifier: Apache-2.0

package fstree_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// memory is a sink that keeps everything.
type memory struct{ b []byte }

func (m *memory) Begin() (int64, error) {
	m.b = append(m.b, make([]byte, (fstree.Block-len(m.b)%fstree.Block)%fstree.Block)...)
	return int64(len(m.b)), nil
}
func (m *memory) Write(p []byte) (int, error) { m.b = append(m.b, p...); return len(p), nil }

// A line of an archive: "dir/", "file=text", "link->to", "name=>hard link".
func archive(t testing.TB, lines ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, l := range lines {
		h, ok := l.(tar.Header)
		text := ""
		if !ok {
			s := l.(string)
			if name, to, ok := strings.Cut(s, "->"); ok {
				h = tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}
			} else if name, to, ok := strings.Cut(s, "=>"); ok {
				h = tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
			} else if name, body, ok := strings.Cut(s, "="); ok {
				h, text = tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(body))}, body
			} else {
				h = tar.Header{Typeflag: tar.TypeDir, Name: s, Mode: 0o755}
			}
		}
		must(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, text)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// blob is an archive as it is, with its digests.
func blob(b []byte) fstree.Blob {
	return fstree.Blob{Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }, Digest: digest(b), DiffID: digest(b), Size: int64(len(b))}
}

func gzipped(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(b)
	must(t, err)
	must(t, z.Close())
	return out.Bytes()
}

// unpack applies layers and lists the tree as lines.
func unpack(t testing.TB, b fstree.Bounds, blobs ...fstree.Blob) ([]string, *fstree.Unpacker, error) {
	sink := &memory{}
	u := fstree.NewUnpacker(sink, b)
	for _, b := range blobs {
		if err := u.Apply(t.Context(), b); err != nil {
			return nil, u, err
		}
	}
	var out []string
	var walk func(prefix string, n *fstree.Node)
	walk = func(prefix string, n *fstree.Node) {
		for _, name := range n.Names() {
			switch c := n.Children[name]; c.Kind {
			case fstree.Dir:
				out = append(out, prefix+name+"/")
				walk(prefix+name+"/", c)
			case fstree.File:
				out = append(out, prefix+name+"="+string(sink.b[c.Offset:c.Offset+c.Size]))
			case fstree.Link:
				out = append(out, prefix+name+"->"+c.Target)
			}
		}
	}
	walk("", u.Root)
	return out, u, nil
}

func TestLayers(t *testing.T) {
	type layers [][]any
	l := func(lines ...any) []any { return lines }
	tests := []struct {
		name   string
		layers layers
		want   []string
	}{
		{"one", layers{l("etc/", "etc/passwd=x", "bin->usr/bin")}, []string{"bin->usr/bin", "etc/", "etc/passwd=x"}},
		// A removal is looked for once in a layer, however often it is said: else
		// its price is the product of removals and files, hours for a small layer.
		{"said twice", layers{l("a=x", "d/", "d/old="), l("d/.wh..wh..opq=", "d/link=>a", "d/.wh..wh..opq=")}, []string{"a=x", "d/", "d/link=x"}},
		{"the upper one wins", layers{l("a=1", "b=1"), l("a=2")}, []string{"a=2", "b=1"}},
		{"within one the last wins", layers{l("a=1", "a=2")}, []string{"a=2"}},
		{"styles of names", layers{l("./a=1", "/b=2", "c//d=3", "./")}, []string{"a=1", "b=2", "c/", "c/d=3"}},
		{"parents that are not mentioned", layers{l("a/b/c=1")}, []string{"a/", "a/b/", "a/b/c=1"}},
		{"a directory keeps what is in it", layers{l("d/", "d/a=1"), l("d/", "d/b=2")}, []string{"d/", "d/a=1", "d/b=2"}},
		{"a file replaces a directory", layers{l("d/a=1"), l("d=file")}, []string{"d=file"}},
		{"a directory replaces a link", layers{l("d->/etc", "etc/"), l("d/", "d/x=1")}, []string{"d/", "d/x=1", "etc/"}},
		{"removed", layers{l("a=1", "b=1", "d/x=1"), l(".wh.a=", "d/.wh.x=")}, []string{"b=1", "d/"}},
		{"a directory removed", layers{l("d/x=1", "d/e/y=1"), l(".wh.d=")}, nil},
		{"removed and made again", layers{l("d/x=1"), l(".wh.d=", "d/y=2")}, []string{"d/", "d/y=2"}},
		{"made again and removed, in the other order", layers{l("d/x=1"), l("d/y=2", ".wh.d=")}, []string{"d/", "d/y=2"}},
		{"opaque", layers{l("d/x=1", "d/e/y=1"), l("d/", "d/.wh..wh..opq=", "d/z=2")}, []string{"d/", "d/z=2"}},
		{"opaque comes last", layers{l("d/x=1"), l("d/z=2", "d/.wh..wh..opq=")}, []string{"d/", "d/z=2"}},
		{"its own layer is not removed from", layers{l("a=1", ".wh.a=")}, []string{"a=1"}},
		{"removal of nothing", layers{l(".wh.a=", "no/such/.wh.b=", ".wh..wh.plnk=")}, nil},
		{"hard links", layers{l("a=1", "b=>a", "d/c=>/b")}, []string{"a=1", "b=1", "d/", "d/c=1"}},
		{"hard link to a lower layer", layers{l("a=1"), l("b=>a", "a=2")}, []string{"a=2", "b=1"}},
		{"hard link to a link", layers{l("a->x", "b=>a")}, []string{"a->x", "b->x"}},
		{"through a link of the image", layers{l("usr/lib/", "lib->usr/lib"), l("lib/x=1", "usr/lib/y=2")}, []string{"lib->usr/lib", "usr/", "usr/lib/", "usr/lib/x=1", "usr/lib/y=2"}},
		{"links that lead up stay inside", layers{l("a->../../../etc", "etc/"), l("a/passwd=x")}, []string{"a->../../../etc", "etc/", "etc/passwd=x"}},
		{"absolute links from below", layers{l("d/a->/etc", "etc/"), l("d/a/passwd=x")}, []string{"d/", "d/a->/etc", "etc/", "etc/passwd=x"}},
		{"absolute links mean the image", layers{l("a->/etc", "etc/"), l("a/passwd=x")}, []string{"a->/etc", "etc/", "etc/passwd=x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var blobs []fstree.Blob
			for _, lines := range tt.layers {
				blobs = append(blobs, blob(archive(t, lines...)))
			}
			got, _, err := unpack(t, fstree.Bounds{}, blobs...)
			must(t, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestHostileLayers is F10, F11 and L11 of the attacks: what is refused.
func TestHostileLayers(t *testing.T) {
	reg := func(h tar.Header) tar.Header { return h }
	many := make([]any, 0, 50)
	for i := range 50 {
		many = append(many, fmt.Sprintf("f%d=", i))
	}
	deep := strings.Repeat("d/", 200) + "f="
	links := []any{"d/"}
	for i := range 20 { // each makes the way longer than any name may be
		links = append(links, fmt.Sprintf("%sl->%s", strings.Repeat("l/", i), strings.Repeat("x/", 100)))
	}
	tests := map[string][]any{
		"up":                           {"../evil=1"},
		"up in the middle":             {"a/../../evil=1"},
		"up at the end":                {"a/..=1"},
		"link above, then up":          {"a->/tmp", "a/../b=1"},
		"the root as a file":           {tar.Header{Typeflag: tar.TypeReg, Name: "."}},
		"the root as a link":           {"./->/etc"},
		"below a file":                 {"a=1", "a/b=2"},
		"a circle of links":            {"a->b", "b->a", "a/x=1"},
		"a removal that leads out":     {".wh...="},
		"a removal of nothing":         {".wh.=", "x/"},
		"a removal of this":            {".wh..="},
		"hard link out":                {"a=>../../etc/shadow"},
		"hard link to the host":        {"a=>/etc/shadow"},
		"hard link through a link out": {"l->/etc", "a=>l/shadow"},
		"hard link to a directory":     {"d/", "a=>d"},
		"hard link to the root":        {"a=>/"},
		"hard link to itself":          {"a=>a"},
		"an empty link":                {"a->"},
		"a long link":                  {"a->" + strings.Repeat("x", 4096)},
		"a long name":                  {strings.Repeat("x", 256) + "=1"},
		"a long path":                  {strings.Repeat("xxxxxxx/", 600) + "a=1"},
		"too deep":                     {deep},
		"too deep by links":            links,
		"an unknown type":              {reg(tar.Header{Typeflag: 'Z', Name: "a"})},
		"a negative owner":             {reg(tar.Header{Typeflag: tar.TypeDir, Name: "a", Uid: -1})},
		"an owner that is no id":       {reg(tar.Header{Typeflag: tar.TypeDir, Name: "a", Gid: 1 << 32, Format: tar.FormatGNU})},
		"too many files":               many,
	}
	for name, lines := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := unpack(t, fstree.Bounds{Entries: 3000, Depth: 128}, blob(archive(t, append([]any{"etc/", "etc/shadow-=x"}, lines...)...)))
			if name == "too many files" {
				_, _, err = unpack(t, fstree.Bounds{Entries: 49}, blob(archive(t, lines...)))
			}
			if !errors.Is(err, sandbox.ErrDenied) && !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("got %v, want it refused", err)
			}
			if err != nil && sandbox.Hint(err) == "" {
				t.Errorf("%v: no hint", err)
			}
		})
	}
}

// TestDropped wants what a sandbox has no use for to be left out.
func TestDropped(t *testing.T) {
	got, u, err := unpack(t, fstree.Bounds{}, blob(archive(t, "dev/", "dev/null=was here",
		tar.Header{Typeflag: tar.TypeChar, Name: "dev/null", Mode: 0o666, Devmajor: 1, Devminor: 3},
		tar.Header{Typeflag: tar.TypeBlock, Name: "dev/sda", Mode: 0o666, Devmajor: 8},
		tar.Header{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o666},
		tar.Header{Typeflag: tar.TypeReg, Name: "su", Mode: 0o6755},
		tar.Header{Typeflag: tar.TypeDir, Name: "shared", Mode: 0o3777},
		tar.Header{Typeflag: tar.TypeReg, Name: "ping", Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02"}},
	)))
	must(t, err)
	if diff := cmp.Diff([]string{"dev/", "ping=", "shared/", "su="}, got); diff != "" {
		t.Error(diff)
	}
	if m := u.Root.Children["su"].Mode; m != 0o755 {
		t.Errorf("su has mode %o", m)
	}
	if m := u.Root.Children["shared"].Mode; m != 0o1777 {
		t.Errorf("shared has mode %o", m)
	}
	if u.Left != (fstree.Left{Devices: 3, SetID: 2, Xattrs: 1}) {
		t.Errorf("left out: %+v", u.Left)
	}
}

// TestBombs wants little bytes that become many to be stopped early.
func TestBombs(t *testing.T) {
	const size = 100 << 20
	zeros := bytes.Repeat([]byte{0}, 1<<20)
	plain := func(w io.Writer) {
		tw := tar.NewWriter(w)
		must(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Size: size}))
		for range size >> 20 {
			_, err := tw.Write(zeros)
			must(t, err)
		}
		must(t, tw.Close())
	}
	var gz, zs bytes.Buffer
	z, _ := gzip.NewWriterLevel(&gz, gzip.BestCompression)
	plain(z)
	must(t, z.Close())
	e, err := zstd.NewWriter(&zs)
	must(t, err)
	plain(e)
	must(t, e.Close())
	// A file with a hole of a terabyte, as GNU tar writes it in PAX format 1.0;
	// the writer at hand does not take these keys, so they are put in afterwards.
	var sparse bytes.Buffer
	tw := tar.NewWriter(&sparse)
	body := fmt.Sprintf("%-512s", "1\n1099511627775\n1\n") + "x"
	must(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "hole", Size: int64(len(body)), PAXRecords: map[string]string{
		"VNU.sparse.major": "1", "VNU.sparse.minor": "0", "VNU.sparse.name": "hole", "VNU.sparse.realsize": "1099511627776"}}))
	_, err = io.WriteString(tw, body)
	must(t, err)
	must(t, tw.Close())
	hole := bytes.ReplaceAll(sparse.Bytes(), []byte("VNU.sparse"), []byte("GNU.sparse"))
	if h, err := tar.NewReader(bytes.NewReader(hole)).Next(); err != nil || h.Size != 1<<40 {
		t.Fatalf("the file with a hole is none: %v, %v", h, err)
	}

	// Nothing but what comes after an archive's end.
	var padding bytes.Buffer
	e.Reset(&padding)
	_, err = e.Write(archive(t, "a=1"))
	must(t, err)
	for range size >> 20 {
		_, err = e.Write(zeros)
		must(t, err)
	}
	must(t, e.Close())

	for name, b := range map[string][]byte{"gzip": gz.Bytes(), "zstd": zs.Bytes(), "sparse": hole, "padding": padding.Bytes()} {
		var c count
		u := fstree.NewUnpacker(&c, fstree.Bounds{})
		one := blob(b)
		one.DiffID = ""
		if err := u.Apply(t.Context(), one); !errors.Is(err, sandbox.ErrDenied) {
			t.Errorf("%s of %d bytes: %v", name, len(b), err)
		}
		if c.n > 200*int64(len(b))+80<<20 {
			t.Errorf("%s: %d bytes were written first", name, c.n)
		}
	}
	// The bound on everything together.
	if _, _, err := unpack(t, fstree.Bounds{Bytes: 10}, blob(archive(t, "a=12345", "b=123456"))); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("11 bytes of 10: %v", err)
	}
}

type count struct{ n int64 }

func (c *count) Begin() (int64, error)       { return 4096, nil }
func (c *count) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

// TestDigests wants every byte to be the promised one.
func TestDigests(t *testing.T) {
	plain := archive(t, "a=1")
	other := archive(t, "a=2")
	zs, err := zstd.NewWriter(nil)
	must(t, err)
	forms := map[string][]byte{"plain": plain, "gzip": gzipped(t, plain), "zstd": zs.EncodeAll(plain, nil)}
	for name, b := range forms {
		good := blob(b)
		good.DiffID = digest(plain)
		if got, _, err := unpack(t, fstree.Bounds{}, good); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		for what, change := range map[string]func(*fstree.Blob){
			"another digest": func(l *fstree.Blob) { l.Digest = digest(other) },
			"another diff":   func(l *fstree.Blob) { l.DiffID = digest(other) },
			"no digest":      func(l *fstree.Blob) { l.Digest, l.DiffID = "", "" },
			"another hash":   func(l *fstree.Blob) { l.Digest = "md5:" + strings.Repeat("0", 64) },
			"too long":       func(l *fstree.Blob) { l.Size-- },
			"too short":      func(l *fstree.Blob) { l.Size++ },
			"cut":            func(l *fstree.Blob) { l.Open = blob(b[:len(b)-1]).Open },
			"something more": func(l *fstree.Blob) { l.Open = blob(append(bytes.Clone(b), "more"...)).Open },
			"empty":          func(l *fstree.Blob) { l.Open = blob(nil).Open },
		} {
			l := good
			change(&l)
			if _, _, err := unpack(t, fstree.Bounds{}, l); !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("%s, %s: got %v, want ErrInvalid", name, what, err)
			}
		}
	}
}

// FuzzLayer throws archives at the unpacker: whatever it takes is a tree whose
// names are names, whose contents are in the sink, without set-id bits.
func FuzzLayer(f *testing.F) {
	f.Add(archive(f, "a/", "a/b=1", "l->../../etc", "l/x=2", "h=>a/b", ".wh.a="), archive(f, ".wh.a=", "a/.wh..wh..opq=", "l/y=1"))
	f.Add(archive(f, "../x=1"), archive(f, "a=>a"))
	f.Add(gzipped(f, archive(f, "a=1")), []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		sink := &memory{}
		u := fstree.NewUnpacker(sink, fstree.Bounds{Bytes: 1 << 20, Entries: 1000, Depth: 20})
		for _, x := range [][]byte{a, b} {
			l := blob(x)
			if !bytes.HasPrefix(x, []byte{0x1f, 0x8b}) && !bytes.HasPrefix(x, []byte{0x28, 0xb5}) {
				l.Digest = ""
			} else {
				l.DiffID = ""
			}
			if err := u.Apply(t.Context(), l); err != nil {
				if sandbox.Hint(err) == "" {
					t.Errorf("no hint: %v", err)
				}
				return
			}
		}
		check(t, u.Root, int64(len(sink.b)), 0)
	})
}

func check(t *testing.T, n *fstree.Node, size int64, depth int) {
	if n.Mode&^0o1777 != 0 || depth > fstree.MaxDepth+1 {
		t.Errorf("mode %o at depth %d", n.Mode, depth)
	}
	if n.Kind == fstree.File && n.Size > 0 && (n.Offset%fstree.Block != 0 || n.Offset+n.Size > size) {
		t.Errorf("contents out of bounds: %d at %d", n.Size, n.Offset)
	}
	for name, c := range n.Children {
		if err := fstree.CheckName(name); err != nil {
			t.Error(err)
		}
		check(t, c, size, depth+1)
	}
}

// A layer of an overlay removes by devices, and has no words for it.
func TestApplyChanges(t *testing.T) {
	sink := &memory{}
	u := fstree.NewUnpacker(sink, fstree.Bounds{})
	must(t, u.ApplyChanges(t.Context(), bytes.NewReader(archive(t, "a/", "a/one=1", "a/two=2", "b/", "b/old=1", "usr/", "usr/bin/", "bin->usr/bin", "c=1"))))
	opaque := tar.Header{Typeflag: tar.TypeDir, Name: "b/", Mode: 0o700, Uid: 7, PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}}
	must(t, u.ApplyChanges(t.Context(), bytes.NewReader(archive(t,
		tar.Header{Typeflag: tar.TypeChar, Name: "a/one"}, tar.Header{Typeflag: tar.TypeChar, Name: "c"}, opaque, "b/new=2", "bin/tool=x", "a/.wh.two=plain"))))
	have := map[string]bool{}
	for _, p := range []string{"a/one", "a/two", "a/.wh.two", "b/old", "b/new", "usr/bin/tool", "c"} {
		_, err := u.Root.Lookup(p)
		have[p] = err == nil
	}
	want := map[string]bool{"a/one": false, "a/two": true, "a/.wh.two": true, "b/old": false, "b/new": true, "usr/bin/tool": true, "c": false}
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}
	if b, _ := u.Root.Lookup("b"); b.Mode != 0o700 || b.UID != 7 {
		t.Errorf("the new directory is %v", b)
	}
	if u.Left.Devices != 0 {
		t.Errorf("%d removals were taken for devices", u.Left.Devices)
	}
	// A name that leads out stays inside, and what is no archive is refused.
	if err := u.ApplyChanges(t.Context(), bytes.NewReader(archive(t, "../x=1"))); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("a name that leads out: %v", err)
	}
	if err := u.ApplyChanges(t.Context(), strings.NewReader("no archive")); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("no archive: %v", err)
	}
}

// What COPY adds takes the place of no directory, and no directory takes another thing's.
func TestAddKeepsKinds(t *testing.T) {
	file := func(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644} }
	dir := func(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }
	link := func(name, to string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	for what, c := range map[string]struct {
		first, then *tar.Header
		good        bool
	}{
		"a file on a file":           {file("a"), file("a"), true},
		"a file on a link":           {link("a", "b"), file("a"), true},
		"a link on a file":           {file("a"), link("a", "b"), true},
		"a directory on a directory": {dir("a"), dir("a"), true},
		"a file on a directory":      {dir("a"), file("a"), false},
		"a link on a directory":      {dir("a"), link("a", "b"), false},
		"a directory on a file":      {file("a"), dir("a"), false},
		"a directory on a link":      {link("a", "/"), dir("a"), false},
	} {
		u := fstree.NewUnpacker(nil, fstree.Bounds{})
		for i, h := range []*tar.Header{c.first, c.then} {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			if err := errors.Join(w.WriteHeader(h), w.Close()); err != nil {
				t.Fatal(err)
			}
			if err := u.Add(t.Context(), &b); (err == nil) != (c.good || i == 0) || err != nil && !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}
