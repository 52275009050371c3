// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// worktrees keeps what the configuration of a repository names in further working
// trees of it, and what their indexes do.
func (s *scan) worktrees(gitDir string, settings []gitSetting, hash int) error {
	dir := path.Join(gitDir, "worktrees")
	f, entries, err := s.directory(dir)
	if f == nil {
		return err
	}
	defer f.Close()
	for i, e := range entries {
		if i >= maxModules {
			return s.unguarded(dir, fmt.Sprintf("it holds more than %d worktrees, which cannot all be looked at", maxModules))
		}
		at := path.Join(dir, e.Name())
		text, err := readSmall(int(f.Fd()), path.Join(e.Name(), "gitdir"), maxPath)
		if err != nil {
			continue
		}
		tree, ok := s.inside(at, path.Dir(strings.TrimSpace(string(text))))
		if !ok {
			continue
		}
		err = errors.Join(s.keepTargets(settings, path.Join(gitDir, "config"), gitDir, tree, maxIncludes), s.keepEverywhere(tree))
		if err != nil {
			return err
		}
		if s.o.GitWrite {
			continue
		}
		if err := s.gitlinks(at, hash, tree, s.readIndex); err != nil {
			return err
		}
	}
	return nil
}

// modules are the submodules of a repository that is kept as a whole: where they are
// checked out, each by its own configuration.
func (s *scan) modules(dir string, n *int) error {
	f, entries, err := s.directory(dir)
	if f == nil {
		return err
	}
	defer f.Close()
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if *n++; *n > maxModules {
			return s.unguarded(dir, fmt.Sprintf("it holds more than %d directories, which cannot all be looked at", maxModules))
		}
		at := path.Join(dir, e.Name())
		if unix.Faccessat(int(f.Fd()), e.Name()+"/HEAD", unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil {
			if err := s.configured(at, at); err != nil {
				return err
			}
			continue
		}
		if err := s.modules(at, n); err != nil { // a submodule's name may have slashes
			return err
		}
	}
	return nil
}

// directory reads a directory of a repository, in a fixed order; nil is one that it has
// not.
func (s *scan) directory(rel string) (*os.File, []fs.DirEntry, error) {
	fd, err := openAt(int(s.root.File.Fd()), rel, unix.O_RDONLY|unix.O_DIRECTORY, beneath)
	if err != nil {
		return nil, nil, nil
	}
	f := dirFile(fd)
	entries, err := readDir(f)
	if err != nil {
		f.Close()
		return nil, nil, s.failed(rel, err)
	}
	return f, entries, nil
}

// linked keeps what a repository names that a .git file at the top leads to, and that
// lies outside of the tree. tree is the directory that the file is in, on the host. A
// worktree is followed whose back pointer names this .git, a submodule whose
// core.worktree names this directory, and what lies in the tree. A .git file that leads
// elsewhere is not followed: code may have written it to have that looked at.
func (s *scan) linked(file, tree string) error {
	text, err := readSmall(unix.AT_FDCWD, file, maxPath)
	if err != nil {
		return nil // a link (which is refused), nothing
	}
	target, ok := gitFile(text)
	if !ok {
		return nil
	}
	target = absoluteFrom(tree, target)
	if _, inside := s.inside(".", target); !inside && !s.leadsBack(target, file, tree) {
		return nil
	}
	common := target
	if up, err := readSmall(unix.AT_FDCWD, path.Join(target, "commondir"), maxPath); err == nil {
		common = absoluteFrom(target, strings.TrimSpace(string(up)))
	}
	return s.named(target, common, tree)
}

// leadsBack says whether a repository's own directory says itself that file leads to it.
func (s *scan) leadsBack(gitDir, file, tree string) bool {
	back, err := readSmall(unix.AT_FDCWD, path.Join(gitDir, "gitdir"), maxPath)
	if err != nil {
		return s.worktreeIs(gitDir, tree)
	}
	// A relative one starts from the directory that it stands in.
	return absoluteFrom(gitDir, strings.TrimSpace(string(back))) == file
}

// worktreeIs says whether the configuration of a repository names dir as its
// working tree.
func (s *scan) worktreeIs(gitDir, dir string) bool {
	text, err := readSmall(unix.AT_FDCWD, path.Join(gitDir, "config"), maxGitConfig)
	if err != nil {
		return false
	}
	settings, _ := parseGitConfig(text)
	for _, set := range settings {
		if set.name() == "core.worktree" && absoluteFrom(gitDir, set.value) == dir {
			return true
		}
	}
	return false
}

// gitFile is where a .git file leads.
func gitFile(text []byte) (string, bool) {
	target, ok := strings.CutPrefix(string(text), "gitdir:")
	target = strings.Trim(target, " \t\r\n")
	return target, ok && target != "" && !strings.ContainsAny(target, "\n\x00")
}

// above keeps what the repository names that the tree is a part of: its configuration
// and its index may name files and directories below the tree's top.
func (s *scan) above() error {
	for dir := path.Dir(s.root.Real); ; dir = path.Dir(dir) {
		git := path.Join(dir, ".git")
		if real, err := filepath.EvalSymlinks(git); err == nil {
			git = real // a link outside of the tree is the operator's alone
		}
		var st unix.Stat_t
		if unix.Lstat(git, &st) == nil {
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFDIR:
				if err := s.named(git, git, dir); err != nil {
					return err
				}
			case unix.S_IFREG:
				if err := s.linked(git, dir); err != nil {
					return err
				}
			}
		}
		if dir == "/" {
			return nil
		}
	}
}

// named keeps what a repository names in the tree. Its own directory is gitDir, its
// configuration lies in common, and tree is the top of its working tree. All three are
// absolute.
func (s *scan) named(gitDir, common, tree string) error {
	hash := 20
	for _, file := range []string{path.Join(common, "config"), path.Join(gitDir, "config.worktree")} {
		settings, err := s.configuredBy(file, tree, 0)
		if err != nil {
			return err
		}
		hash = hashLength(settings, hash)
	}
	if err := s.keepEverywhere(tree); err != nil {
		return err
	}
	if _, inside := s.inside(".", gitDir); inside && s.o.GitWrite {
		return nil // code has the index
	}
	return s.gitlinks(gitDir, hash, tree, func(name string) ([]byte, error) { return readSmall(unix.AT_FDCWD, name, maxGitIndex) })
}

// worktreeOf is the top of the working tree that settings name, else tree.
func (s *scan) worktreeOf(settings []gitSetting, gitDir, tree string) string {
	for _, set := range settings {
		if set.name() == "core.worktree" {
			if at, ok := s.inside(gitDir, set.value); ok {
				tree = at
			}
		}
	}
	return tree
}
