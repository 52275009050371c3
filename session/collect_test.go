// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// A directory that was made for files and got none is gone afterwards; one that was there
// stays, and so does one that got some.
func TestEmptyDest(t *testing.T) {
	top := t.TempDir()
	wishes := []policy.CollectWish{{Pattern: "*", Dest: top}, {Pattern: "*", Dest: filepath.Join(top, "a/empty/one")}, {Pattern: "*", Dest: filepath.Join(top, "a/b")}}
	f, err := openCollected(collectOptions{Wishes: wishes})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.dests[2].WriteFile("file", nil, 0o600), f.Close()); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(filepath.Join(top, "a"))
	if err != nil || len(list) != 1 || list[0].Name() != "b" {
		t.Errorf("%v, %v", list, err)
	}
}

// Where files go is settled before anything runs: no link that code leaves in a
// directory that it may write to leads them elsewhere.
func TestOpenDest(t *testing.T) {
	work, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(work, "link")); err != nil {
		t.Fatal(err)
	}
	r := &collectedFiles{o: collectOptions{Writable: []string{work}}}
	for _, dest := range []string{"link", "link/below"} {
		if root, err := r.open(filepath.Join(work, dest)); err == nil {
			root.Close()
			t.Errorf("%s is opened", dest)
		}
	}
	dest := filepath.Join(work, "new", "below")
	root, err := r.open(dest)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.Rename(dest, dest+"-moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, dest); err != nil {
		t.Fatal(err)
	}
	if err := root.WriteFile("f", nil, 0o600); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	// Nor to another directory there, which the host may run something of.
	if err := errors.Join(os.Mkdir(filepath.Join(work, ".vscode"), 0o700), os.Symlink(".vscode", filepath.Join(work, "results"))); err != nil {
		t.Fatal(err)
	}
	if root, err := r.open(filepath.Join(work, "results")); err == nil {
		root.Close()
		t.Error("a link to .vscode is followed")
	}
	// Nor by way of a link that another user made to the directory.
	alias := filepath.Join(t.TempDir(), "alias")
	if err := os.Symlink(work, alias); err != nil {
		t.Fatal(err)
	}
	for dest, want := range map[string]bool{"link": false, "link/below": false, "results": false, "new": true, "made/below": true, ".": true} {
		root, err := r.open(filepath.Join(alias, dest))
		if err == nil {
			root.Close()
		}
		if (err == nil) != want {
			t.Errorf("%s by an alias: %v", dest, err)
		}
	}
	r.o.Writable = nil // no code inside made that link
	link, err := r.open(filepath.Join(work, "link"))
	if err != nil {
		t.Fatal(err)
	}
	link.Close()
	// What an earlier run left is looked at, too.
	for dest, want := range map[string]string{"results": "a link leads from there to", ".vscode": "", "link": "", "new": ""} {
		f, err := openCollected(collectOptions{Wishes: []policy.CollectWish{{Pattern: "*", Dest: filepath.Join(work, dest)}}})
		if err == nil {
			err = f.Close()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || sandbox.Hint(err) == "") {
			t.Errorf("%s: %v, want %q", dest, err, want)
		}
	}
}

// Who is killed while files come out leaves nothing that is not one of them.
func TestCollectedFilesHaveNoOtherName(t *testing.T) {
	c, offer, there := newCollector(t, "out/**")
	dir, res := c.wish.Dest, c.res
	offer("a")
	there()
	offer("sub/b")
	there("a") // it was whole when the next began
	offer("c")
	there("a", "sub/b")
	// The last was cut short.
	err := c.keep(&guest.Collection{Files: []guest.Collected{{Path: "out/a", Size: 1}, {Path: "out/sub/b", Size: 5}}})
	c.discard()
	there("a", "sub/b")
	if err != nil || len(res.Files) != 2 || res.Files[1].Path != "/home/user/out/sub/b" || res.Files[1].SavedAs != filepath.Join(dir, "sub/b") {
		t.Errorf("%v, %v", res.Files, err)
	}
}

