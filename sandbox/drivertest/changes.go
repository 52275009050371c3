// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
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
	{name: "of the root", run: testChangesOfRoot, only: living},
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
