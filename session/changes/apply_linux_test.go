// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// edit changes a file of the host as an editor may: in place, or by another.
func (ws *workspace) edit(at, text string, replace bool) {
	ws.Helper()
	name := filepath.Join(ws.dir, at)
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if replace && err == nil {
		err = os.WriteFile(name+".new", []byte(text), 0o644)
		if err == nil {
			err = os.Rename(name+".new", name)
		}
	} else if err == nil {
		err = os.WriteFile(name, []byte(text), 0o644)
	}
	if err != nil {
		ws.Fatal(err)
	}
}

// What was changed on the host since is a conflict, and nothing is applied.
func TestConflicts(t *testing.T) {
	host := tree{}
	for _, at := range []string{"f", "d/f", "d/g", "run"} {
		host.put(at, object{File, "old", false})
	}
	host.put("l", object{kind: Link, text: "f"})
	layer := func() *tarWriter { return newTar().file("other", "new", 0o644) }
	for name, tc := range map[string]struct {
		layer *tarWriter
		host  func(ws *workspace)
		at    string
		why   string
	}{
		"written":              {layer().file("f", "new", 0o644), func(ws *workspace) { ws.edit("f", "host", false) }, "f", "it was changed on the host"},
		"written, as long":     {layer().file("f", "new", 0o644), func(ws *workspace) { ws.edit("f", "hst", false) }, "f", "it was changed on the host"},
		"replaced":             {layer().file("f", "new", 0o644), func(ws *workspace) { ws.edit("f", "old", true) }, "f", "it was replaced on the host"},
		"removed":              {layer().file("f", "new", 0o644), func(ws *workspace) { ws.remove("f") }, "f", "it was removed on the host"},
		"a link by now":        {layer().file("f", "new", 0o644), func(ws *workspace) { ws.remove("f"); ws.symlink("/etc/passwd", "f") }, "f", "it has another type on the host"},
		"new on both sides":    {layer().file("n", "new", 0o644), func(ws *workspace) { ws.edit("n", "host", false) }, "n", "there was nothing when the run was kept, and now there is something"},
		"removed, but written": {layer().whiteout("f"), func(ws *workspace) { ws.edit("f", "host", false) }, "f", "it was changed on the host"},
		"a mode":               {layer().file("run", "old", 0o755), func(ws *workspace) { ws.edit("run", "host", false) }, "run", "it was changed on the host"},
		"a link":               {layer().link("l", "d/f"), func(ws *workspace) { ws.remove("l"); ws.symlink("x", "l") }, "l", "it was"},
		"its directory":        {layer().file("d/f", "new", 0o644), func(ws *workspace) { ws.remove("d"); ws.symlink("/etc", "d") }, "d/f", "its directory is none on the host"},
		"a file for it":        {layer().file("d/n", "new", 0o644), func(ws *workspace) { ws.remove("d"); ws.edit("d", "host", false) }, "d/n", "its directory is none on the host"},
		"a file more in what gives way": {layer().file("d", "new", 0o644), func(ws *workspace) { ws.edit("d/mine", "host", false) }, "d",
			"the directory there has files that are not removed: mine"},
		"a new directory": {layer().dir("n").file("n/x", "new", 0o644), func(ws *workspace) { ws.edit("n", "host", false) }, "n", "there was nothing when the run was kept, and now there is something"},
	} {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t, host)
			set := ws.keep(tc.layer.bytes())
			tc.host(ws)
			before := readTree(t, ws.dir)
			a, err := ws.apply(set, ApplyOptions{Held: held(set)})
			if !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), tc.at) || len(a.Conflicts) == 0 || a.Conflicts[0].Path != tc.at || !strings.HasPrefix(a.Conflicts[0].Why, tc.why) {
				t.Fatalf("%+v, %v", a, err)
			}
			if diff := cmp.Diff(before, readTree(t, ws.dir), cmp.AllowUnexported(object{})); diff != "" {
				t.Errorf("something was applied:\n%s", diff)
			}
			a, err = ws.apply(set, ApplyOptions{Held: held(set), SkipConflicts: true})
			if err != nil || len(a.Conflicts) == 0 || len(a.Paths) == 0 || ws.read("other") != "new" {
				t.Errorf("skipped: %+v, %v", a, err)
			}
			after := readTree(t, ws.dir)
			delete(after, "other")
			for _, l := range a.Paths {
				delete(after, l)
				delete(before, l)
			}
			if diff := cmp.Diff(before, after, cmp.AllowUnexported(object{})); diff != "" {
				t.Errorf("what is in conflict was touched:\n%s", diff)
			}
		})
	}
}

func (ws *workspace) remove(at string) {
	ws.Helper()
	if err := os.RemoveAll(filepath.Join(ws.dir, at)); err != nil {
		ws.Fatal(err)
	}
}

