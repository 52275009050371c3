// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// looked is what Look finds after change was made in a tree, as "path: problem", with
// "plain" before what is none.
func looked(t *testing.T, o ScanOptions, names []string, change func(dir string), bound func(*Baseline)) []string {
	t.Helper()
	src := workspace(t, names...)
	p, ms := guardBy(t, filepath.Join(t.TempDir(), "p"), src, o)
	t.Cleanup(func() { p.Close() })
	b := Remember(src, p, ms)
	if bound != nil {
		bound(b)
	}
	change(src.Real)
	var out []string
	for _, f := range b.Look(t.Context()) {
		out = append(out, map[bool]string{true: "plain "}[f.Plain]+f.Rel+": "+f.Problem)
	}
	return out
}

// put writes files: "name=text".
func put(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, f := range files {
		name, text, _ := strings.Cut(f, "=")
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

// newRepository is a repository's own directory as git makes it.
func newRepository(at string, more ...string) []string {
	out := []string{"HEAD=ref: refs/heads/main\n", "config=[core]\n\tbare = false\n", "objects/pack/x=", "refs/heads/main=", "hooks/pre-commit.sample=x", "info/exclude=", "index=", "logs/HEAD="}
	for i := range out {
		out[i] = at + "/" + out[i]
	}
	for _, m := range more {
		out = append(out, at+"/"+m)
	}
	return out
}

func TestLook(t *testing.T) {
	const fsmonitor = "config=[core]\n\tfsmonitor = x\n"
	plain := func(at string) string {
		return "plain " + at + ": it is a new repository, whose configuration makes git run nothing"
	}
	for _, tt := range []struct {
		name   string
		names  []string
		change []string // files that are written, with "->" links
		want   []string
	}{
		{"nothing", append(repo(".git"), "a/.vscode/x"), nil, nil},
		{"work", repo(".git"), []string{"src/main.go=x", "Makefile=x", "AGENTS.md=x"}, nil},
		{"an agent's folder", nil, []string{"a/.roo/x=y"}, []string{"a/.roo: it is new, and an agent's own configuration: its servers"}},
		{"a file that is run", nil, []string{"opencode.json=x"}, []string{"opencode.json: it is new, and an agent's own configuration: its servers"}},
		{"in another case", nil, []string{".ROO/x=y"}, []string{".ROO: it is new, and an agent's own configuration: its servers"}},
		{"an editor's file by its ending", nil, []string{"my.code-workspace=x"}, []string{"my.code-workspace: it is new, and the editor runs its tasks and settings"}},
		{"a folder in a folder", nil, []string{"a/.config/mise/config.toml=x", "mise/x=y", ".config/x=y"}, []string{"a/.config/mise: it is new, and mise runs what it names on entering the directory"}},
		{"a .git by its short name", nil, append(newRepository("a/git~1"), "a/git~1/"+fsmonitor, "GIT~1=gitdir: ../x\n"), []string{"GIT~1: it leads to a repository outside: ../x", "a/git~1: it is a new repository: its config sets core.fsmonitor"}},
		{"with an invisible letter", nil, []string{".g\u200cit=gitdir: /x\n"}, []string{".g\u200cit: it leads to a repository outside: /x"}},
		{"in what is no repository", nil, []string{"git~1/.roo/x=y"}, []string{"git~1/.roo: it is new, and an agent's own configuration: its servers"}},
		{"a link by the name", nil, []string{"a/.vscode->x"}, []string{"a/.vscode: it is new, and the editor runs its tasks and settings"}},
		{"a repository", nil, newRepository("sub/.git"), []string{plain("sub/.git")}},
		{"one with a program", nil, newRepository("sub/.git", fsmonitor), []string{"sub/.git: it is a new repository: its config sets core.fsmonitor"}},
		{"in another file", nil, newRepository("sub/.git", "config.worktree=[alias]\nx=y\n"), []string{"sub/.git: it is a new repository: its config.worktree sets alias.x"}},
		{"elsewhere", nil, newRepository("sub/.git", "commondir=../x\n"), []string{"sub/.git: it is a new repository: its configuration is that of another one (commondir)"}},
		{"of executable files", nil, []string{"sub/.git/HEAD=ref: refs/heads/main\n", "sub/.git/objects!", "sub/.git/refs!", "sub/.git/" + fsmonitor},
			[]string{"sub/.git: it is a new repository: its config sets core.fsmonitor"}},
		{"a worktree of what has no HEAD", nil, []string{"x/objects/o=", "x/refs/r=", "x/" + fsmonitor, "x/worktrees/y/HEAD=ref: refs/heads/main\n", "x/worktrees/y/commondir=../..\n"},
			[]string{"x/worktrees/y: it is a new repository: its config sets core.fsmonitor"}},
		{"a way with a NUL", nil, append(newRepository("d/.git"), "s/.git=gitdir: ../d/.git/objects\x00x\n"), []string{plain("d/.git"), `s/.git: where it leads is unknown: "../d/.git/objects\x00x"`}},
		{"a way with a line feed", nil, []string{"s/.git=gitdir: a\nb\n"}, []string{`s/.git: where it leads is unknown: "a\nb"`}},
		{"a way through a link", nil, []string{"s/ln->../d/x", "s/.git=gitdir: ln/../e\n"}, []string{"s/.git: where it leads is unknown: ln/../e"}},
		{"another tree of the own one", repo(".git"), []string{"s/.git=gitdir: ../.git\n"}, []string{"s/.git: it has the repository .git take what its configuration names from another directory"}},
		{"with hooks", nil, newRepository("sub/.git", "hooks/post-checkout=x"), []string{"sub/.git: it is a new repository: it has hooks: post-checkout"}},
		{"with hooks in another case", nil, newRepository("sub/.git", "HOOKS/post-checkout=x"), []string{"sub/.git: it is a new repository: HOOKS is new: caisson does not know which program reads it in .git"}},
		{"begun", nil, []string{"sub/.git/hooks/post-checkout=x", "s/.git/" + fsmonitor}, []string{"s/.git: it is a new repository: its config sets core.fsmonitor", "sub/.git: it is a new repository: it has hooks: post-checkout"}},
		{"with a rebase", nil, newRepository("sub/.git", "rebase-merge/git-rebase-todo=exec x"),
			[]string{"sub/.git: it is a new repository: rebase-merge is new: git rebase --continue runs what its to-do list says"}},
		{"with what nobody knows", nil, newRepository("sub/.git", "sl/config=x"), []string{"sub/.git: it is a new repository: sl is new: caisson does not know which program reads it in .git"}},
		{"with a log elsewhere", nil, newRepository("sub/.git", "logs/refs/heads/x->/root/.bashrc"), []string{"sub/.git: it is a new repository: sub/.git/logs/refs/heads/x is a link"}},
		{"with a submodule", nil, append(newRepository("sub/.git"), newRepository("sub/.git/modules/a/b", fsmonitor)...),
			[]string{"sub/.git/modules/a/b: it is a new repository: its config sets core.fsmonitor", plain("sub/.git")}},
		{"with a submodule that is plain", nil, append(newRepository("sub/.git"), newRepository("sub/.git/modules/a", "config=[core]\nworktree = ../../../a\n")...),
			[]string{plain("sub/.git/modules/a"), plain("sub/.git")}},
		{"a bare one", nil, newRepository("sub", fsmonitor), []string{"sub: it is a new repository: its config sets core.fsmonitor"}},
		{"a bare one with links", nil, []string{"sub/HEAD=ref: refs/x", "sub/objects->o", "sub/refs->r", "sub/" + fsmonitor},
			[]string{"sub: it is a new repository: its config sets core.fsmonitor; objects is a link; refs is a link"}},
		{"a bare one beside a .git", repo(".git"), newRepository(".", fsmonitor), []string{".: it is a new repository: its config sets core.fsmonitor"}},
		{"an empty .git", nil, []string{"sub/.git/x="}, nil},
		{"a link", nil, []string{"sub/.git->../other"}, []string{"sub/.git: it is a link to a repository"}},
		{"a file that leads out", nil, []string{"sub/.git=gitdir: /elsewhere"}, []string{"sub/.git: it leads to a repository outside: /elsewhere"}},
		{"a file that leads up", nil, []string{"sub/.git=gitdir: ../../x"}, []string{"sub/.git: it leads to a repository outside: ../../x"}},
		{"a file that leads to another", nil, append(newRepository("store", fsmonitor), "sub/.git=gitdir: ../store\n"),
			[]string{"store: it is a new repository: its config sets core.fsmonitor", "store: it is a new repository: its config sets core.fsmonitor"}},
		{"a file that leads to what was there", append(repo(".git"), repo(".git/modules/m")...), []string{"sub/.git=gitdir: ../.git/modules/m"}, nil},
		{"a file that is none", nil, []string{"sub/.git=x"}, nil},
		{"packages made anew", []string{"node_modules/p/.vscode/tasks.json"}, []string{"node_modules/p/.vscode/tasks.json=y"}, []string{"node_modules/p/.vscode: it was changed, and the editor runs its tasks and settings"}},
		{"packages as they were", []string{"node_modules/p/.vscode/tasks.json"}, []string{"node_modules/p/index.js=y"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := looked(t, ScanOptions{Protect: true}, tt.names, func(dir string) { change(t, dir, tt.change) }, nil)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func change(t *testing.T, dir string, files []string) {
	t.Helper()
	for _, f := range files {
		if name, target, ok := strings.Cut(f, "->"); ok && !strings.Contains(name, "=") {
			grow(t, dir, name+"->"+target)
			continue
		}
		if name, ok := strings.CutSuffix(f, "!"); ok {
			put(t, dir, name+"=")
			must(t, os.Chmod(filepath.Join(dir, name), 0o755))
			continue
		}
		put(t, dir, f)
	}
}

// What code may do with a repository that is open to it, and what is told of it.
func TestLookGitWrite(t *testing.T) {
	start := append(repo(".git"), ".git/index")
	for _, tt := range []struct {
		name   string
		names  []string
		change []string
		remove string
		want   []string
	}{
		{"a commit", nil, []string{".git/HEAD=ref: refs/heads/new\n", ".git/index=x", ".git/objects/ab/cd=x", ".git/COMMIT_EDITMSG=x", ".git/logs/HEAD=x", ".git/refs/heads/new=x", ".git/packed-refs=x"}, "", nil},
		{"detached", nil, []string{".git/HEAD=" + strings.Repeat("0123456789", 4) + "\n"}, "", nil},
		{"without HEAD", nil, []string{".git/x.lock="}, ".git/HEAD", []string{".git: its HEAD is gone or broken: git looks for another repository around it; x.lock is new: " + whyUnknown}},
		{"a broken HEAD", nil, []string{".git/HEAD=x"}, "", []string{".git: its HEAD is gone or broken: git looks for another repository around it"}},
		{"a rebase", nil, []string{".git/rebase-merge/git-rebase-todo=exec x"}, "", []string{".git: rebase-merge is new: " + whyUnfinished}},
		{"a rebase that went on", []string{".git/rebase-merge/git-rebase-todo"}, []string{".git/rebase-merge/git-rebase-todo=exec x"}, "", []string{".git: rebase-merge was changed: " + whyUnfinished}},
		{"a rebase that was", []string{".git/rebase-merge/git-rebase-todo"}, nil, "", nil},
		{"another program's", nil, []string{".git/sl/config=x"}, "", []string{".git: sl is new: " + whyUnknown}},
		{"a log elsewhere", nil, []string{".git/logs->/root"}, "", []string{".git: logs is a link"}},
		{"a submodule", nil, newRepository(".git/modules/m", "config=[core]\nworktree=../../../m\nfsmonitor=x\n"), "", []string{".git/modules/m: it is a new repository: its config sets core.fsmonitor"}},
		{"a worktree", nil, []string{".git/worktrees/w/HEAD=ref: refs/heads/w", ".git/worktrees/w/commondir=../..\n", ".git/worktrees/w/gitdir=x"}, "",
			[]string{"plain .git/worktrees/w: it is a new repository, whose configuration makes git run nothing"}},
		{"a worktree of another", nil, []string{".git/worktrees/w/HEAD=ref: refs/heads/w", ".git/worktrees/w/commondir=../../../x\n"}, "",
			[]string{".git/worktrees/w: it is a new repository: its configuration is that of another one (commondir)"}},
		{"a worktree in a worktree", nil, []string{".git/worktrees/w/config=[core]\nfsmonitor=x\n", ".git/worktrees/w/worktrees/v/HEAD=ref: refs/heads/w", ".git/worktrees/w/worktrees/v/commondir=../..\n"}, "",
			[]string{".git/worktrees/w/worktrees/v: it is a new repository: its config sets core.fsmonitor"}},
		{"one among the objects", nil, append(newRepository(".git/objects/e", "config=[core]\nfsmonitor=x\n"), "s/.git=gitdir: ../.git/objects/e\n"), "",
			[]string{"s/.git: it has the repository .git/objects/e take what its configuration names from another directory"}},
		{"one among a submodule's objects", nil, append(newRepository(".git/modules/m/objects/e", "config=[core]\nfsmonitor=x\n"), "s/.git=gitdir: ../.git/modules/m/objects/e\n"), "",
			[]string{".git/modules/m/objects/e: it is a new repository: its config sets core.fsmonitor", ".git/modules/m/objects/e: it is a new repository: its config sets core.fsmonitor"}},
		{"a repository that a gitlink leads to", nil, newRepository("lib/.git", "config=[core]\nfsmonitor=x\n"), "", []string{"lib/.git: it is a new repository: its config sets core.fsmonitor"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := looked(t, ScanOptions{Protect: true, GitWrite: true}, append(slices.Clone(start), tt.names...), func(dir string) {
				put(t, dir, ".git/HEAD=ref: refs/heads/main\n")
				if tt.remove != "" {
					must(t, os.Remove(filepath.Join(dir, tt.remove)))
				}
				change(t, dir, tt.change)
			}, nil)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What was not reached is told, and nothing that code leaves there makes it wait.
func TestLookIsBounded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(dir string)
		bound  func(*Baseline)
		want   string
	}{
		{"files", func(dir string) { change(t, dir, []string{"a=", "b=", "c="}) }, func(b *Baseline) { b.maxEntries = 2 }, ".: it holds too many files to look at all of them; the rest was not looked at"},
		{"time", func(string) {}, func(b *Baseline) { b.maxTime = -time.Second }, ".: there was no time left to look at all of it; the rest was not looked at"},
		{"depth", func(dir string) { grow(t, dir, strings.Repeat("d/", maxLookDepth+1)+".roo/x") }, nil, "and was not looked at"},
		{"findings", func(dir string) {
			for i := range maxFindings + 1 {
				grow(t, dir, fmt.Sprintf("d%d/.roo/x", i))
			}
		}, nil, fmt.Sprintf(".: there are more than %d findings, the rest was not looked at", maxFindings)},
		{"a big config", func(dir string) {
			put(t, dir, newRepository("a/.git", "config="+strings.Repeat("#", maxGitConfig+1))...)
		}, nil, "its config cannot be read: it is too big"},
		{"a pipe", func(dir string) {
			put(t, dir, newRepository("a/.git")...)
			must(t, os.Remove(filepath.Join(dir, "a/.git/config")))
			must(t, unix.Mkfifo(filepath.Join(dir, "a/.git/config"), 0o600))
		}, nil, "its config cannot be read: it is no regular file"},
		{"a link out", func(dir string) {
			put(t, dir, newRepository("a/.git")...)
			must(t, os.Remove(filepath.Join(dir, "a/.git/config")))
			must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "a/.git/config")))
		}, nil, "its config cannot be read: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(looked(t, ScanOptions{Protect: true}, nil, tt.change, tt.bound), "\n")
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %.500q, want %q", got, tt.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	src := workspace(t)
	if got := Remember(src, nil, nil).Look(ctx); len(got) != 1 || !strings.Contains(got[0].Problem, "the caller did not wait") {
		t.Errorf("cancelled: %v", got)
	}
}

// A directory that neither code nor other users could read is told unless it was so
// before.
func TestLookUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		must(t, asNobody(t, "TestLookUnreadable"))
		return
	}
	got := looked(t, ScanOptions{Protect: true}, []string{"old/x", "new/x"}, func(dir string) {
		must(t, os.Chmod(filepath.Join(dir, "new"), 0))
		t.Cleanup(func() { os.Chmod(filepath.Join(dir, "new"), 0o755) })
	}, nil)
	if diff := cmp.Diff([]string{"new: it cannot be read, so what is in it is unknown"}, got); diff != "" {
		t.Error(diff)
	}
	src := workspace(t, "old/x")
	must(t, os.Chmod(filepath.Join(src.Real, "old"), 0))
	defer os.Chmod(filepath.Join(src.Real, "old"), 0o755)
	ms, err := Scan(t.Context(), src, ScanOptions{Protect: true})
	must(t, err)
	if got := Remember(src, nil, ms).Look(t.Context()); len(got) > 0 {
		t.Errorf("as it was: %v", got)
	}
}

// What was hidden from code is not told, wherever code has moved it.
func TestLookHidden(t *testing.T) {
	o := ScanOptions{Protect: true, Deny: []string{"secret/**"}}
	names := []string{"a/x", "secret/.vscode/tasks.json", "secret/x"}
	if got := looked(t, o, names, func(dir string) {}, nil); len(got) > 0 {
		t.Errorf("%q", got)
	}
	got := looked(t, ScanOptions{Protect: true, Deny: []string{"a/secret/**"}}, []string{"a/secret/.vscode/x"}, func(dir string) {
		must(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")))
		grow(t, dir, "a/secret/.vscode/tasks.json")
	}, nil)
	if diff := cmp.Diff([]string{"a/secret/.vscode: it is new, and the editor runs its tasks and settings"}, got); diff != "" {
		t.Error(diff)
	}
}

// Another sandbox's placeholders are not the program's work.
func TestLookBesideAnother(t *testing.T) {
	state, src := filepath.Join(t.TempDir(), "p"), workspace(t, "a")
	p, ms := guardBy(t, state, src, ScanOptions{Protect: true})
	defer p.Close()
	b := Remember(src, p, ms)
	grow(t, src.Real, repo("sub/.git")...)
	q, _ := guardBy(t, state, src, ScanOptions{Protect: true})
	defer q.Close()
	var rels []string
	for _, f := range b.Look(t.Context()) {
		rels = append(rels, f.Rel)
	}
	if diff := cmp.Diff([]string{"sub/.git"}, rels); diff != "" {
		t.Error(diff)
	}
}

// What git itself does is plain: clones, worktrees, submodules, commits.
func TestLookAtWhatGitMakes(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	var dir string
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(git, append([]string{"-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always", "-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	src := workspace(t, "a")
	dir = src.Real
	run("init", "-q")
	run("add", "a")
	run("commit", "-qm", "one")
	p, ms := guardBy(t, filepath.Join(t.TempDir(), "p"), src, ScanOptions{Protect: true, GitWrite: true})
	defer p.Close()
	b := Remember(src, p, ms)
	run("switch", "-qc", "new")
	run("commit", "-q", "--allow-empty", "-m", "two")
	run("clone", "-q", ".", "clone")
	run("init", "-q", "init")
	run("init", "-q", "--bare", "bare")
	run("stash")
	run("tag", "v1")
	run("gc", "-q")
	for _, f := range b.Look(t.Context()) {
		if !f.Plain {
			t.Errorf("%s: %s", f.Rel, f.Problem)
		}
	}
}

// FuzzLook puts a file where a repository has something that Look reads.
func FuzzLook(f *testing.F) {
	f.Add("config", []byte("[core]\n\tfsmonitor = x\n"))
	f.Add("HEAD", []byte("ref: refs/heads/x"))
	f.Add("commondir", []byte("../.."))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		name = filepath.Base(name)
		if strings.ContainsRune(name, 0) || name == "/" || name == "." || name == ".." || len(name) > 100 {
			return
		}
		src := workspace(t)
		b := Remember(src, nil, nil)
		put(t, src.Real, newRepository("sub/.git")...)
		at := filepath.Join(src.Real, "sub/.git", name)
		if err := os.WriteFile(at, text, 0o644); err != nil {
			return // a directory
		}
		got := b.Look(t.Context())
		if len(got) != 1 {
			t.Fatalf("%d findings of one repository", len(got))
		}
		if _, known := gitEntry(name); !known && got[0].Plain {
			t.Errorf("%q is new in .git, and plain", name)
		}
	})
}

// A file is told that was missing and that a configuration names where a program may be.
func TestLookAtWhatCommandsName(t *testing.T) {
	src := workspace(t, append(repo(".git"), "b")...)
	put(t, src.Real, ".git/config=[filter \"x\"]\nclean = python3 clean.py --out a/b origin/main\n[alias]\nst = status test\n")
	p, ms := guardBy(t, filepath.Join(t.TempDir(), "p"), src, ScanOptions{Protect: true})
	t.Cleanup(func() { p.Close() })
	b := Remember(src, p, ms)
	put(t, src.Real, "clean.py=x", "test=x", "src/clean.py=x", "a/b/c=x")
	want := []Finding{{Rel: "clean.py", Problem: "it is new, and filter.x.clean in .git/config names it"}}
	if diff := cmp.Diff(want, b.Look(t.Context())); diff != "" {
		t.Error(diff)
	}
}

// In a new repository git runs what the user's configuration names from the top of each.
func TestLookAtWhatTheUserHasGitRun(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("GIT_CONFIG_GLOBAL", "")
	put(t, home, ".gitconfig=[core]\nhooksPath = tools/hooks\n[alias]\nx = log origin/main\n")
	const why = ": it is in a new working tree, and core.hookspath in "
	got := looked(t, ScanOptions{Protect: true}, append(repo(".git"), "tools/hooks/x"), func(dir string) {
		change(t, dir, append(newRepository("a/.git"), "a/tools/hooks/pre-commit=x"))
		change(t, dir, append(newRepository("b"), "b/tools->x", "c/.git=gitdir: ../b\n", "c/tools/hooks/pre-commit=x", "d/tools/hooks/pre-commit=x"))
	}, nil)
	plain := func(at string) string {
		return "plain " + at + ": it is a new repository, whose configuration makes git run nothing"
	}
	names := "/.gitconfig names it"
	want := []string{
		"a/tools/hooks" + why + home + names, plain("a/.git"), "b/tools/hooks" + why + home + names, "b: it is a new repository: tools is a link",
		"b/tools/hooks" + why + home + names, "b: it is a new repository: tools is a link", "c/tools/hooks" + why + home + names,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What git takes for a repository is the file system's to say.
func TestIsRepository(t *testing.T) {
	names := map[string]uint32{"head": unix.S_IFREG, "Objects": unix.S_IFDIR, "refs": unix.S_IFDIR}
	exact := func(name string) (uint32, bool) { mode, ok := names[name]; return mode, ok }
	folding := func(name string) (uint32, bool) {
		for is, mode := range names {
			if strings.EqualFold(is, name) {
				return mode, true
			}
		}
		return 0, false
	}
	if isRepository(exact) || !isRepository(folding) || !(kindsOf{"head": 0}).hasHead() {
		t.Error("the case of letters counts where it does not, or does not where it does")
	}
}
