// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

var changeTests = []test{
	{name: "what was changed", run: unlessAhead(testChanges)},
	{name: "nothing", run: unlessAhead(testNoChanges)},
	{name: "of each mount", run: unlessAhead(testChangesOfEach)},
	{name: "without what is hidden", run: unlessAhead(testChangesHidden)},
	{name: "more than the memory", run: unlessAhead(testChangesLarge)},
	{name: "after a timeout", run: unlessAhead(testChangesTimeout)},
	{name: "after the memory limit", run: unlessAhead(testChangesMemory)},
	{name: "more than once", run: testChangesAgain, only: living},
}

// unlessAhead is a test, but for sandboxes that are made ahead: they refuse to tell.
func unlessAhead(run func(*testing.T, *suite, road)) func(*testing.T, *suite, road) {
	return func(t *testing.T, s *suite, r road) {
		if r.name != ahead {
			run(t, s, r)
			return
		}
		s.needChanges(t)
		w := s.fixture(t, mount(t, tree(t, s), "/data", sandbox.CopyOnWrite))
		w.spec.OnChanges = func(string, io.Reader) error { return nil }
		if _, err := r.run(timeout(t), w.spec, w.exec("true")); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("a sandbox that is made ahead does not refuse to tell changes: %v", err)
		}
	}
}

// change is what a layer says of one name.
type change struct {
	kind    byte // of tar
	mode    os.FileMode
	content string // of a file, or where a link leads
	opaque  bool
	removed bool
}

// readLayer reads a layer to its end.
func readLayer(r io.Reader) (map[string]change, error) {
	layer := map[string]change{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return layer, nil
		}
		if err != nil {
			return layer, err
		}
		c := change{kind: h.Typeflag, mode: os.FileMode(h.Mode & 0o777), content: h.Linkname}
		switch h.Typeflag {
		case tar.TypeReg:
			if c.content, err = readContent(in, h.Size); err != nil {
				return layer, err
			}
		case tar.TypeLink:
			c = layer[path.Clean(h.Linkname)]
		case tar.TypeChar:
			c.removed = h.Devmajor == 0 && h.Devminor == 0
		case tar.TypeDir:
			c.opaque = h.PAXRecords["SCHILY.xattr.trusted.overlay.opaque"] == "y" || h.PAXRecords["SCHILY.xattr.user.overlay.opaque"] == "y"
		}
		name := path.Clean(h.Name)
		if _, ok := layer[name]; ok || path.IsAbs(name) || strings.HasPrefix(name, "..") {
			return layer, fmt.Errorf("the layer says %q", h.Name)
		}
		layer[name] = c
	}
}

// readContent is what a file has, or the digest of much.
func readContent(r io.Reader, size int64) (string, error) {
	if size > mib {
		digest := sha256.New()
		_, err := io.Copy(digest, r)
		return fmt.Sprintf("%x", digest.Sum(nil)), err
	}
	b, err := io.ReadAll(r)
	return string(b), err
}

// over is a tree of the host with a layer over it.
func over(t *testing.T, dir string, layer map[string]change) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, p)
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		c := change{kind: tar.TypeDir, mode: info.Mode().Perm()}
		switch {
		case info.Mode().IsRegular():
			c.kind, c.content = tar.TypeReg, read(t, p)
		case info.Mode()&os.ModeSymlink != 0:
			c.kind = tar.TypeSymlink
			c.content, err = os.Readlink(p)
		}
		tree[name] = c.String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range layer {
		if c.removed || c.opaque || c.kind != tar.TypeDir {
			maps.DeleteFunc(tree, func(n, _ string) bool { return n == name || strings.HasPrefix(n, name+"/") })
		}
	}
	for name, c := range layer {
		if !c.removed && name != "." {
			tree[name] = c.String()
		}
	}
	return tree
}