func (ws *workspace) symlink(to, at string) {
	ws.Helper()
	if err := os.Symlink(to, filepath.Join(ws.dir, at)); err != nil {
		ws.Fatal(err)
	}
}

// A file that was changed while the run was on is a conflict from the start.
func TestTouched(t *testing.T) {
	ws := newWorkspace(t, tree{"f": {File, "old", false}, "g": {File, "old", false}})
	ws.src.Began = Clock(time.Now())
	ws.edit("f", "host", false)
	set := ws.keep(newTar().file("f", "new", 0o644).bytes())
	if !set.Entries[0].Base.Touched {
		t.Fatal("it does not say so")
	}
	if a, err := ws.apply(set, ApplyOptions{}); !errors.Is(err, sandbox.ErrConflict) || a.Conflicts[0].Why != "it was changed on the host while the run was on" || ws.read("f") != "host" {
		t.Errorf("%+v, %v", a, err)
	}
}

// What was written right before the call is no conflict, and what is written right after
// the program may start is one: the file systems' clock stands still for milliseconds.
func TestClock(t *testing.T) {
	ws := newWorkspace(t, tree{"before": {File, "0", false}, "after": {File, "0", false}})
	for range 50 {
		ws.edit("before", "1", false)
		ws.src.Began = Clock(time.Now())
		ws.edit("after", "1", false)
		set := ws.keep(newTar().file("after", "new", 0o644).file("before", "new", 0o644).bytes())
		if !set.Entries[0].Base.Touched || set.Entries[1].Base.Touched {
			t.Fatalf("after %v, before %v", set.Entries[0].Base.Touched, set.Entries[1].Base.Touched)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// rootDir opens the workspace so that its files can be opened.
func (ws *workspace) rootDir() *os.File {
	ws.Helper()
	f, err := os.Open(ws.dir)
	if err != nil {
		ws.Fatal(err)
	}
	ws.Cleanup(func() { f.Close() })
	return f
}

// Where a directory of the host has become a link, nothing behind it is touched.
func TestNoLinkIsFollowed(t *testing.T) {
	host := tree{}
	host.put("d/f", object{File, "old", false})
	ws := newWorkspace(t, host)
	set := ws.keep(newTar().file("d/f", "new", 0o644).file("d/n", "new", 0o644).whiteout("d/g").bytes())
	outside := filepath.Join(filepath.Dir(ws.dir), "outside")
	if err := os.Rename(filepath.Join(ws.dir, "d"), outside); err != nil { // the very file that was there
		t.Fatal(err)
	}
	ws.symlink("../outside", "d")
	a, err := ws.apply(set, ApplyOptions{SkipConflicts: true})
	if err != nil || len(a.Paths) > 0 || len(a.Conflicts) != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	if diff := cmp.Diff(tree{"f": {File, "old", false}}, readTree(t, outside), cmp.AllowUnexported(object{})); diff != "" {
		t.Error(diff)
	}
	var b strings.Builder
	if err := ws.store.WritePatch(&b, set, ""); err != nil || strings.Contains(b.String(), "-old") {
		t.Errorf("the patch reads through a link: %v\n%s", err, b.String())
	}
}

// A link within the workspace is followed as little.
func TestNoLinkInsideIsFollowed(t *testing.T) {
	host := tree{}
	host.put("d/e/f", object{File, "old", false})
	ws := newWorkspace(t, host)
	set := ws.keep(newTar().file("d/e/f", "new", 0o644).bytes())
	if err := os.Rename(filepath.Join(ws.dir, "d"), filepath.Join(ws.dir, "z")); err != nil {
		t.Fatal(err)
	}
	ws.symlink("z", "d")
	if a, err := ws.apply(set, ApplyOptions{}); !errors.Is(err, sandbox.ErrConflict) || len(a.Conflicts) != 1 || ws.read("z/e/f") != "old" {
		t.Errorf("%+v, %v", a, err)
	}
}

// What ended half way is gone on with, whatever the next Apply is asked for.
func TestGoesOn(t *testing.T) {
	ws := newWorkspace(t, tree{"a": {File, "old", false}, "b": {File, "old", false}, "c": {File, "old", false}})
	set := ws.keep(newTar().file("a", "new a", 0o644).file("b", "new b", 0o644).file("c", "new c", 0o644).bytes())
	content := ws.store.path(set.ID, contentDir, set.Entries[0].SHA256)
	if err := os.WriteFile(content, []byte("bad"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.apply(set, ApplyOptions{Paths: []string{"a"}}); err == nil {
		t.Fatal("a content that is another is applied")
	}
	if err := os.WriteFile(content, []byte("new a"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := ws.apply(set, ApplyOptions{Paths: []string{"b"}})
	if err != nil || !a.Resumed || !cmp.Equal(a.Paths, []string{"a", "b"}) || ws.read("a")+ws.read("b")+ws.read("c") != "new anew bold" {
		t.Errorf("%+v, %v", a, err)
	}
}

// A file that is saved between the last look and the exchange comes back.
func TestExchanged(t *testing.T) {
	for name, replace := range map[string]bool{"in place": false, "by another": true} {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t, tree{"f": {File, "old", false}})
			set := ws.keep(newTar().file("f", "new", 0o644).bytes())
			h := &host{root: ws.rootDir()}
			j, err := startJournal(ws.store.path(set.ID, journalFile), journalHead{Digest: set.Digest})
			if err != nil {
				t.Fatal(err)
			}
			p, err := placeIn(h, j, 0, &set.Entries[0])
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			content := readerFunc(func(b []byte) (int, error) { // after makeFile's look
				ws.edit("f", "the user's", replace)
				return copy(b, "new"), io.EOF
			})
			if err := p.makeFile(content); !errors.Is(err, errConflict) {
				t.Error(err)
			}
			if diff := cmp.Diff(tree{"f": {File, "the user's", false}}, readTree(t, ws.dir), cmp.AllowUnexported(object{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Owner and mode are the host's, and no set-id bit comes out.
func TestOwnersAndModes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, which alone gives files away")
	}
	host := tree{}
	host.put("d/f", object{File, "old", false})
	host.put("g", object{File, "old", false})
	ws := newWorkspace(t, host)
	for at, id := range map[string]int{"d": 1001, "d/f": 1002} {
		if err := os.Chown(filepath.Join(ws.dir, at), id, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(ws.dir, "d/f"), 0o664); err != nil {
		t.Fatal(err)
	}
	set := ws.keep(newTar().file("d/f", "new", 0o4777).file("d/n", "new", 0o6666).dirs("d/e", 0o7777).file("d/e/x", "new", 0o600).link("d/l", "f").bytes())
	if _, err := ws.apply(set, ApplyOptions{Held: held(set)}); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]struct {
		id   uint32
		mode uint32
	}{"d/f": {1002, unix.S_IFREG | 0o775}, "d/n": {1001, unix.S_IFREG | 0o644}, "d/e": {1001, unix.S_IFDIR | 0o755}, "d/e/x": {1001, unix.S_IFREG | 0o600}, "d/l": {1001, unix.S_IFLNK | 0o777}} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(ws.dir, at), &st); err != nil || st.Uid != want.id || st.Gid != want.id || st.Mode != want.mode {
			t.Errorf("%s: %d:%d %o, want %d %o; %v", at, st.Uid, st.Gid, st.Mode, want.id, want.mode, err)
		}
	}
}

// Only what was shown is applied, and only to the workspace that it came of.
func TestDigestAndRoot(t *testing.T) {
	ws := newWorkspace(t, tree{"f": {File, "old", false}})
	set := ws.keep(newTar().file("f", "new", 0o644).bytes())
	if _, err := ws.store.Apply(t.Context(), set.ID, ApplyOptions{Digest: strings.Repeat("0", 64)}); !errors.Is(err, sandbox.ErrConflict) {
		t.Error(err)
	}
	other := newWorkspace(t, tree{"f": {File, "old", false}})
	if _, err := ws.apply(set, ApplyOptions{Root: other.root}); !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "another directory") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ws.store.Apply(ctx, set.ID, ApplyOptions{Digest: set.Digest}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	content := ws.store.path(set.ID, contentDir, set.Entries[0].SHA256)
	if err := os.WriteFile(content, []byte("bad"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.apply(set, ApplyOptions{}); !errors.Is(err, sandbox.ErrUnavailable) || ws.read("f") != "old" {
		t.Error(err)
	}
	if list, err := ws.store.List(""); err != nil || !list[0].State.Unfinished {
		t.Errorf("%v, %v", list, err)
	}
	if err := os.WriteFile(content, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := ws.apply(set, ApplyOptions{Root: ws.root}); err != nil || !a.Resumed || ws.read("f") != "new" {
		t.Errorf("%+v, %v", a, err)
	}
}

// A directory that the host has more in stays.
func TestNotEmpty(t *testing.T) {
	host := tree{}
	host.put("d/f", object{File, "old", false})
	host.put("d/.git/HEAD", object{File, "old", false})
	ws := newWorkspace(t, host)
	set := ws.keep(newTar().whiteout("d").bytes())
	a, err := ws.apply(set, ApplyOptions{})
	if err != nil || !cmp.Equal(a.Paths, []string{"d/f"}) || !cmp.Equal(a.Left, []Left{{"d", "the directory is not empty"}}) {
		t.Errorf("%+v, %v", a, err)
	}
	if ws.read("d/.git/HEAD") != "old" {
		t.Error("it is gone")
	}
}
