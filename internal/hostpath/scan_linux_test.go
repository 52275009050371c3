// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"errors"
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
	"pgregory.net/rapid"

	"github.com/caisson-run/caisson/sandbox"
)

// workspace makes files and directories ("dir/"), links ("a->b") and hard links
// ("a=>b") below a new directory, and opens it.
func workspace(t testing.TB, names ...string) *Source {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	grow(t, dir, names...)
	return open(t, dir)
}

func open(t testing.TB, dir string) *Source {
	t.Helper()
	src, err := Open(dir, Options{getenv: func(string) string { return "" }, passwd: "/dev/null"})
	must(t, err)
	t.Cleanup(func() { src.Close() })
	return src
}

func grow(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		name, link, isLink := strings.Cut(n, "->")
		name, hard, isHard := strings.Cut(name, "=>")
		at := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		switch {
		case isLink:
			must(t, os.Symlink(link, at))
		case isHard:
			must(t, os.Link(filepath.Join(dir, hard), at))
		case strings.HasSuffix(name, "/"):
			must(t, os.MkdirAll(at, 0o755))
		default:
			must(t, os.WriteFile(at, []byte("text"), 0o644))
		}
	}
}

// repo is the names of a repository's own directory.
func repo(at string) []string {
	return []string{at + "/HEAD", at + "/objects/", at + "/refs/", at + "/config", at + "/hooks/"}
}

// brief writes matches as "keep .git/config" and, for what is absent, "keep .envrc?".
func brief(ms []Match) (out []string) {
	for _, m := range ms {
		s := m.Do.String() + " " + m.Rel
		if m.Dir {
			s += "/"
		}
		if m.Absent {
			s += "?"
		}
		out = append(out, s)
	}
	return out
}

