// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gitimport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
)

// git runs the real git, which is the judge of what is written here.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@x", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@x")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// hostAndInside are a repository of the host's with one commit, which is packed, and a
// copy of it as it is inside.
func hostAndInside(t *testing.T) (host, inside string) {
	t.Helper()
	host, inside = t.TempDir(), filepath.Join(t.TempDir(), "w")
	git(t, host, "init", "-q", "-b", "main")
	for i := range 30 { // some of it becomes deltas
		write(t, host, "src/f"+string(rune('a'+i%26)), strings.Repeat("a line of some length\n", 40)+string(rune('a'+i)))
	}
	write(t, host, "a", "one\n")
	write(t, host, "Makefile", "all:\n")
	git(t, host, "add", ".")
	git(t, host, "commit", "-qm", "first")
	write(t, host, "src/fa", strings.Repeat("a line of some length\n", 40)+"second")
	git(t, host, "commit", "-qam", "second")
	git(t, host, "gc", "-q")
	if out, err := exec.Command("cp", "-a", host, inside).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return host, inside
}

// looseIn are the loose objects of a directory.
type looseIn string

func (d looseIn) Open(id ID) (io.ReadCloser, error) {
	dir, name := id.path()
	return os.Open(filepath.Join(string(d), ".git/objects", dir, name))
}

func repository(t *testing.T, dir string) *Repository {
	t.Helper()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	r, err := Open(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func planned(t *testing.T, host, inside string) (*Import, error) {
	t.Helper()
	tip, err := ParseID(git(t, inside, "rev-parse", "HEAD"))
	if err != nil {
		t.Fatal(err)
	}
	return repository(t, host).Plan(context.Background(), looseIn(inside), tip)
}

func fsck(t *testing.T, dir string) {
	t.Helper()
	if out := git(t, dir, "fsck", "--full", "--strict", "--no-dangling"); strings.Contains(out, "error") || strings.Contains(out, "missing") || strings.Contains(out, "warning") {
		t.Errorf("git fsck says\n%s", out)
	}
}

func TestCommitsComeOver(t *testing.T) {
	host, inside := hostAndInside(t)
	write(t, inside, "a", "two\n")
	write(t, inside, "new/deep/n", "n\n")
	write(t, inside, "empty", "")
	git(t, inside, "rm", "-q", "src/fb")
	git(t, inside, "add", ".")
	git(t, inside, "commit", "-qm", "inside")
	git(t, inside, "checkout", "-qb", "side", "HEAD~1")
	write(t, inside, "side", "s\n")
	git(t, inside, "add", ".")
	git(t, inside, "commit", "-qm", "side\n\nwith a body")
	git(t, inside, "checkout", "-q", "main")
	git(t, inside, "merge", "-q", "--no-edit", "side")
	p, err := planned(t, host, inside)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := p.Held(); err != nil || len(held) > 0 {
		t.Fatalf("held: %v, %v", held, err)
	}
	if err := p.Write("agent/work"); err != nil {
		t.Fatal(err)
	}
	fsck(t, host)
	if got, want := git(t, host, "rev-parse", "agent/work"), git(t, inside, "rev-parse", "HEAD"); got != want || p.Commits != 3 {
		t.Errorf("the branch is %s with %d commits, and not %s", got, p.Commits, want)
	}
	git(t, host, "checkout", "-q", "agent/work")
	if got := git(t, host, "status", "--porcelain"); got != "" {
		t.Errorf("status: %s", got)
	}
	for _, branch := range []string{"agent/work", "agent/work/x", "agent"} {
		if err := p.Write(branch); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("branch %s: %v", branch, err)
		}
	}
	git(t, host, "pack-refs", "--all")
	git(t, host, "checkout", "-q", "main")
	if err := p.Write("agent/work"); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("over a packed one: %v", err)
	}
	if err := p.Write("other"); err != nil {
		t.Error(err)
	}
	fsck(t, host)
	if left, _ := filepath.Glob(host + "/.git/objects/*/tmp_obj_*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestHeldInCommits(t *testing.T) {
	host, inside := hostAndInside(t)
	write(t, inside, "Makefile", "all: evil\n")
	git(t, inside, "commit", "-qam", "evil")
	write(t, inside, "Makefile", "all:\n") // as it was: the commit between is looked at, too
	write(t, inside, "package.json", `{"scripts": {"postinstall": "x"}}`)
	write(t, inside, "ok.json", `{}`)
	write(t, inside, "run", "#!/bin/sh\n")
	if err := errors.Join(os.Chmod(inside+"/run", 0o755), os.Symlink("/etc/passwd", inside+"/out"), os.Symlink("a", inside+"/in")); err != nil {
		t.Fatal(err)
	}
	write(t, inside, ".githooks/pre-commit", "x")
	write(t, inside, ".vscode/tasks.json", "{}")
	write(t, inside, "Tools/Hooks/post-checkout", "x") // the host's config names them
	write(t, inside, "filter.sh", "x")
	git(t, host, "config", "core.hooksPath", "tools/hooks")
	git(t, host, "config", "filter.f.smudge", "sh ./filter.sh %f")
	git(t, inside, "add", ".")
	git(t, inside, "update-index", "--add", "--cacheinfo", "160000,"+git(t, inside, "rev-parse", "HEAD")+",module")
	git(t, inside, "commit", "-qm", "more")
	p, err := planned(t, host, inside)
	if err != nil {
		t.Fatal(err)
	}
	held, err := p.Held()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range held {
		names = append(names, e.Path)
	}
	if got, want := strings.Join(names, " "), ".githooks/pre-commit .vscode/tasks.json Makefile Tools/Hooks/post-checkout filter.sh module out package.json run"; got != want {
		t.Errorf("held are %s, and not %s", got, want)
	}
}

func TestOneCommitIsMade(t *testing.T) {
	host, _ := hostAndInside(t)
	content := map[string]string{"a": "two\n", "src/new/n": "n\n", "src/fc": "exec"}
	m := Made{Message: "Change set", Time: time.Unix(1_700_000_000, 0), Content: func(e *changes.Entry) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(content[e.Path])), nil
	}, Entries: []changes.Entry{
		{Path: "a", Op: changes.Change, Type: changes.File, Mode: 0o644, Size: 4},
		{Path: "gone", Op: changes.Remove, Type: changes.File},
		{Path: "link", Op: changes.Add, Type: changes.Link, Link: "a"},
		{Path: "src/fa", Op: changes.Mode, Type: changes.File, Mode: 0o755},
		{Path: "src/fb", Op: changes.Remove, Type: changes.File},
		{Path: "src/fc", Op: changes.Change, Type: changes.File, Mode: 0o755, Size: 4},
		{Path: "src/new", Op: changes.Add, Type: changes.Dir, Mode: 0o755},
		{Path: "src/new/n", Op: changes.Add, Type: changes.File, Mode: 0o644, Size: 2},
	}}
	p, err := repository(t, host).Make(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Write("set"); err != nil {
		t.Fatal(err)
	}
	fsck(t, host)
	got := git(t, host, "diff", "--raw", "--abbrev=4", "--no-renames", "main", "set")
	for _, want := range []string{"M\ta", "A\tlink", ":100644 100755 ", "M\tsrc/fa", "D\tsrc/fb", "M\tsrc/fc", "A\tsrc/new/n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n"); n != 5 {
		t.Errorf("the commit changes\n%s", got)
	}
	if got := git(t, host, "log", "-1", "--format=%an <%ae> %P", "set"); got != "caisson <caisson@localhost> "+git(t, host, "rev-parse", "main") {
		t.Error(got)
	}
	m.Entries = m.Entries[1:2]
	if _, err := repository(t, host).Make(t.Context(), m); err == nil || !strings.Contains(err.Error(), "nothing of the set") {
		t.Errorf("a commit of nothing: %v", err)
	}
}

