// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What is ignored is what git ignores.
func TestIgnores(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git, to compare with")
	}
	files := tree{
		".gitignore":     {File, "# comment\n*.o\n!keep.o\n/top\nbuild/\nsub/*.txt\n**/deep/x\na/**/z\nnode_modules\nlogs/**\n!logs/keep\nspace\\ \n\\#hash\n\\!bang\ntrail   \n[a-c]set\n[!a-c]not\nq?\n{a,b}\n*.d/\ndir/sub\r\nfoo*bar\n", false},
		"sub":            {kind: Dir},
		"sub/.gitignore": {File, "!*.o\nown\n/anchored\n", false},
		"link":           {kind: Link, text: ".gitignore"},
	}
	files.put("build/.gitignore", object{File, "!*\n", false})
	files.put("l/x", object{File, "", false})
	files.put("l/.gitignore", object{kind: Link, text: "../.gitignore"})
	ws := newWorkspace(t, files)
	if out, err := exec.Command(git, "init", "-q", ws.dir).CombinedOutput(); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	g := newIgnores(&host{root: ws.rootDir()})
	for _, at := range []string{"a.o", "keep.o", "d/a.o", "d/keep.o", "sub/a.o", "top", "d/top", "build/x", "build/keep.o", "d/build/x", "build", "sub/a.txt", "sub/d/a.txt", "d/sub/a.txt",
		"deep/x", "q/deep/x", "q/deep/y", "a/z", "a/b/z", "a/b/c/z", "d/a/z", "node_modules", "node_modules/x/y", "p/node_modules/x", "logs/x", "logs/keep", "logs/d/keep", "space ", "space", "#hash", "!bang", "trail",
		"trail   ", "aset", "dset", "anot", "dnot", "q1", "q12", "{a,b}", "a", "x.d/f", "x.d", "dir/sub/x", "p/dir/sub", "fooXbar", "foo/bar", "sub/own", "own", "sub/anchored", "sub/d/anchored", "sub/d/own", "l/a.o", "plain.go"} {
		cmd := exec.Command(git, "-C", ws.dir, "-c", "core.excludesFile=/dev/null", "check-ignore", "-q", "--no-index", filepath.FromSlash(at))
		err := cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code > 1 {
			t.Fatalf("%s: %v", at, err)
		}
		if got, want := g.match(at, at == "build"), err == nil; got != want {
			t.Errorf("%q: %v, git says %v", at, got, want)
		}
	}
}

// The .gitignore that the code wrote hides nothing.
func TestIgnoresAreTheHosts(t *testing.T) {
	ws := newWorkspace(t, tree{".gitignore": {File, "*.log\n", false}})
	set := ws.keep(newTar().file(".gitignore", "*\n", 0o644).file("a.go", "x", 0o644).file("a.log", "x", 0o644).file("d/.gitignore", "*\n", 0o644).file("d/b.go", "x", 0o644).bytes())
	if got := strings.Join(paths(set), ", "); got != "M file .gitignore, A file a.go, A dir d, A file d/.gitignore, A file d/b.go" || set.Ignored != 1 {
		t.Errorf("%s, %d ignored", got, set.Ignored)
	}
	ws.src.KeepIgnored = true
	if set = ws.keep(newTar().file("a.log", "x", 0o644).bytes()); len(set.Entries) != 1 || set.Ignored != 0 {
		t.Errorf("%v, %d ignored", paths(set), set.Ignored)
	}
}

// What git tracks is not ignored, also where a whole directory was removed.
func TestTrackedIsNotIgnored(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	files := tree{".gitignore": {File, "dist\n*.log\n", false}}
	for _, at := range []string{"a.log", "b.log", "dist/in", "dist/out", "old/dist/in", "old/dist/out"} {
		files.put(at, object{File, "old", false})
	}
	ws := newWorkspace(t, files)
	for _, args := range [][]string{{"init", "-q"}, {"add", "-f", "a.log", "dist/in", "old/dist/in"}} {
		if out, err := exec.Command(git, append([]string{"-C", ws.dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%s, %v", out, err)
		}
	}
	set := ws.keep(newTar().file("a.log", "new", 0o644).file("b.log", "new", 0o644).file("dist/in", "new", 0o644).file("dist/out", "new", 0o644).file("dist/new", "new", 0o644).whiteout("old").bytes())
	if got := strings.Join(paths(set), ", "); got != "M file a.log, M file dist/in, D dir old, D dir old/dist, D file old/dist/in" || set.Ignored != 4 {
		t.Errorf("%s, %d ignored", got, set.Ignored)
	}
	a, err := ws.apply(set, ApplyOptions{})
	if err != nil || len(a.Left) != 2 || ws.read("old/dist/out") != "old" {
		t.Errorf("%+v, %v", a, err)
	}
}

func FuzzIgnores(f *testing.F) {
	f.Add("*.o\n!keep\n/a/**/b\n", "a/x/b")
	f.Add("[a-\n\\\n{a,b\n", "a")
	f.Fuzz(func(_ *testing.T, text, at string) {
		for _, r := range parseIgnores([]byte(text)) {
			r.match(at, true)
		}
	})
}
