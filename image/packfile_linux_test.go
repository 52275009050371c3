// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
)

// A packing that is cancelled leaves nothing, also within a file.
func TestPackCancelled(t *testing.T) {
	rest(t, 50*time.Millisecond)
	host := fakeHost(t, "a=text", "b=text")
	f, err := os.Create(filepath.Join(host, "c"))
	must(t, err)
	must(t, errors.Join(f.Truncate(1<<30), f.Close()))
	dir, err := os.Open(host)
	must(t, err)
	defer dir.Close()
	cache := t.TempDir()
	must(t, os.Chmod(cache, 0o700))
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("the caller has gone")
	p := packing{from: host, dir: dir, free: func(string) (int64, error) { return 1 << 40, nil }, onCopy: func(name string) {
		if name == "b" {
			cancel(over)
		}
	}}
	if _, err := packed(ctx, p, PackOptions{Cache: cache}); !errors.Is(err, over) {
		t.Errorf("%v", err)
	}
	noPack(t, cache)

	l, err := p.look(t.Context(), &packer{})
	must(t, err)
	r := &stopping{ctx, strings.NewReader("text")}
	if n, err := r.Read(make([]byte, 4)); n > 0 || !errors.Is(err, over) {
		t.Errorf("a file goes on for %d bytes, %v", n, err)
	}
	if l.total.bytes != 1<<30+2*4096 {
		t.Errorf("%+v", l.total)
	}
}

// holds says whether a block of a pack's file begins with a text.
func holds(t *testing.T, r *Root, text string) bool {
	t.Helper()
	f := r.root.Image.EROFS
	end, err := fstree.EROFSDataEnd(f)
	must(t, err)
	b := make([]byte, end)
	_, err = f.ReadAt(b, 0)
	must(t, err)
	for at := fstree.DataStart; at < len(b); at += fstree.Block {
		if bytes.HasPrefix(b[at:], []byte(text+"\x00")) {
			return true
		}
	}
	return false
}

// all is all that a packed root has: names, and what is in files.
func all(t *testing.T, r *Root) (out []string) {
	t.Helper()
	f := r.root.Image.EROFS
	root, err := readTree(f)
	must(t, err)
	var walk func(at string, n *fstree.Node)
	walk = func(at string, n *fstree.Node) {
		what := fmt.Sprintf("%s %o %d:%d %d", at, n.Mode, n.UID, n.GID, n.MTime)
		if n.Kind == fstree.File {
			b, err := readAll(f, n)
			must(t, err)
			what += fmt.Sprintf(" %q", b)
		}
		out = append(out, what+n.Target)
		for _, name := range n.Names() {
			walk(at+"/"+name, n.Children[name])
		}
	}
	walk("", root)
	return out
}

// layoutOf is the identifier of a pack.
func layoutOf(t *testing.T, r *Root) string {
	t.Helper()
	b := make([]byte, 16)
	_, err := r.root.Image.EROFS.ReadAt(b, 1024+48)
	must(t, err)
	return string(b)
}

// An old pack's file goes on: what has changed since is as it is now, and what has not is not
// read again. It has what a pack has that is made of nothing, and nothing else.
func TestPackGoesOn(t *testing.T) {
	rest(t, 50*time.Millisecond)
	lines := []string{"bin/changed=old", "bin/same=" + strings.Repeat("same", 3000), "bin/gone=text", "bin/grows=text", "lib/empty=", "lib/007=secret", "lib/008=moved"}
	for i := range 100 {
		lines = append(lines, fmt.Sprintf("lib/more/%03d=%s", i, strings.Repeat("x", 5000)))
	}
	host, cache := fakeHost(t, lines...), filepath.Join(t.TempDir(), "packs")
	must(t, os.Link(filepath.Join(host, "bin/same"), filepath.Join(host, "bin/twin")))
	first := packDir(t, host, cache)
	name, before := first.root.Image.EROFS.Name(), layoutOf(t, first)
	must(t, first.Close())

	must(t, os.WriteFile(filepath.Join(host, "bin/changed"), []byte("new"), 0o644))
	must(t, os.WriteFile(filepath.Join(host, "bin/grows"), []byte(strings.Repeat("more", 5000)), 0o644))
	must(t, os.Remove(filepath.Join(host, "bin/gone")))
	must(t, os.Chmod(filepath.Join(host, "lib/007"), 0o600))
	must(t, os.Rename(filepath.Join(host, "lib/008"), filepath.Join(host, "lib/moved")))
	var copied []string
	dir, err := os.Open(host)
	must(t, err)
	defer dir.Close()
	p := packing{from: host, dir: dir, onCopy: func(name string) { copied = append(copied, name) }}
	second, err := packed(t.Context(), p, PackOptions{Cache: cache})
	must(t, err)
	defer second.Close()
	if slices.Sort(copied); !slices.Equal(copied, []string{"changed", "empty", "grows", "moved"}) { // a new name changes times, too
		t.Errorf("copied are %q", copied)
	}
	if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old pack: %v", err)
	}
	fresh := packDir(t, host, filepath.Join(t.TempDir(), "packs"))
	if have, want := all(t, second), all(t, fresh); !slices.Equal(have, want) {
		t.Errorf("it has\n%q\nand anew\n%q", have, want)
	}
	if second.root.Image.Digest != fresh.root.Image.Digest || layoutOf(t, second) == layoutOf(t, fresh) || layoutOf(t, second) == before {
		t.Error("its digest, which is of the files, and its identifier, which is of where they are, are not told apart")
	}
	for _, gone := range []string{"old", "text", "secret"} { // what is not there any more, or not for everybody
		if holds(t, second, gone) {
			t.Errorf("its file still has %q", gone)
		}
	}
}