// newCollector is a wish that is being carried out: into an empty directory, from which
// there says what is in it.
func newCollector(t *testing.T, pattern string) (c *collector, offer func(name string), there func(want ...string)) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	c = &collector{wish: policy.CollectWish{Pattern: pattern, Dest: dir}, res: &sandbox.Result{}, root: root, prefix: "out/", from: "/home/user", hidden: true,
		named: map[string]bool{}, taken: map[string]string{}, swept: map[string]bool{}}
	offer = func(name string) {
		t.Helper()
		w, err := c.create(guest.File{Path: "out/" + name})
		if err == nil {
			_, err = io.WriteString(w, name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	there = func(want ...string) {
		t.Helper()
		var got []string
		err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				got = append(got, name)
			}
			return err
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	return c, offer, there
}

// What a program of the host would run comes out only by its name, git's own never, and
// nothing into a repository.
func TestMayRelease(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		there         string // directories and files that exist
		why           string // empty: it comes out
	}{
		{"out/**", "report.csv", "", ""},
		{"out/**", "refs/heads/x", "objects/", ""},
		{"out/**", ".github/workflows/x.yml", "", ""},
		{"out/**", "mise.toml", "", "mise runs what it names"},
		{"out/mise.*", "mise.toml", "", "mise runs what it names"},
		{"out/mise.toml", "mise.toml", "", ""},
		{"out/**/mise.toml", "a/mise.toml", "", ""},
		{"out/mise.toml", "MISE.toml", "", "mise runs what it names"},
		{"out/**/MISE.toml", "MISE.toml", "", ""},
		{"out/**/.vscode/**", ".vscode/tasks.json", "", ""},
		{"out/**/.vscode/**", ".vscode/.envrc", "", "direnv runs it"},
		{"out/**/.git/**", ".git/config", "", "git runs"},
		{"out/**/.git", "sub/.git", "", "git runs"},
		{"out/**/.GIT/**", ".GIT/config", "", "git runs"},
		{"out/**", "HEAD", "", "git may take the directory for a repository"},
		{"out/**", "a/head", "", "git may take the directory for a repository"},
		{"out/HEAD", "HEAD", "", ""},
		{"out/HEAD", "HEAD", "objects/", ""},
		{"out/HEAD", "HEAD", "objects/ refs/", ". is or would be a repository"},
		{"out/**/HEAD", "a/HEAD", "a/objects/ a/refs/", "a is or would be a repository"},
		{"out/**", "refs/heads/x", "HEAD objects/", ". is or would be a repository"},
		{"out/**", "config", "HEAD objects/ refs/", ". is or would be a repository"},
		{"out/**", "a/b/c", "a/HEAD a/commondir", "a is or would be a repository"},
	} {
		c, _, _ := newCollector(t, tt.pattern)
		for _, name := range strings.Fields(tt.there) {
			dir, err := c.directory(path.Dir(name))
			if err == nil && path.Base(name) == "HEAD" || path.Base(name) == "commondir" {
				err = dir.WriteFile(path.Base(name), nil, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		err := c.mayRelease(tt.name)
		if tt.why == "" && err != nil || tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.why) || sandbox.Hint(err) == "") {
			t.Errorf("%s by %s beside %q: %v, want %q", tt.name, tt.pattern, tt.there, err, tt.why)
		}
	}
}

// What does not come out is named, and what exists stays.
func TestUncollectedIsNamed(t *testing.T) {
	c, offer, there := newCollector(t, "out/**")
	if err := errors.Join(c.root.WriteFile("old", []byte("mine"), 0o600), c.root.Symlink("old", "link"), c.root.Mkdir("sub", 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old", "mise.toml", "link", "new", "sub/new"} {
		offer(name)
	}
	got := &guest.Collection{}
	for _, name := range []string{"old", "mise.toml", "link", "new", "sub/new"} {
		got.Files = append(got.Files, guest.Collected{Path: "out/" + name})
	}
	err := c.keep(got)
	there("link", "new", "old", "sub/new")
	if text, _ := c.root.ReadFile("old"); string(text) != "mine" {
		t.Errorf("old is %q", text)
	}
	want := "old is there already (and 2 more did not come out: mise.toml, link)"
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(sandbox.Hint(err), "--collect-overwrite") || len(c.res.Files) != 2 {
		t.Errorf("%v, %v, want %s", err, c.res.Files, want)
	}
	c.overwrite, c.fault, c.others = true, nil, nil
	for _, name := range []string{"old", "link"} {
		offer(name)
	}
	err = c.keep(&guest.Collection{Files: []guest.Collected{{Path: "out/old"}, {Path: "out/link"}}})
	there("link", "new", "old", "sub/new")
	if text, _ := c.root.ReadFile("old"); err != nil || string(text) != "old" {
		t.Errorf("old is %q, %v", text, err)
	}
	if info, err := c.root.Lstat("link"); err != nil || !info.Mode().IsRegular() {
		t.Errorf("link is %v, %v", info, err)
	}
}

// Links come out that lead to what came out, and no others.
func TestLinks(t *testing.T) {
	c, offer, there := newCollector(t, "out/**")
	offer("bin/tool")
	offer("lib/x.so.1.2")
	links := []guest.Link{
		{Path: "out/lib/x.so", Target: "x.so.1"}, {Path: "out/lib/x.so.1", Target: "x.so.1.2"}, // a chain, in any order
		{Path: "out/run", Target: "bin/tool"}, {Path: "out/a/up", Target: "../bin/tool"}, {Path: "out/dir", Target: "lib"},
	}
	for at, to := range map[string]string{
		"absolute": "/etc/passwd", "above": "..", "root": ".", "above2": "../out/bin/tool", "not": "bin/none", "through": "dir/../bin/tool",
		"loop": "loop", "long": "bin//tool", "throughlink": "dir/x.so.1.2", "mise.toml": "bin/tool", "b/hooks": "../../../.git/hooks",
	} {
		links = append(links, guest.Link{Path: "out/" + at, Target: to})
	}
	err := c.keep(&guest.Collection{Files: []guest.Collected{{Path: "out/bin/tool"}, {Path: "out/lib/x.so.1.2"}}, Links: links})
	there("a/up", "bin/tool", "dir", "lib/x.so", "lib/x.so.1", "lib/x.so.1.2", "run")
	if b, err := c.root.ReadFile("lib/x.so"); string(b) != "lib/x.so.1.2" {
		t.Errorf("it reads %q, %v", b, err)
	}
	if err == nil || !strings.Contains(err.Error(), "and 10 more did not come out") || len(c.res.Files) != 7 {
		t.Errorf("%v, %v", err, c.res.Files)
	}
	// What there is stays, without --collect-overwrite.
	if err := errors.Join(c.root.Remove("run"), c.root.WriteFile("run", []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, overwrite := range []bool{false, true} {
		c.overwrite, c.fault, c.others, c.taken = overwrite, nil, nil, map[string]string{}
		err := c.keep(&guest.Collection{Links: []guest.Link{{Path: "out/run", Target: "bin/tool"}}})
		to, _ := c.root.Readlink("run")
		if overwrite && (err != nil || to != "bin/tool") || !overwrite && (err == nil || to != "") {
			t.Errorf("overwrite %v: %v, it leads to %q", overwrite, err, to)
		}
	}
	there("a/up", "bin/tool", "dir", "lib/x.so", "lib/x.so.1", "lib/x.so.1.2", "run")
}

// Of what code set as a file's mode, the owner's execute bit comes out and nothing else.
func TestModes(t *testing.T) {
	c, _, _ := newCollector(t, "out/**")
	for mode, want := range map[fs.FileMode]fs.FileMode{0o644: 0o600, 0o700: 0o700, 0o100: 0o700, 0o667: 0o600, 0o755 | fs.ModeSetuid: 0o700} {
		if _, err := c.create(guest.File{Path: "out/f", Mode: mode}); err != nil {
			t.Fatal(err)
		}
		err := c.keep(&guest.Collection{Files: []guest.Collected{{Path: "out/f"}}})
		info, serr := c.root.Lstat("f")
		if err != nil || serr != nil || info.Mode()&0o700 != want || info.Mode()&(fs.ModeSetuid|0o022) != 0 {
			t.Errorf("%v: %v, %v, %v", mode, info.Mode(), err, serr)
		}
	}
}

// What cannot come out is told, and a pattern that matches nothing.
func TestNothingComesOut(t *testing.T) {
	c, _, _ := newCollector(t, "out/**")
	c.hidden = false
	got := &guest.Collection{Skipped: []guest.Skipped{{Path: "out/.cache/pipe", Reason: "not a file"}}}
	if err := c.keep(got); err != nil {
		t.Errorf("hidden: %v", err)
	}
	got.Skipped = append(got.Skipped, guest.Skipped{Path: `out/a\nb`, Reason: "its name: it holds a control character"})
	if err := c.keep(got); err == nil || !strings.Contains(err.Error(), "its name") {
		t.Errorf("skipped: %v", err)
	}
	c.fault = nil
	if err := c.keep(&guest.Collection{Unmatched: []string{"out/**"}}); err == nil || !strings.Contains(err.Error(), "nothing matches out/**") {
		t.Errorf("unmatched: %v", err)
	}
}

// Directories are gone to through no link, wherever it leads.
func TestDirectoriesThroughNoLink(t *testing.T) {
	c, _, there := newCollector(t, "out/**")
	if err := errors.Join(c.root.Mkdir("hooks", 0o700), c.root.Symlink("hooks", "out"), c.root.Symlink("/tmp", "up")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"out/pre-commit", "out/sub/x", "up/x"} {
		if _, err := c.create(guest.File{Path: "out/" + name}); err == nil || !strings.Contains(err.Error(), "or a link") {
			t.Errorf("%s: %v", name, err)
		}
	}
	there("out", "up")
}