// String is as changeAll says it.
func (c change) String() string {
	switch c.kind {
	case tar.TypeDir:
		return fmt.Sprintf("directory %o", c.mode)
	case tar.TypeSymlink:
		return "link " + c.content
	}
	return fmt.Sprintf("file %o %s", c.mode, c.content)
}

// changeAll changes a tree in every way, and says what it is then.
const changeAll = `
import shutil
d = sys.argv[1]
os.chdir(d)
put('new', b'new\n'); put('tool', b'#!/bin/sh\n'); os.chmod('tool', 0o755)
put('file', b'more\n', 'ab'); os.chmod('open', 0o755)
os.unlink('sub/deep'); os.rename('moving', 'moved')
shutil.rmtree('replaced'); os.mkdir('replaced'); put('replaced/only', b'one\n')
shutil.rmtree('removed'); os.makedirs('made/in/it'); put('made/in/it/ünïcödé\n', b'odd\n')
os.unlink('becomes'); os.mkdir('becomes'); put('becomes/directory')
os.symlink('../outside', 'link'); os.unlink('led'); os.symlink('elsewhere', 'led')
put('twice', b'two names\n'); os.link('twice', 'sub/again')
put('empty', b''); put('long', bytes(range(256)) .hex().encode() * 2000)
tree = {}
for at, dirs, files in os.walk('.'):
    for n in dirs + files:
        p = os.path.relpath(os.path.join(at, n), '.')
        m = os.lstat(p).st_mode
        if stat.S_ISLNK(m): tree[p] = 'link ' + os.readlink(p)
        elif stat.S_ISDIR(m): tree[p] = 'directory %o' % (m & 0o777)
        else: tree[p] = 'file %o %s' % (m & 0o777, open(p).read())
say(tree)`

func changedTree(t *testing.T, s *suite) string {
	t.Helper()
	s.needChanges(t)
	dir := tree(t, s)
	for _, name := range []string{"kept/file", "moving", "replaced/a", "replaced/b/c", "removed/x/y", "becomes"} {
		write(t, dir+"/"+name, name+"\n", 0o644)
	}
	if err := os.Symlink("somewhere", dir+"/led"); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s *suite) needChanges(t *testing.T) {
	t.Helper()
	s.needAccess(t, sandbox.CopyOnWrite)
	if !s.caps.Changes {
		s.lacks(t, "changes of a copy-on-write mount cannot be read")
	}
}

// told are the layers of a run, and why one could not be read.
type told struct {
	mu     sync.Mutex
	layers map[string]map[string]change
	errs   map[string]error
}

func (l *told) take(target string, layer map[string]change, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.layers[target]; ok {
		err = errors.Join(err, errors.New("it was told twice"))
	}
	l.layers[target] = layer
	if err != nil {
		l.errs[target] = err
	}
	return err
}

// whole demands that the layers of these mounts, and of no other, were read.
func (l *told) whole(t *testing.T, targets ...string) {
	t.Helper()
	if got := slices.Sorted(maps.Keys(l.layers)); !slices.Equal(got, targets) || len(l.errs) > 0 {
		t.Fatalf("the layers of %q were told (%v), want those of %q", got, l.errs, targets)
	}
}

// changing runs x in w until ctx ends, and reads what was changed then.
func (s *suite) changing(t *testing.T, ctx context.Context, r road, w *fixture, x *sandbox.Exec) (outcome, *told) {
	t.Helper()
	l := &told{layers: map[string]map[string]change{}, errs: map[string]error{}}
	w.spec.OnChanges = func(target string, layer io.Reader) error {
		got, err := readLayer(layer)
		return l.take(target, got, err)
	}
	if r.name == living {
		r.run = func(ctx context.Context, spec *sandbox.Spec, exec *sandbox.Exec) (*sandbox.Result, error) {
			return s.changeLiving(t, ctx, spec, exec, l)
		}
	}
	return w.start(t, ctx, r, x), l
}