func TestScanDeny(t *testing.T) {
	tests := []struct {
		name  string
		names []string
		deny  []string
		want  []string
	}{
		{"nothing denied", []string{".env"}, nil, nil},
		{"any depth", []string{".env", "a/b/.env", "a/env"}, []string{"**/.env"}, []string{"hide .env", "hide a/b/.env"}},
		{"without a slash means any depth", []string{"x.pem", "a/y.pem", "a/y.pem.txt"}, []string{"*.pem"}, []string{"hide a/y.pem", "hide x.pem"}},
		{"with a slash begins at the top", []string{"secrets/a", "a/secrets/b"}, []string{"/secrets"}, []string{"hide a/secrets/", "hide secrets/"}},
		{"two parts begin at the top", []string{"a/key", "b/a/key"}, []string{"a/key"}, []string{"hide a/key"}},
		{"a whole directory, once", []string{"secrets/a/b", "secrets/c"}, []string{"secrets/**"}, []string{"hide secrets/"}},
		{"case does not matter", []string{".ENV", "a/.Env", "ſecret", "Kelvin"}, []string{".env", "SECRET", "kelvin"}, []string{"hide .ENV", "hide Kelvin", "hide a/.Env", "hide ſecret"}},
		{"hard link", []string{".env", "a/copy=>.env", "b/other"}, []string{".env"}, []string{"hide .env", "hide a/copy"}},
		{"link to a file in the tree", []string{"config/prod", ".env->config/prod"}, []string{".env"}, []string{"hide config/prod"}},
		{"link to a directory in the tree", []string{"real/a", "x/secrets->../real"}, []string{"secrets"}, []string{"hide real/"}},
		{"link to a hard link", []string{"config/prod", "z=>config/prod", ".env->config/prod"}, []string{".env"}, []string{"hide config/prod", "hide z"}},
		{"link that leads out or nowhere", []string{".env->/etc/passwd", "a/.env->../../../x", "b/.env->gone"}, []string{".env"}, nil},
		{"not UTF-8", []string{"a\xff/.env", ".env\xfe"}, []string{"**/.env*"}, []string{"hide .env\xfe", "hide a\xff/.env"}},
		{"alternatives and classes", []string{"a.key", "a.pem", "a.txt", "b1", "b2"}, []string{"*.{key,pem}", "b[1]"}, []string{"hide a.key", "hide a.pem", "hide b1"}},
		{"in a repository too", repo(".git"), []string{"config"}, []string{"hide .git/config"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ms, err := Scan(t.Context(), workspace(t, tt.names...), ScanOptions{Deny: tt.deny})
			must(t, err)
			if diff := cmp.Diff(tt.want, brief(ms), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestScanBadGlobs(t *testing.T) {
	src := workspace(t, "a")
	for _, g := range []string{"", "/", "[", "a[b", "{a", "a\\", "../x", "a/../b", "a//b", "./a", "x\x00", "\xff", strings.Repeat("x", 2000), strings.Repeat("**/", 9) + "x", strings.Repeat("{a,b}", 9)} {
		if _, err := Scan(t.Context(), src, ScanOptions{Deny: []string{g}}); !errors.Is(err, sandbox.ErrInvalid) || sandbox.Hint(err) == "" {
			t.Errorf("%q: got %v, want ErrInvalid with a hint", g, err)
		}
	}
}

// always are what every top without a repository gets.
func absent(more ...string) []string {
	return append([]string{"keep .claude/?", "keep .codex/?", "keep .cursor/?", "keep .envrc?", "keep .gemini/?", "keep .idea/?", "keep .mcp.json?", "keep .vscode/?"}, more...)
}

func TestScanProtect(t *testing.T) {
	sub := []string{"keep sub/.claude/?", "keep sub/.codex/?", "keep sub/.cursor/?", "keep sub/.envrc?", "keep sub/.gemini/?", "keep sub/.idea/?", "keep sub/.mcp.json?", "keep sub/.vscode/?", "pin sub/"}
	tests := []struct {
		name  string
		names []string
		want  []string
	}{
		{"empty", nil, absent("keep .git/?", "keep HEAD?")},
		{"a repository", repo(".git"), absent("keep .git/")},
		{"a .git that is no repository", []string{".git/x"}, absent("keep .git/", "keep HEAD?")},
		{"a .git that is a file", []string{".git"}, absent("keep .git")},
		{"files of a bare repository", []string{"HEAD"}, absent("keep .git/?", "keep refs?")},
		{"nearly a bare repository", []string{"HEAD", "refs/", "objects"}, absent("keep .git/?", "keep HEAD", "keep refs/", "keep objects")},
		{"existing ones at any depth", []string{"a/.vscode/tasks.json", "a/b/.envrc", "c/.MCP.json", "c/x", ".hg/hgrc"},
			absent("keep .git/?", "keep HEAD?", "keep a/.vscode/", "keep a/b/.envrc", "keep c/.MCP.json", "keep .hg/", "pin a/", "pin a/b/", "pin c/")},
		{"of packages", []string{"node_modules/p/.vscode/tasks.json", "node_modules/p/.idea->x", "node_modules/p/x"},
			absent("keep .git/?", "keep HEAD?", "watch node_modules/p/.idea", "watch node_modules/p/.vscode/")},
		{"a repository among packages", repo("node_modules/p/.git"),
			absent("keep .git/?", "keep HEAD?", "keep node_modules/p/.git/", "pin node_modules/", "pin node_modules/p/")},
		{"a link below the top", []string{"a/.vscode->x"}, absent("keep .git/?", "keep HEAD?", "watch a/.vscode")},
		{"a repository below", repo("sub/.git"), absent(append(sub, "keep .git/?", "keep HEAD?", "keep sub/.git/")...)},
		{"a spoilt repository below", []string{"sub/.git/x"}, absent(append(sub, "keep .git/?", "keep HEAD?", "keep sub/.git/")...)},
		{"a module and a worktree", append(repo(".git"), append(repo(".git/modules/m"), ".git/worktrees/w/HEAD", ".git/worktrees/w/commondir")...), absent("keep .git/")},
		{"a bare repository below", repo("mirror"), absent("keep .git/?", "keep HEAD?", "keep mirror/")},
		{"one with links", []string{"mirror/HEAD", "mirror/objects->x", "mirror/refs->x"}, absent("keep .git/?", "keep HEAD?", "keep mirror/")},
		{"what a commondir makes one", []string{"a/b/HEAD", "a/b/commondir"}, absent("keep .git/?", "keep HEAD?", "keep a/b/", "pin a/")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantScan(t, ScanOptions{Protect: true}, tt.names, tt.want) })
	}
}

func wantScan(t *testing.T, o ScanOptions, names, want []string) {
	t.Helper()
	ms, err := Scan(t.Context(), workspace(t, names...), o)
	must(t, err)
	wantMatches(t, ms, want)
}

func wantMatches(t *testing.T, ms []Match, want []string) {
	t.Helper()
	order := cmpopts.SortSlices(func(a, b string) bool { return a < b })
	if diff := cmp.Diff(want, brief(ms), order); diff != "" {
		t.Error(diff)
	}
	for i, m := range ms {
		for _, n := range ms[i+1:] {
			if strings.HasPrefix(m.Rel, n.Rel+"/") {
				t.Errorf("%s would be mounted before %s", m.Rel, n.Rel)
			}
		}
		if m.Why == "" {
			t.Errorf("%s has no reason", m.Rel)
		}
	}
}

func TestScanGitWrite(t *testing.T) {
	git := func(at string, more ...string) []string {
		return append([]string{"pin " + at + "/", "keep " + at + "/commondir?", "keep " + at + "/config", "keep " + at + "/config.worktree?", "keep " + at + "/hooks/",
			"pin " + at + "/objects/", "pin " + at + "/refs/"}, more...)
	}
	top := absent(git(".git")...)
	for _, tt := range []struct {
		name  string
		names []string
		want  []string
	}{
		{"empty: a repository may be made", nil, absent()},
		{"a repository", append(repo(".git"), ".git/index", ".git/ORIG_HEAD", ".git/info/exclude"), top},
		{"one without hooks", []string{".git/HEAD", ".git/objects/", ".git/refs/", ".git/config"},
			absent("pin .git/", "keep .git/commondir?", "keep .git/config", "keep .git/config.worktree?", "keep .git/hooks/?", "pin .git/objects/", "pin .git/refs/")},
		{"a rebase and what others keep there", append(repo(".git"), ".git/rebase-merge/done", ".git/branchless/config", ".git/x"),
			append(top, "watch .git/rebase-merge/", "keep .git/branchless/", "keep .git/x")},
		{"a .git that is a file", []string{".git"}, absent("keep .git")},
		{"a module of a repository", append(repo(".git"), repo(".git/modules/m")...), append(top, git(".git/modules/m", "pin .git/modules/")...)},
		{"a worktree of a repository", append(repo(".git"), ".git/worktrees/w/HEAD", ".git/worktrees/w/commondir", ".git/worktrees/w/gitdir"),
			append(top, "pin .git/worktrees/", "pin .git/worktrees/w/", "keep .git/worktrees/w/commondir")},
		{"a bare repository below", repo("mirror"), absent(git("mirror")...)},
		{"the top is a bare repository", repo("."), []string{"keep commondir?", "keep config", "keep config.worktree?", "keep hooks/", "pin objects/", "pin refs/", "watch ./"}},
	} {
		t.Run(tt.name, func(t *testing.T) { wantScan(t, ScanOptions{Protect: true, GitWrite: true}, tt.names, tt.want) })
	}
}

// What a repository's configuration names is kept like the configuration.
func TestScanConfigTargets(t *testing.T) {
	for _, tt := range []struct {
		name   string
		names  []string
		config string
		want   []string
	}{
		{"hooks", []string{"tools/hooks/pre-commit", "tools/x"}, "[core]\nhooksPath = tools/hooks", []string{"keep tools/hooks/", "pin tools/"}},
		{"hooks that are missing", []string{"tools/x"}, "[core]\nhooksPath = tools/hooks", []string{"keep tools/hooks/?", "pin tools/"}},
		{"all of it missing", nil, "[core]\nhooksPath = a/b/c", []string{"keep a/?"}},
		{"an absolute path", []string{"h/x"}, "[core]\nhooksPath = %s/h", []string{"keep h/"}},
		{"a program that is missing", []string{"tools/x"}, "[core]\nfsmonitor = tools/watch", []string{"keep tools/watch?", "pin tools/"}},
		{"one that a shell runs", nil, "[credential]\nhelper = !tools/watch", []string{"keep tools/?"}},
		{"one of an alias", nil, "[alias]\nx = !build/tool\ncmd = !build/tool", []string{"watch build/tool"}},
		{"below the home folder", []string{"h/x"}, "[core]\nhooksPath = ~/h", []string{"keep h/"}},
		{"below the home folder, for a shell", []string{"h/x"}, "[diff]\nexternal = \"${HOME}/%b/h/x\"", []string{"keep h/x", "pin h/"}},
		{"the same", []string{"h/x"}, "[diff]\nexternal = $HOME/%b/h/x", []string{"keep h/x", "pin h/"}},
		{"for newer versions of git", []string{"h/x"}, "[core]\nhooksPath = :(optional)h", []string{"keep h/"}},
		{"by way of a directory", []string{"a/b/x", "h/x"}, "[core]\nhooksPath = a/b/../../h", []string{"keep h/", "pin a/", "pin a/b/"}},
		{"by way of what is missing", []string{"h/x"}, "[core]\nhooksPath = a/../h", []string{"keep a/?", "keep h/"}},
		{"an argument of a command", []string{"clean.py"}, "[filter \"x\"]\nclean = python3 clean.py", []string{"keep clean.py"}},
		{"in the repository", []string{"x"}, "[core]\nhooksPath = .git/hooks", nil},
		{"outside", []string{"x"}, "[core]\nhooksPath = ../hooks\n[include]\npath = /etc/gitconfig\n[include]\npath = ~/.gitconfig", nil},
		{"a file", []string{".gitconfig"}, "[include]\npath = ../.gitconfig", []string{"keep .gitconfig"}},
		{"a missing file", nil, "[includeIf \"gitdir:x\"]\npath = ../.gitconfig", []string{"keep .gitconfig?"}},
		{"a command", []string{"bin/clean", "bin/dir/x"}, "[filter \"x\"]\nclean = sh -c 'bin/clean %%f; ls bin/dir no/such https://a/b'", []string{"keep bin/clean", "pin bin/"}},
		{"what a plain key names", []string{"a/b"}, "[remote \"o\"]\nurl = a/b\n[branch \"a/b\"]\nmerge = a/b", nil},
	} {
		for _, write := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, git write %t", tt.name, write), func(t *testing.T) {
				src := workspace(t, append(repo(".git"), tt.names...)...)
				t.Setenv("HOME", filepath.Dir(src.Real))
				config := strings.Replace(tt.config, "~/h", "~/"+filepath.Base(src.Real)+"/h", 1)
				config = strings.ReplaceAll(config, "%b", filepath.Base(src.Real))
				if strings.Contains(config, "%s") {
					config = fmt.Sprintf(config, src.Real)
				}
				must(t, os.WriteFile(filepath.Join(src.Real, ".git/config"), []byte(strings.ReplaceAll(config, "%%", "%")), 0o644))
				o := ScanOptions{Protect: true, GitWrite: write}
				ms, err := Scan(t.Context(), src, o)
				must(t, err)
				want := absent("keep .git/")
				if write {
					want = absent("pin .git/", "keep .git/commondir?", "keep .git/config", "keep .git/config.worktree?", "keep .git/hooks/", "pin .git/objects/", "pin .git/refs/")
				}
				wantMatches(t, ms, append(want, tt.want...))
			})
		}
	}
}

// The configurations of all submodules are read.
func TestScanManySubmodules(t *testing.T) {
	names := repo(".git")
	for i := range maxModules {
		names = append(names, fmt.Sprintf(".git/modules/%d/HEAD", i))
	}
	ms, err := Scan(t.Context(), workspace(t, names...), ScanOptions{Protect: true})
	must(t, err)
	wantMatches(t, ms, absent("keep .git/"))
}

// An included file includes another, and a submodule has hooks of its own.
func TestScanConfigTargetsFurther(t *testing.T) {
	src := workspace(t, append(append(repo(".git"), repo(".git/modules/a/b")...), "one", "more/two", "lib/b/hooks/x", "lib/b/.git")...)
	write := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(src.Real, name), []byte(text), 0o644))
	}
	write(".git/config", "[include]\npath = ../one")
	write("one", "[include]\npath = more/two\n[include]\npath = one")
	write("more/two", "[core]\nhooksPath = h\n")
	write(".git/modules/a/b/config", "[core]\nworktree = ../../../../lib/b\nhooksPath = hooks\n")
	write("lib/b/.git", "gitdir: ../../.git/modules/a/b\n")
	ms, err := Scan(t.Context(), src, ScanOptions{Protect: true})
	must(t, err)
	got := brief(ms)
	for _, want := range []string{"keep one", "keep more/two", "keep h/?", "keep lib/b/hooks/", "keep lib/b/.git", "pin lib/", "pin lib/b/"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

// A .git file is followed to a worktree whose back pointer names it, and to a
// submodule that names the directory; nowhere else.
func TestScanFollowsGitFiles(t *testing.T) {
	for _, tt := range []struct {
		name string
		link func(repository, tree string) (gitDir string)
		want bool
	}{
		{"a worktree", func(r, tree string) string {
			grow(t, r, "worktrees/w/HEAD")
			must(t, os.WriteFile(r+"/worktrees/w/commondir", []byte("../..\n"), 0o644))
			must(t, os.WriteFile(r+"/worktrees/w/gitdir", []byte(tree+"/.git\n"), 0o644))
			return r + "/worktrees/w"
		}, true},
		{"somebody else's worktree", func(r, tree string) string {
			grow(t, r, "worktrees/w/HEAD")
			must(t, os.WriteFile(r+"/worktrees/w/commondir", []byte("../..\n"), 0o644))
			must(t, os.WriteFile(r+"/worktrees/w/gitdir", []byte("/other/.git\n"), 0o644))
			return r + "/worktrees/w"
		}, false},
		{"a submodule", func(r, tree string) string {
			f, err := os.OpenFile(r+"/config", os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteString("worktree = " + tree + "\n")
			must(t, errors.Join(err, f.Close()))
			return r
		}, true},
		{"any repository", func(r, tree string) string { return r }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			repository, src := workspace(t, repo(".")...), workspace(t, "hooks/pre-commit")
			must(t, os.WriteFile(repository.Real+"/config", []byte("[core]\nhooksPath = hooks\n"), 0o644))
			must(t, os.WriteFile(src.Real+"/.git", []byte("gitdir: "+tt.link(repository.Real, src.Real)+"\n"), 0o644))
			ms, err := Scan(t.Context(), src, ScanOptions{Protect: true})
			must(t, err)
			if got := slices.Contains(brief(ms), "keep hooks/"); got != tt.want {
				t.Errorf("followed %t, want %t: %q", got, tt.want, brief(ms))
			}
		})
	}
}

func TestScanRefusesWhatCannotBeGuarded(t *testing.T) {
	many := func(n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("d%d/f", i))
		}
		return
	}
	for name, tt := range map[string]struct {
		names []string
		o     ScanOptions
	}{
		".git is a link":            {[]string{".git->elsewhere"}, ScanOptions{Protect: true}},
		"hooks is a link":           {append([]string{".git/hooks->../scripts"}, repo(".git")[:4]...), ScanOptions{Protect: true, GitWrite: true}},
		"refs is a link":            {[]string{".git/HEAD", ".git/objects/", ".git/config", ".git/refs->../x"}, ScanOptions{Protect: true, GitWrite: true}},
		"config is a link":          {[]string{".git/HEAD", ".git/objects/", ".git/refs/", ".git/config->../x"}, ScanOptions{Protect: true}},
		"config is a directory":     {[]string{".git/HEAD", ".git/objects/", ".git/refs/", ".git/config/"}, ScanOptions{Protect: true}},
		"the top is bare":           {repo("."), ScanOptions{Protect: true}},
		".envrc is a link":          {[]string{".envrc->x"}, ScanOptions{Protect: true}},
		".envrc is a denied link":   {[]string{".envrc->x"}, ScanOptions{Protect: true, Deny: []string{".envrc"}}},
		"too many files":            {many(10), ScanOptions{Protect: true, maxEntries: 19}},
		"too many matches":          {many(maxMatches + 1), ScanOptions{Deny: []string{"f"}}},
		"too deep":                  {[]string{strings.Repeat("d/", maxDepth+1) + "f"}, ScanOptions{Deny: []string{"x"}}},
		"a denied link to the tree": {[]string{"a/all->.."}, ScanOptions{Deny: []string{"all"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Scan(t.Context(), workspace(t, tt.names...), tt.o); !errors.Is(err, sandbox.ErrUnsupported) || sandbox.Hint(err) == "" {
				t.Errorf("got %v, want ErrUnsupported with a hint", err)
			}
		})
	}
	if _, err := Scan(t.Context(), workspace(t, many(10)...), ScanOptions{Protect: true, maxEntries: 20}); err != nil {
		t.Errorf("as many files as may be: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Scan(ctx, workspace(t, "a"), ScanOptions{Deny: []string{"x"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

// TestScanStaysInside puts links to directories with denied names everywhere:
// nothing outside is ever reported, however the tree looks.
func TestScanStaysInside(t *testing.T) {
	outside := workspace(t, ".env", "a/.env")
	src := workspace(t, "in->"+outside.Real, "up->..", "self->.", "a/loop->../a")
	ms, err := Scan(t.Context(), src, ScanOptions{Deny: []string{".env"}, Protect: true})
	must(t, err)
	for _, m := range ms {
		if m.Do == Hide {
			t.Errorf("%s is reported", m.Rel)
		}
	}
}

// TestScanFindsAll plants denied names in random trees and wants each to be
// hidden, by itself or by a directory above it, and nothing else.
func TestScanFindsAll(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "scan")
		must(t, err)
		defer os.RemoveAll(dir)
		part := rapid.SampledFrom([]string{"a", "b", ".Env", "x.PEM", "secret"})
		var files []string
		for _, parts := range rapid.SliceOfN(rapid.SliceOfN(part, 1, 4), 1, 12).Draw(rt, "files") {
			p := strings.Join(parts, "/")
			if os.MkdirAll(filepath.Join(dir, filepath.Dir(p)), 0o755) == nil && os.WriteFile(filepath.Join(dir, p), nil, 0o644) == nil {
				files = append(files, p)
			}
		}
		src := open(t, dir)
		defer src.Close()
		ms, err := Scan(t.Context(), src, ScanOptions{Deny: []string{"**/.env", "*.pem", "secret/**"}})
		must(t, err)
		for _, p := range files {
			denied := strings.HasPrefix(p+"/", "secret/")
			for part := range strings.SplitSeq(strings.ToLower(p), "/") {
				denied = denied || part == ".env" || strings.HasSuffix(part, ".pem")
			}
			hidden := slices.ContainsFunc(ms, func(m Match) bool { return m.Do == Hide && (m.Rel == p || m.Dir && strings.HasPrefix(p, m.Rel+"/")) })
			if denied != hidden {
				rt.Fatalf("%s: denied %t, hidden %t by %v", p, denied, hidden, brief(ms))
			}
		}
	})
}

