// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// GitNames are the paths in an opened directory that make git run or read something, because
// the configuration of a repository, the user or the environment names them. Each has the
// setting that names it; "." is all of the directory. The repositories are those whose
// working trees dirs are, which lie in it, and those that the directory is a part of. What
// files include is read, too, and what cannot be read names all.
func GitNames(root *os.File, dirs []string) map[string]string {
	n := &namedByGit{all: map[string]string{}}
	var st unix.Stat_t
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", root.Fd()))
	if err != nil || unix.Fstat(int(root.Fd()), &st) != nil {
		n.all["."] = "a directory that cannot be looked at"
		return n.all
	}
	n.scan = &scan{root: &Source{File: root, Name: real, Real: real, Dir: true, Dev: st.Dev, Ino: st.Ino}}
	for _, dir := range dirs {
		n.repository(path.Join(real, dir))
	}
	for dir := real; dir != "/"; {
		dir = path.Dir(dir)
		n.repository(dir)
	}
	return n.all
}

// namedByGit collects them.
type namedByGit struct {
	*scan
	all map[string]string
}

// repository adds what is named where tree is the top of a working tree.
func (n *namedByGit) repository(tree string) {
	git := path.Join(tree, ".git")
	if real, err := filepath.EvalSymlinks(git); err == nil {
		git = real
	}
	var st unix.Stat_t
	if unix.Lstat(git, &st) != nil {
		return
	}
	common := git
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		text, err := readSmall(unix.AT_FDCWD, git, maxPath)
		target, ok := gitFile(text)
		if err != nil || !ok {
			return
		}
		git = absoluteFrom(tree, target)
		common = git
		if up, err := readSmall(unix.AT_FDCWD, path.Join(git, "commondir"), maxPath); err == nil {
			common = absoluteFrom(git, strings.TrimSpace(string(up)))
		}
	}
	own := namingTree{top: tree}
	n.file(path.Join(common, "config"), own, 0)
	n.file(path.Join(git, "config.worktree"), own, 0)
	all := namingTree{tree, true}
	for _, file := range usersConfigs() {
		n.file(file, all, 0)
	}
	n.settings(environmentSettings(), "/", all, 0)
}

// namingTree is the working tree that settings are read for. In those of all repositories
// words of command lines count that have a slash: see namesEverywhere.
type namingTree struct {
	top        string
	everywhere bool
}

// file adds what one file of configuration names.
func (n *namedByGit) file(name string, tree namingTree, depth int) {
	text, err := n.readConfig(name)
	switch n.included++; {
	case missing(err):
		return
	case err != nil || n.included > maxIncluded:
		n.all["."] = name
		return
	}
	settings, _ := parseGitConfig(text) // git stops where it does not understand it
	n.settings(settings, dirOf(name), tree, depth)
}

// settings adds what settings name, which stand in a file in dir.
func (n *namedByGit) settings(settings []gitSetting, dir string, tree namingTree, depth int) {
	for _, t := range gitTargets(settings) {
		from := tree.top
		if t.include {
			from = dir
		}
		if tree.everywhere && t.command && !strings.Contains(t.path, "/") {
			continue
		}
		at, ok := n.locate(from, t.path)
		inside := ok && !path.IsAbs(at)
		switch {
		case !ok || at == "." && t.command:
			continue
		case inside:
			n.all[path.Clean(at)] = t.setting
		case t.dir && strings.HasPrefix(n.root.Real+"/", strings.TrimSuffix(path.Clean(at), "/")+"/"):
			n.all["."] = t.setting // the directory of hooks has it in it
		}
		if t.include && depth < maxIncludes {
			next := included(from, t.path, at)
			if !path.IsAbs(next) {
				next = path.Join(n.root.Real, next)
			}
			n.file(next, tree, depth+1)
		}
	}
}