// changeLiving is runLiving, and reads the layers when the program has ended.
func (s *suite) changeLiving(t *testing.T, ctx context.Context, spec *sandbox.Spec, exec *sandbox.Exec, l *told) (*sandbox.Result, error) {
	d := &watched{Driver: s.driver, before: func(inst sandbox.Instance) {
		for _, m := range spec.Mounts {
			if m.Access != sandbox.CopyOnWrite {
				continue
			}
			got, err := readChanges(t, inst, m.Target)
			switch {
			case !m.Dir:
				if !errors.Is(err, sandbox.ErrInvalid) {
					t.Errorf("the changes of a mounted file: %v", err)
				}
			case got == nil && err != nil:
				if !errors.Is(err, sandbox.ErrUnavailable) {
					t.Errorf("changes that cannot be read: %v", err)
				}
			default:
				l.take(m.Target, got, err)
			}
		}
	}}
	return runLiving(ctx, d, spec, exec)
}

// readChanges reads a layer of a living sandbox; nil when nothing came.
func readChanges(t *testing.T, inst sandbox.Instance, target string) (layer map[string]change, err error) {
	reader, ok := inst.(sandbox.ChangeReader)
	if !ok {
		t.Fatal("its instances do not tell changes")
	}
	from, to := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := reader.ReadChanges(timeout(t), target, to)
		to.CloseWithError(err)
		done <- err
	}()
	layer, err = readLayer(from)
	_, _ = io.Copy(io.Discard, from)
	if why := <-done; why != nil {
		return nil, why
	}
	return layer, err
}

// watched is a level that has a look at its instances before they are destroyed.
type watched struct {
	sandbox.Driver
	before func(sandbox.Instance)
}

func (w *watched) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	inst, err := w.Driver.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &watchedInstance{inst, w.before}, nil
}

type watchedInstance struct {
	sandbox.Instance
	before func(sandbox.Instance)
}

func (i *watchedInstance) Destroy(ctx context.Context) error {
	i.before(i.Instance)
	return i.Instance.Destroy(ctx)
}

func testChanges(t *testing.T, s *suite, r road) {
	dir := changedTree(t, s)
	before := listing(t, dir)
	w := s.fixture(t, mount(t, dir, "/data", sandbox.CopyOnWrite))
	o, l := s.changing(t, timeout(t), r, w, w.exec("python3", "-I", "-S", "-c", prelude+changeAll, "/data"))
	o.ok(t)
	l.whole(t, "/data")
	inside := map[string]string{}
	if err := json.Unmarshal([]byte(o.out), &inside); err != nil {
		t.Fatal(err)
	}
	if got := over(t, dir, l.layers["/data"]); !maps.Equal(got, inside) {
		for name := range inside {
			if got[name] != inside[name] {
				t.Errorf("%q is %.60q inside, and with the layer %.60q", name, inside[name], got[name])
			}
		}
		for name := range got {
			if _, ok := inside[name]; !ok {
				t.Errorf("%q is not inside, and with the layer %.60q", name, got[name])
			}
		}
	}
	for _, name := range []string{"kept", "kept/file", "replaced/b/c"} {
		if c, ok := l.layers["/data"][name]; ok && !c.removed && c.kind == tar.TypeReg {
			t.Errorf("%q, which was not changed, is in the layer as %.60q", name, c)
		}
	}
	if after := listing(t, dir); after != before {
		t.Errorf("the host's files were\n%s\nand are\n%s", before, after)
	}
}

func testNoChanges(t *testing.T, s *suite, r road) {
	s.needChanges(t)
	w := s.fixture(t, mount(t, tree(t, s), "/data", sandbox.CopyOnWrite))
	o, l := s.changing(t, timeout(t), r, w, w.exec("cat", "/data/file"))
	o.ok(t)
	l.whole(t, "/data")
	if got := l.layers["/data"]; len(got) > 0 && !(len(got) == 1 && got["."].kind == tar.TypeDir) {
		t.Errorf("nothing was changed, and the layer has %v", got)
	}
}