// TestScanUnreadable hides a directory that cannot be listed but may be
// entered by who knows a name. Root reads everything, so it is not asked.
func TestScanUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		must(t, asNobody(t, "TestScanUnreadable"))
		return
	}
	src := workspace(t, "shut/.env", "open/x")
	must(t, os.Chmod(filepath.Join(src.Real, "shut"), 0o111))
	defer os.Chmod(filepath.Join(src.Real, "shut"), 0o755)
	ms, err := Scan(t.Context(), src, ScanOptions{Deny: []string{".env"}})
	must(t, err)
	if diff := cmp.Diff([]string{"hide shut/"}, brief(ms)); diff != "" {
		t.Error(diff)
	}
}

func FuzzDeny(f *testing.F) {
	for _, s := range [][2]string{{"**/.env", "a/.ENV"}, {"secrets/**", "secrets/x"}, {"*.{key,pem}", "a.key"}, {"[!a]*", "b"}, {"a\\*", "a*"}, {"{a,{b,c}}", "c"}, {"**/**/x", "a/b/x"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, glob, rel string) {
		deny, err := parseDeny([]string{glob})
		if err != nil {
			if !errors.Is(err, sandbox.ErrInvalid) {
				t.Error(err)
			}
			return
		}
		if len(rel) > 4096 {
			rel = rel[:4096]
		}
		start := time.Now()
		got := deny.match(rel)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%q on %q took %v", glob, rel, took)
		}
		if got != "" && got != glob {
			t.Errorf("%q is not the glob that was given", got)
		}
		// A plain name, denied, matches itself at every depth in every case.
		if !strings.ContainsAny(glob, `*?[]{}\/!^,`) && glob != "." && glob != ".." {
			for _, p := range []string{glob, "a/" + glob, strings.ToUpper(glob), "a/b/" + strings.ToLower(glob)} {
				if deny.match(p) == "" {
					t.Errorf("%q does not deny %q", glob, p)
				}
			}
		}
	})
}

