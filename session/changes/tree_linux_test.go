// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// object is a file, directory or link of a tree in memory.
type object struct {
	kind Type
	text string // of a file; where a link leads
	exec bool
}

func (o object) mode() int64 {
	if o.kind == Dir || o.exec {
		return 0o755
	}
	return 0o644
}

// tree is objects by their paths, whole: the directories are in it.
type tree map[string]object

// put puts an object at a path; what is in the way goes.
func (t tree) put(at string, o object) {
	t.remove(at)
	for dir := path.Dir(at); dir != "."; dir = path.Dir(dir) {
		if t[dir].kind != Dir {
			t[dir] = object{kind: Dir}
		}
	}
	t[at] = o
}

func (t tree) remove(at string) {
	for p := range t {
		if p == at || strings.HasPrefix(p, at+"/") {
			delete(t, p)
		}
	}
}

// names are what is in a directory, sorted.
func (t tree) names(dir string) []string {
	var names []string
	for p := range t {
		if path.Dir(p) == dir {
			names = append(names, path.Base(p))
		}
	}
	slices.Sort(names)
	return names
}

func (t tree) write(tb testing.TB, dir string) {
	tb.Helper()
	paths := make([]string, 0, len(t))
	for p := range t {
		paths = append(paths, p)
	}
	slices.SortFunc(paths, comparePaths)
	for _, p := range paths {
		o, at := t[p], filepath.Join(dir, p)
		var err error
		switch o.kind {
		case Dir:
			err = os.Mkdir(at, 0o755)
		case Link:
			err = os.Symlink(o.text, at)
		default:
			err = os.WriteFile(at, []byte(o.text), fs.FileMode(o.mode()))
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// readTree reads a directory.
func readTree(tb testing.TB, dir string) tree {
	tb.Helper()
	t := tree{}
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == dir {
			return err
		}
		o := object{kind: File}
		switch {
		case d.IsDir():
			o.kind = Dir
		case d.Type() == fs.ModeSymlink:
			o.kind = Link
			o.text, err = os.Readlink(at)
		default:
			var text []byte
			text, err = os.ReadFile(at)
			info, _ := d.Info()
			o.text, o.exec = string(text), info.Mode()&0o100 != 0
		}
		rel, _ := filepath.Rel(dir, at)
		t[rel] = o
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// layerOf writes what an overlay's upper layer has when inside came of host. flip says,
// of things that an overlay may do in one way or another, which it does.
func layerOf(host, inside tree, flip func() bool) []byte {
	w := newTar()
	var emit func(dir string, whole bool)
	emit = func(dir string, whole bool) {
		for _, name := range inside.names(dir) {
			at := path.Join(dir, name)
			is, was := inside[at], host[at]
			known := !whole && was.kind == is.kind
			switch {
			case is.kind == Dir && known && flip():
				w.add(&tar.Header{Name: "./" + at + "/", Typeflag: tar.TypeDir, Mode: 0o755})
				emit(at, false)
			case is.kind == Dir:
				w.add(&tar.Header{Name: at, Typeflag: tar.TypeDir, Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}})
				emit(at, true)
			case known && is == was && flip():
			case is.kind == Link:
				w.add(&tar.Header{Name: at, Typeflag: tar.TypeSymlink, Linkname: is.text, Mode: 0o777})
			default:
				w.file(at, is.text, is.mode())
			}
		}
		if whole {
			return
		}
		for _, name := range host.names(dir) {
			if _, ok := inside[path.Join(dir, name)]; !ok {
				w.whiteout(path.Join(dir, name))
			}
		}
	}
	emit(".", false)
	return w.bytes()
}

// tarWriter writes layers for tests.
type tarWriter struct {
	b bytes.Buffer
	w *tar.Writer
}

func newTar() *tarWriter {
	w := &tarWriter{}
	w.w = tar.NewWriter(&w.b)
	return w
}

func (w *tarWriter) add(hdr *tar.Header) {
	hdr.Format = tar.FormatPAX
	if err := w.w.WriteHeader(hdr); err != nil {
		panic(err)
	}
}

func (w *tarWriter) file(at, text string, mode int64) *tarWriter {
	w.add(&tar.Header{Name: at, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(text))})
	if _, err := w.w.Write([]byte(text)); err != nil {
		panic(err)
	}
	return w
}

func (w *tarWriter) dir(at string, records ...string) *tarWriter {
	hdr := &tar.Header{Name: at, Typeflag: tar.TypeDir, Mode: 0o755, PAXRecords: map[string]string{}}
	for _, r := range records {
		name, value, _ := strings.Cut(r, "=")
		hdr.PAXRecords["SCHILY.xattr.trusted.overlay."+name] = value
	}
	w.add(hdr)
	return w
}

func (w *tarWriter) link(at, to string) *tarWriter {
	w.add(&tar.Header{Name: at, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777})
	return w
}

func (w *tarWriter) whiteout(at string) *tarWriter {
	w.add(&tar.Header{Name: at, Typeflag: tar.TypeChar})
	return w
}

func (w *tarWriter) bytes() []byte {
	if err := w.w.Close(); err != nil {
		panic(err)
	}
	return w.b.Bytes()
}

// workspace is a directory of the host with a store beside it.
type workspace struct {
	testing.TB
	dir   string
	root  *os.File
	store *Store
	src   Source // what Keep is given, but for the root
}

func newWorkspace(tb testing.TB, t tree) *workspace {
	tb.Helper()
	top := tb.TempDir()
	ws := &workspace{TB: tb, dir: filepath.Join(top, "ws")}
	if err := os.Mkdir(ws.dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	t.write(tb, ws.dir)
	var err error
	if ws.root, err = os.OpenFile(ws.dir, unix.O_PATH, 0); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ws.root.Close() })
	if ws.store, err = Open(filepath.Join(top, "changes"), Options{}); err != nil {
		tb.Fatal(err)
	}
	ws.src = Source{Root: ws.root, Name: ws.dir, Target: "/workspace"}
	return ws
}

// keep keeps a layer, which has to change something.
func (ws *workspace) keep(layer []byte) *Set {
	ws.Helper()
	set, err := ws.store.Keep(ws.Context(), ws.src, bytes.NewReader(layer))
	if err != nil {
		ws.Fatal(err)
	}
	if set == nil {
		ws.Fatal("nothing was kept")
	}
	return set
}

// apply applies a set, by options that have its digest.
func (ws *workspace) apply(set *Set, o ApplyOptions) (*Applied, error) {
	o.Digest = set.Digest
	return ws.store.Apply(ws.Context(), set.ID, o)
}

// all are the paths of a set that are held back.
func held(set *Set) (paths []string) {
	for _, e := range set.Entries {
		if len(e.Held) > 0 {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

func (ws *workspace) read(at string) string {
	ws.Helper()
	b, err := os.ReadFile(filepath.Join(ws.dir, at))
	if err != nil {
		ws.Fatal(err)
	}
	return string(b)
}

func paths(set *Set) (list []string) {
	for _, e := range set.Entries {
		list = append(list, fmt.Sprintf("%s %s %s", letters[e.Op], e.Type, e.Path))
	}
	return list
}

func (ws *workspace) storeNames() (names []string) {
	all, err := os.ReadDir(ws.store.dir)
	if err != nil {
		ws.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// dirs writes a directory with a mode.
func (w *tarWriter) dirs(at string, mode int64) *tarWriter {
	w.add(&tar.Header{Name: at, Typeflag: tar.TypeDir, Mode: mode})
	return w
}