func testChangesOfEach(t *testing.T, s *suite, r road) {
	s.needChanges(t)
	a, b := tree(t, s), tree(t, s)
	write(t, b+"/inner/file", "inner\n", 0o644)
	w := s.fixture(t, mount(t, a, "/data", sandbox.CopyOnWrite), mount(t, b, "/data/sub", sandbox.CopyOnWrite),
		mount(t, a+"/open", "/home/user/alone", sandbox.CopyOnWrite), mount(t, a, "/home/user/only", sandbox.ReadOnly))
	o, l := s.changing(t, timeout(t), r, w, w.exec("sh", "-c", "echo a > /data/mine; echo b > /data/sub/inner/mine; echo c > alone; echo d > own"))
	o.ok(t)
	l.whole(t, "/data", "/data/sub")
	if got := l.layers["/data"]; got["mine"].content != "a\n" || len(got["sub/inner/mine"].content) > 0 {
		t.Errorf("/data: %v", got)
	}
	if got := l.layers["/data/sub"]; got["inner/mine"].content != "b\n" || got["inner"].kind != tar.TypeDir {
		t.Errorf("/data/sub: %v", got)
	}
}

// testChangesHidden: neither what a mask hides nor what is mounted in the mount is code's
// doing, also where the directory around it could be renamed.
func testChangesHidden(t *testing.T, s *suite, r road) {
	s.needChanges(t)
	if !s.caps.Masks {
		s.lacks(t, "no masks")
	}
	dir, other := tree(t, s), s.path(t)+"/other"
	write(t, dir+"/conf/secret", canary, 0o644)
	write(t, dir+"/conf/keys/secret", canary, 0o644)
	write(t, dir+"/more/lib/secret", canary, 0o644)
	write(t, other+"/secret", canary, 0o644)
	w := s.fixture(t, mount(t, dir, "/data", sandbox.CopyOnWrite), mount(t, other, "/data/more/lib", sandbox.ReadOnly),
		masks(sandbox.Mask{Target: "/data/conf/secret"}, sandbox.Mask{Target: "/data/conf/keys", Dir: true}))
	o, l := s.changing(t, timeout(t), r, w, w.exec("python3", "-I", "-S", "-c", prelude+`
os.chdir('/data')
put('conf/mine'); put('more/mine')
for f in [lambda: put('conf/secret'), lambda: os.unlink('conf/secret'), lambda: os.rmdir('conf/keys'), lambda: put('conf/keys/new'), lambda: put('more/lib/new'),
  lambda: os.rename('conf', 'moved'), lambda: os.rename('more', 'gone')]: print(attempt(f))
put('last', b'done')`))
	o.ok(t)
	l.whole(t, "/data")
	for name, c := range l.layers["/data"] {
		if base := path.Base(name); strings.Contains(c.content, canary) || slices.Contains([]string{"secret", "keys", "lib", "new"}, base) && !c.removed {
			t.Errorf("the layer has %q: %v", name, c)
		}
	}
	if l.layers["/data"]["last"].content != "done" {
		t.Errorf("the layer has %v", l.layers["/data"])
	}
}

// testChangesLarge: who reads a layer needs no memory for what is in it.
func testChangesLarge(t *testing.T, s *suite, r road) {
	s.needChanges(t)
	if s.caps.ScratchInMemory {
		s.lacks(t, "what is written counts as memory")
	}
	w := s.fixture(t, mount(t, tree(t, s), "/data", sandbox.CopyOnWrite), limit(func(l *sandbox.Limits) { l.Memory = 64 * mib }))
	o, l := s.changing(t, timeout(t), r, w, w.exec("python3", "-I", "-S", "-c", prelude+`
import hashlib
digest = hashlib.sha256()
with open('/data/large', 'wb', 0) as f:
    for i in range(200):
        block = b'%08d' % i * (1 << 17)
        digest.update(block); f.write(block)
print(digest.hexdigest())`))
	o.ok(t)
	l.whole(t, "/data")
	if got := l.layers["/data"]["large"].content; got != strings.TrimSpace(o.out) {
		t.Errorf("the layer has %.80q, want %q", got, o.out)
	}
}