func BenchmarkScan(b *testing.B) {
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprintf("d%d/e%d/f%d", i%10, i%100, i))
	}
	src := workspace(b, names...)
	b.ResetTimer()
	for b.Loop() {
		if _, err := Scan(b.Context(), src, ScanOptions{Deny: []string{"**/.env"}, Protect: true}); err != nil {
			b.Fatal(err)
		}
	}
}

// Who listens at a socket or reads from a pipe is found wherever they lie, and
// only when it was asked for.
func TestScanPeers(t *testing.T) {
	src := workspace(t, append(repo(".git"), "a/b/file", ".vscode/settings.json")...)
	for _, name := range []string{"top", "a/b/deep", ".git/fsmonitor", ".vscode/kept"} {
		must(t, unix.Mknod(filepath.Join(src.Real, name), unix.S_IFSOCK|0o600, 0))
	}
	must(t, unix.Mkfifo(filepath.Join(src.Real, "a/pipe"), 0o600))
	want := []string{"hide .git/fsmonitor", "hide .vscode/kept", "hide a/b/deep", "hide a/pipe", "hide top"}
	for _, tt := range []struct {
		name string
		o    ScanOptions
		want []string
	}{
		{"asked for", ScanOptions{Peers: true}, want},
		{"with what is protected", ScanOptions{Peers: true, Protect: true}, want},
		{"not asked for", ScanOptions{Protect: true}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ms, err := Scan(t.Context(), src, tt.o)
			must(t, err)
			got := slices.DeleteFunc(brief(ms), func(s string) bool { return !strings.HasPrefix(s, "hide") })
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// gitIn runs git in a directory of the test's.
func gitIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	cmd := exec.Command(git, append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v %s", args, err, out)
	}
}

const noCommit = "1111111111111111111111111111111111111111"

// Where an index has a submodule that is not checked out, code makes no repository:
// git would look into it.
func TestScanGitlinks(t *testing.T) {
	src := workspace(t, "a", "lib/one/")
	gitIn(t, src.Real, "init", "-q")
	gitIn(t, src.Real, "add", "a")
	gitIn(t, src.Real, "update-index", "--add", "--cacheinfo", "160000,"+noCommit+",lib/one", "--cacheinfo", "160000,"+noCommit+",lib/two", "--cacheinfo", "160000,"+noCommit+",link/x")
	grow(t, src.Real, "link->lib")
	want := []string{"keep .git/", "keep lib/one/.git/?", "keep lib/two/?", "pin lib/", "pin lib/one/"}
	for _, split := range []bool{false, true} {
		if split {
			gitIn(t, src.Real, "update-index", "--split-index")
		}
		ms, err := Scan(t.Context(), src, ScanOptions{Protect: true})
		must(t, err)
		wantMatches(t, ms, absent(want...))
	}
	must(t, os.WriteFile(src.Real+"/.git/index", []byte("DIRC nonsense"), 0o644))
	if _, err := Scan(t.Context(), src, ScanOptions{Protect: true}); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("an index that nobody can read: %v", err)
	}
}

// A repository above the tree names files in it, too, and so do further working trees.
func TestScanRepositoriesAround(t *testing.T) {
	top := workspace(t, "work/hooks/x", "work/tree/hooks/x")
	gitIn(t, top.Real, "init", "-q")
	gitIn(t, top.Real, "config", "core.hooksPath", "work/hooks")
	gitIn(t, top.Real, "update-index", "--add", "--cacheinfo", "160000,"+noCommit+",work/lib")
	for _, what := range []string{"a directory", "a link"} {
		ms, err := Scan(t.Context(), open(t, top.Real+"/work"), ScanOptions{Protect: true})
		must(t, err)
		for _, want := range []string{"keep hooks/", "keep lib/?"} {
			if !slices.Contains(brief(ms), want) {
				t.Errorf("no %q of the repository above, whose .git is %s, in %q", want, what, brief(ms))
			}
		}
		if what == "a directory" {
			must(t, os.Rename(top.Real+"/.git", top.Real+"/elsewhere"))
			must(t, os.Symlink("elsewhere", top.Real+"/.git"))
		}
	}

	src := workspace(t, "a")
	gitIn(t, src.Real, "init", "-q")
	gitIn(t, src.Real, "config", "core.hooksPath", "hooks")
	gitIn(t, src.Real, "add", "a")
	gitIn(t, src.Real, "commit", "-qm", "one")
	gitIn(t, src.Real, "worktree", "add", "-q", "trees/w")
	gitIn(t, src.Real+"/trees/w", "update-index", "--add", "--cacheinfo", "160000,"+noCommit+",lib")
	grow(t, src.Real, "trees/w/hooks/x")
	ms, err := Scan(t.Context(), src, ScanOptions{Protect: true})
	must(t, err)
	for _, want := range []string{"keep hooks/?", "keep trees/w/hooks/", "keep trees/w/lib/?", "keep trees/w/.git"} {
		if !slices.Contains(brief(ms), want) {
			t.Errorf("no %q of a working tree in %q", want, brief(ms))
		}
	}
}

// What a repository in the tree names is found from the working tree that its .git file
// is in: where that has a configuration of its own, where it is a submodule of another
// working tree, and where the repository lies apart.
func TestScanLinkedInside(t *testing.T) {
	src := workspace(t, append(append(repo(".git"), repo("store")...), repo(".git/worktrees/w/modules/m")...)...)
	put(t, src.Real,
		".git/worktrees/w/HEAD=ref: refs/heads/w\n", ".git/worktrees/w/commondir=../..\n", ".git/worktrees/w/gitdir="+src.Real+"/w/.git\n",
		".git/config=", ".git/worktrees/w/config.worktree=[core]\nhooksPath = h1\n", "w/h1/x=", "w/.git=gitdir: ../.git/worktrees/w\n",
		".git/worktrees/w/modules/m/config=[core]\nhooksPath = h2\nworktree = ../../../../../w/m\n", "w/m/h2/x=", "w/m/.git=gitdir: ../../.git/worktrees/w/modules/m\n",
		"store/config=[core]\nhooksPath = h3\n", "apart/h3/x=", "apart/.git=gitdir: ../store\n")
	for _, write := range []bool{false, true} {
		ms, err := Scan(t.Context(), src, ScanOptions{Protect: true, GitWrite: write})
		must(t, err)
		for _, want := range []string{"keep w/h1/", "keep w/m/h2/", "keep apart/h3/"} {
			if !slices.Contains(brief(ms), want) {
				t.Errorf("git write %t: no %q in %q", write, want, brief(ms))
			}
		}
	}
}
