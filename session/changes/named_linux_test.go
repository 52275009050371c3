// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the host's git runs or reads because a configuration names it is held back: of the
// repository that the workspace is, of one that it is a part of, of one in it, and of the
// user's in each.
func TestHeldByGitConfig(t *testing.T) {
	const config = "[core]\n\thooksPath = tools/run\n\tfsmonitor = ./Watch.sh --now\n[filter \"x\"]\n\tclean = sh scripts/clean.sh %f\n[include]\n\tpath = ../more.conf\n[alias]\n\tst = status\n"
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[core]\n\thooksPath = users/hooks\n[alias]\n\tx = !make free\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	layer := newTar().file("tools/run/pre-commit", "x", 0o644).file("tools/other", "x", 0o644).file("watch.SH", "x", 0o644).file("scripts/clean.sh", "x", 0o644).
		file("more.conf", "x", 0o644).file("included/hook", "x", 0o644).file("users/hooks/pre-push", "x", 0o644).file("status", "x", 0o644).file("free", "x", 0o644).
		file("sub/tools/run/x", "x", 0o644).file("sub/watch.sh", "x", 0o644).bytes()
	const all = "included/hook more.conf scripts/clean.sh tools/run/pre-commit users/hooks/pre-push watch.SH"
	more := object{File, "[gpg]\n\tprogram = included/hook\n", false}
	for name, c := range map[string]struct {
		host tree
		want string
	}{
		"no repository":   {tree{}, ""},
		"its own":         {tree{".git/config": {File, config, false}, "more.conf": more}, all},
		"of a sub":        {tree{"sub/.git/config": {File, config, false}}, "sub/tools/run/x sub/watch.sh"},
		"a worktree":      {tree{".git": {File, "gitdir: ../main/.git/worktrees/w\n", false}}, strings.Replace(all, "more.conf ", "", 1)}, // which lies elsewhere
		"not to be read":  {tree{".git/config": {File, "#" + strings.Repeat("x", 1<<20), false}}, "all"},
		"without targets": {tree{".git/config": {File, "[core]\n\tbare = false\n", false}}, "users/hooks/pre-push"},
	} {
		t.Run(name, func(t *testing.T) {
			host := tree{}
			for at, o := range c.host {
				host.put(at, o)
			}
			ws := newWorkspace(t, host)
			if name == "a worktree" {
				tree{"main": {Dir, "", false}, "main/.git": {Dir, "", false}, "main/.git/config": {File, config, false}, "main/more.conf": more,
					"main/.git/worktrees": {Dir, "", false}, "main/.git/worktrees/w": {Dir, "", false}, "main/.git/worktrees/w/commondir": {File, "../..\n", false}}.write(t, filepath.Dir(ws.dir))
			}
			if got := heldByGit(ws.keep(layer)); got != c.want && !(c.want == "all" && strings.Count(got, " ") == 10) {
				t.Errorf("held are %q, want %q", got, c.want)
			}
		})
	}
}

// heldByGit are the files that are held back because a configuration names them.
func heldByGit(set *Set) string {
	var held []string
	for i := range set.Entries {
		if e := &set.Entries[i]; e.Type == File && strings.Contains(strings.Join(e.Held, ";"), "git runs or reads it") {
			held = append(held, e.Path)
		}
	}
	return strings.Join(held, " ")
}

// A workspace in the middle of a repository.
func TestHeldByGitConfigAbove(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for hooks, want := range map[string]string{"ws/hooks": "hooks/pre-commit", "ws": "README hooks/pre-commit", "elsewhere": "", "../hooks": ""} {
		ws := newWorkspace(t, nil)
		tree{".git": {Dir, "", false}, ".git/config": {File, "[core]\n\thooksPath = " + hooks + "\n", false}}.write(t, filepath.Dir(ws.dir))
		if got := heldByGit(ws.keep(newTar().file("hooks/pre-commit", "x", 0o644).file("README", "x", 0o644).bytes())); got != want {
			t.Errorf("%s: held are %q, want %q", hooks, got, want)
		}
	}
}