func testChangesTimeout(t *testing.T, s *suite, r road) {
	s.needChanges(t)
	w := s.fixture(t, mount(t, tree(t, s), "/data", sandbox.CopyOnWrite))
	ctx, cancel := context.WithCancel(timeout(t))
	defer cancel()
	x := w.exec("sh", "-c", "echo kept > /data/before; (trap '' TERM INT; while :; do echo x; done) & (exec setsid sleep 1000) & sleep 1000 & kill -STOP $!; wait")
	x.Stdout = &firstWrite{then: cancel}
	o, l := s.changing(t, ctx, r, w, x)
	if o.Signal == "" || o.ExitCode != nil { // the agent's end makes an orphan of what is stopped, which is hung up on
		t.Errorf("it ended so: %s", o.describe())
	}
	l.whole(t, "/data")
	if got := l.layers["/data"]["before"].content; got != "kept\n" {
		t.Errorf("%q was kept", got)
	}
}

// firstWrite calls a function once something was written.
type firstWrite struct {
	once sync.Once
	then func()
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.once.Do(f.then)
	return len(p), nil
}

// testChangesMemory: a layer that is told is whole, or says that it is not.
func testChangesMemory(t *testing.T, s *suite, r road) {
	s.needChanges(t)
	s.need(t, sandbox.LimitMemory)
	w := s.fixture(t, mount(t, tree(t, s), "/data", sandbox.CopyOnWrite), limit(func(l *sandbox.Limits) { l.Memory = 96 * mib }))
	o, l := s.changing(t, timeout(t), r, w, w.exec("python3", "-I", "-S", "-c", prelude+`
put('/data/before', b'kept\n')
x = []
while True: x.append(bytearray(os.urandom(1 << 20)))`))
	if s.caps.Limits[sandbox.LimitMemory].Enforcement != sandbox.Emulated || !strings.Contains(o.errs, "MemoryError") {
		o.exceeded(t, sandbox.LimitMemory)
	}
	if got, ok := l.layers["/data"]; ok && l.errs["/data"] == nil && got["before"].content != "kept\n" {
		t.Errorf("a layer that seems whole has %v", got)
	}
}

// testChangesAgain: a living sandbox goes on after it was read, and nothing of it that is
// no such mount is.
func testChangesAgain(t *testing.T, s *suite, r road) {
	s.needChanges(t)
	w := s.fixture(t, mount(t, tree(t, s), "/data", sandbox.CopyOnWrite), mount(t, tree(t, s), "/home/user/only", sandbox.ReadOnly))
	inst, err := s.driver.Start(timeout(t), w.spec)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Destroy(context.WithoutCancel(t.Context()))
	for _, target := range []string{"/", "/data/sub", "/home/user", "/home/user/only", "/nowhere", "data", ""} {
		if _, err := readChanges(t, inst, target); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("the changes of %q: %v", target, err)
		}
	}
	for _, want := range []string{"one\n", "two\n"} {
		client, err := dial(timeout(t), inst, w.spec)
		if err != nil {
			select {
			case <-inst.Ended():
				s.lacks(t, "reading changes ends a sandbox that cannot stand still")
			default:
				t.Fatal(err)
			}
		}
		if exit, err := client.Run(timeout(t), w.exec("sh", "-c", "printf '"+want+"' > /data/now")); err != nil || exit.Code == nil || *exit.Code != 0 {
			t.Fatalf("%+v, %v", exit, err)
		}
		client.Close()
		got, err := readChanges(t, inst, "/data")
		if err != nil || got["now"].content != want {
			t.Errorf("%v, %v, want %q", got, err, want)
		}
	}
	if err := inst.Destroy(timeout(t)); err != nil {
		t.Fatal(err)
	}
}