// One that is not finished leaves the old pack as it was.
func TestPackIsGivenBack(t *testing.T) {
	rest(t, 50*time.Millisecond)
	host, cache := fakeHost(t, "a=old", "b=text", "c=text"), filepath.Join(t.TempDir(), "packs")
	first := packDir(t, host, cache)
	name, id := first.root.Image.EROFS.Name(), layoutOf(t, first)
	was, err := os.ReadFile(name)
	must(t, err)
	must(t, first.Close())
	must(t, os.WriteFile(filepath.Join(host, "a"), []byte("new"), 0o644))
	dir, err := os.Open(host)
	must(t, err)
	defer dir.Close()
	p := packing{from: host, dir: dir, onCopy: func(string) { must(t, os.WriteFile(filepath.Join(host, "b"), []byte("more"), 0o644)) }}
	if _, err := packed(t.Context(), p, PackOptions{Cache: cache}); err == nil || !strings.Contains(err.Error(), "being changed") {
		t.Fatalf("%v", err)
	}
	packs, err := FindPacks(cache)
	must(t, err)
	if list := packs.List(); len(list) != 1 || list[0].Digest != first.root.Image.Digest || list[0].InUse {
		t.Fatalf("%+v", list)
	}
	if is, err := os.ReadFile(name); err != nil || string(is) != string(was) {
		t.Errorf("the old pack is another one, %v", err)
	}
	copied := 0
	p.onCopy = func(string) { copied++ }
	second, err := packed(t.Context(), p, PackOptions{Cache: cache})
	must(t, err)
	defer second.Close()
	if copied != 2 || layoutOf(t, second) == id {
		t.Errorf("it went on with %d files copied", copied)
	}
	if text(t, second, "/a") != "new" || text(t, second, "/b") != "more" || text(t, second, "/c") != "text" {
		t.Errorf("%q", all(t, second))
	}
	if left, err := os.ReadDir(filepath.Dir(second.root.Image.EROFS.Name())); err != nil || len(left) != 3 {
		t.Errorf("beside it: %v, %v", left, err)
	}
}

// A pack that is used, or whose index is damaged, does not go on.
func TestPackBeginsAnew(t *testing.T) {
	rest(t, 50*time.Millisecond)
	for name, spoil := range map[string]func(t *testing.T, r *Root, index string){
		"used":                func(t *testing.T, _ *Root, _ string) {},
		"an index cut off":    func(t *testing.T, r *Root, index string) { must(t, os.Truncate(index, 40)); r.Close() },
		"no index":            func(t *testing.T, r *Root, index string) { must(t, os.Remove(index)); r.Close() },
		"an index of nothing": func(t *testing.T, r *Root, index string) { must(t, os.Truncate(index, 0)); r.Close() },
		"an offset outside": func(t *testing.T, r *Root, index string) {
			r.Close()
			b, err := os.ReadFile(index)
			must(t, err)
			b[indexEntrySize-2] = 1
			must(t, os.WriteFile(index, formatIndex(b[:len(b)-32]), 0o600))
		},
	} {
		host, cache := fakeHost(t, "a=old", "b=text"), filepath.Join(t.TempDir(), "packs")
		old := packDir(t, host, cache)
		spoil(t, old, filepath.Join(filepath.Dir(old.root.Image.EROFS.Name()), packIndex))
		must(t, os.WriteFile(filepath.Join(host, "a"), []byte("new"), 0o644))
		now := packDir(t, host, cache)
		if text(t, now, "/a") != "new" || text(t, now, "/b") != "text" {
			t.Errorf("%s: %q, %q", name, text(t, now, "/a"), text(t, now, "/b"))
		}
		if name == "used" && text(t, old, "/a") != "old" {
			t.Errorf("what is used has changed: %q", text(t, old, "/a"))
		}
		fresh := packDir(t, host, filepath.Join(t.TempDir(), "packs"))
		if layoutOf(t, now) != layoutOf(t, fresh) {
			t.Errorf("%s: it went on", name)
		}
	}
}

// A directory whose files are written to all the time has a packing wait for once, and no
// more for each file.
func TestPackWaitsOnce(t *testing.T) {
	rest(t, 50*time.Millisecond)
	host := fakeHost(t, "a=text")
	must(t, os.WriteFile(filepath.Join(host, "a"), []byte("now"), 0o644))
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(host, "a"), &st))
	settled = time.Hour
	p := &packer{ctx: t.Context(), began: time.Now().Add(-2 * settled)}
	if err := p.settle(&st); err == nil || !strings.Contains(err.Error(), "being changed") {
		t.Errorf("%v", err)
	}
}