// All objects of a repository are read as git reads them, in packs and beside them.
func TestRepositoryIsRead(t *testing.T) {
	host, _ := hostAndInside(t)
	write(t, host, "beside", "b\n")
	git(t, host, "add", ".")
	git(t, host, "commit", "-qm", "loose")
	r := repository(t, host)
	n := 0
	for line := range strings.Lines(git(t, host, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype) %(deltabase)")) {
		f := strings.Fields(line)
		id, err := ParseID(f[0])
		if err != nil {
			t.Fatal(err)
		}
		kind, b, err := r.read(id, 1<<20)
		if err != nil || string(kind) != f[1] || identify(kind, b) != id {
			t.Errorf("%s: %s, %v", line, kind, err)
		}
		if k, err := r.kind(id); err != nil || k != kind {
			t.Errorf("%s is a %s, %v", line, k, err)
		}
		if has, err := r.Has(id); !has || err != nil {
			t.Errorf("%s is not there: %v", line, err)
		}
		if f[2] != strings.Repeat("0", 40) {
			n++
		}
	}
	if n == 0 {
		t.Error("no object is a delta")
	}
	if has, err := r.Has(ID{1}); has || err != nil {
		t.Errorf("an object that is not there: %v, %v", has, err)
	}
}

func TestRepositoriesThatAreRefused(t *testing.T) {
	for name, make := range map[string]func(dir string){
		"is no git repository": func(dir string) { os.RemoveAll(dir + "/.git") },
		"a worktree":           func(dir string) { os.RemoveAll(dir + "/.git"); write(t, dir, ".git", "gitdir: /x\n") },
		"extension objectformat": func(dir string) {
			git(t, dir, "config", "core.repositoryformatversion", "1")
			write(t, dir, ".git/config", "[extensions]\nobjectFormat = sha256\n")
		},
		"extension partialclone":     func(dir string) { write(t, dir, ".git/config", "[extensions]\npartialClone = origin\n") },
		"has objects of another one": func(dir string) { write(t, dir, ".git/objects/info/alternates", "/x\n") },
		"cannot be used": func(dir string) {
			os.Rename(dir+"/.git/objects", dir+"/o")
			os.Symlink("../o", dir+"/.git/objects")
		},
	} {
		t.Run(name, func(t *testing.T) {
			host, _ := hostAndInside(t)
			make(host)
			root, err := os.Open(host)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if _, err := Open(root, host); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestCheckBranchAsGitDoes(t *testing.T) {
	for _, name := range []string{"a", "a/b", "a.b", "agent/fix-1", "ü", "-a", "", "@", "a@", "a@{b", "HEAD", "a..b", ".a", "a/.b", "a.lock", "a.lock/b", "a/", "/a", "a//b", "a b", "a~", "a^", "a:b", "a?", "a*", "a[", `a\b`, "a.", "a\x01", "a\x7f", "refs/heads/x"} {
		err := exec.Command("git", "check-ref-format", "--branch", name).Run()
		if ours := CheckBranch(name); (ours == nil) != (err == nil) && !(name == "HEAD" || name == "@") {
			t.Errorf("%q: %v, and git says %v", name, ours, err)
		}
	}
	for _, name := range []string{"a\u202eb", "a\u200bb", "HEAD"} {
		if CheckBranch(name) == nil {
			t.Errorf("%q is taken", name)
		}
	}
}

// memory are objects that a test made.
type memory map[ID][]byte

func (m memory) Open(id ID) (io.ReadCloser, error) {
	b, ok := m[id]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}
