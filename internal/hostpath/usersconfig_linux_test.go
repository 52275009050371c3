// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// What git's configuration names that belongs to no repository is kept like what a
// repository's own does, and so is such a configuration that lies in the tree.
func TestScanUsersConfig(t *testing.T) {
	in := func(names ...string) []string { return append(repo(".git"), names...) }
	for _, tt := range []struct {
		name  string
		names []string // of the tree
		home  string   // a link or a directory in the home folder
		at    string   // of the configuration in the home folder
		text  string   // TREE is the tree
		want  []string // nil: it is refused
	}{
		{"a directory of hooks", in("h/x"), "", ".gitconfig", "[core]\nhooksPath = TREE/h", []string{"keep h/"}},
		{"through a link", in("h/x"), "project->TREE", ".gitconfig", "[core]\nhooksPath = ~/project/h", []string{"keep h/"}},
		{"one that is missing", in(), "", ".gitconfig", "[core]\nhooksPath = TREE/a/h", []string{"keep a/?"}},
		{"templates of new repositories", in("t/hooks/x"), "", ".gitconfig", "[init]\ntemplateDir = TREE/t", []string{"keep t/"}},
		{"a command", in("bin/x"), "", ".config/git/config", "[core]\nfsmonitor = sh TREE/bin/x", []string{"keep bin/x", "pin bin/"}},
		{"a file that it includes", in("c"), "", ".gitconfig", "[includeIf \"gitdir:~/\"]\npath = TREE/c", []string{"keep c"}},
		{"named by a file that it includes", in("h/x"), "", ".gitconfig", "[include]\npath = ~/more\n", []string{"keep h/"}},
		{"named by one beside the link to it", in("dot/c", "h/x"), ".gitconfig->TREE/dot/c", "", "", []string{"keep dot/c", "keep h/", "pin dot/"}},
		{"through a link and up", in("a/b/x", "h/x"), "project->TREE/a/b", ".gitconfig", "[core]\nhooksPath = ~/project/../../h", []string{"keep h/", "pin a/", "pin a/b/"}},
		{"of the user by name", in("h/x"), "", ".gitconfig", "[core]\nhooksPath = ~ME/h", []string{"keep h/"}},
		{"a link into the tree", in("dot/git"), ".gitconfig->TREE/dot/git", "", "", []string{"keep dot/git", "pin dot/"}},
		{"a link to what is missing in the tree", in("dot/x"), ".gitconfig->TREE/dot/git", "", "", []string{"keep dot/git?", "pin dot/"}},
		{"in every repository", in("x"), "", ".gitconfig", "[core]\nhooksPath = h", []string{"keep h/?"}},
		{"without a repository", []string{"h/x"}, "", ".gitconfig", "[core]\nhooksPath = h", []string{}},
		{"words of an alias", in("main", "s/x"), "", ".gitconfig", "[alias]\na = log main\nb = !sh s/x", []string{"keep s/x", "pin s/"}},
		{"a link in the tree", in("dot->../x"), ".gitconfig->TREE/dot", "", "", nil},
		{"the tree itself", in(), "", ".gitconfig", "[core]\nhooksPath = TREE", nil},
		{"too big", in(), "", ".gitconfig", "#" + strings.Repeat("x", maxGitConfig), nil},
		{"over and over", in(), "", ".gitconfig", strings.Repeat("[include]\npath = ~/.gitconfig\n", 4), nil},
		{"around in a circle", in("h/x"), "", ".gitconfig", "[include]\npath = ~/.gitconfig\n[core]\nhooksPath = TREE/h", []string{"keep h/"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src, home := workspace(t, tt.names...), workspace(t).Real
			me, err := user.Current()
			must(t, err)
			down, err := filepath.Rel(me.HomeDir, src.Real)
			must(t, err)
			here := strings.NewReplacer("TREE", src.Real, "ME", me.Username+"/"+down)
			for name, value := range map[string]string{"HOME": home, "XDG_CONFIG_HOME": "", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": ""} {
				t.Setenv(name, value)
			}
			if slices.Contains(tt.names, "dot/c") {
				put(t, src.Real, "dot/c=[include]\npath = more\n")
			}
			must(t, os.WriteFile(filepath.Join(home, "more"), []byte("[core]\nhooksPath = "+src.Real+"/h"), 0o644))
			if tt.home != "" {
				grow(t, home, here.Replace(tt.home))
			}
			if tt.at != "" {
				grow(t, home, tt.at)
				must(t, os.WriteFile(filepath.Join(home, tt.at), []byte(here.Replace(tt.text)), 0o644))
			}
			ms, err := Scan(t.Context(), src, ScanOptions{Protect: true})
			if tt.want == nil {
				if !errors.Is(err, sandbox.ErrUnsupported) {
					t.Errorf("got %q, %v", brief(ms), err)
				}
				return
			}
			must(t, err)
			if tt.names[0] == ".git/HEAD" {
				tt.want = append(tt.want, "keep .git/")
			} else {
				tt.want = append(tt.want, "keep .git/?", "keep HEAD?")
			}
			wantMatches(t, ms, absent(tt.want...))
		})
	}
}

// The environment names files as well.
func TestScanUsersConfigOfTheEnvironment(t *testing.T) {
	for _, name := range []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "XDG_CONFIG_HOME"} {
		src, dir := workspace(t, repo(".git")...), workspace(t, "git/config").Real
		file := filepath.Join(dir, "git/config")
		must(t, os.WriteFile(file, []byte("[core]\nhooksPath = "+src.Real+"/h"), 0o644))
		value := file
		if name == "XDG_CONFIG_HOME" {
			value = dir
		}
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			ms, err := Scan(t.Context(), src, ScanOptions{Protect: true})
			must(t, err)
			wantMatches(t, ms, absent("keep .git/", "keep h/?"))
		})
	}
}

// It has settings, too.
func TestScanSettingsOfTheEnvironment(t *testing.T) {
	for _, tt := range []struct {
		variables []string
		want      string
	}{
		{[]string{"GIT_EXTERNAL_DIFF=TREE/bin/diff"}, "keep bin/diff"},
		{[]string{"GIT_SSH_COMMAND=bin/diff -v"}, "keep bin/diff"},
		{[]string{"GIT_TEMPLATE_DIR=TREE/bin"}, "keep bin/"},
		{[]string{"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=user.name", "GIT_CONFIG_VALUE_0=x", "GIT_CONFIG_KEY_1=core.hooksPath", "GIT_CONFIG_VALUE_1=bin"}, "keep bin/"},
		{[]string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=filter.a.b.Clean", "GIT_CONFIG_VALUE_0=sh bin/diff"}, "keep bin/diff"},
		{[]string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=include.path", "GIT_CONFIG_VALUE_0=TREE/bin/diff"}, "keep bin/diff"},
	} {
		name, _, _ := strings.Cut(tt.variables[0], "=") // a "=" in the tree's path is not understood
		t.Run(name, func(t *testing.T) {
			src := workspace(t, append(repo(".git"), "bin/diff")...)
			for _, v := range tt.variables {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, strings.ReplaceAll(value, "TREE", src.Real))
			}
			ms, err := Scan(t.Context(), src, ScanOptions{Protect: true})
			must(t, err)
			if !slices.Contains(brief(ms), tt.want) {
				t.Errorf("no %q in %q", tt.want, brief(ms))
			}
		})
	}
}
