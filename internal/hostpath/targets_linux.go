// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxIncludes = 10    // files that include each other, as for git
	maxIncluded = 1_000 // files that others include, for one tree
	maxModules  = 500   // submodules of one repository
)

// configured keeps what the configurations of a repository's own directory name,
// and those of its submodules and worktrees. tree is the top of its working tree.
func (s *scan) configured(gitDir, tree string) error {
	if path.Base(gitDir) == ".git" {
		tree = path.Dir(gitDir)
	}
	hash := 20
	var all []gitSetting
	for _, name := range []string{"config", "config.worktree"} {
		settings, err := s.configuredBy(path.Join(gitDir, name), tree, 0)
		if err != nil {
			return err
		}
		hash, all = hashLength(settings, hash), append(all, settings...)
		tree = s.worktreeOf(settings, gitDir, tree)
	}
	if err := s.keepEverywhere(tree); err != nil {
		return err
	}
	if err := s.worktrees(gitDir, all, hash); err != nil {
		return err
	}
	if !s.o.GitWrite { // with it code has the index
		if err := s.gitlinks(gitDir, hash, tree, s.readIndex); err != nil {
			return err
		}
	}
	if s.o.GitWrite {
		return nil // the walk comes to them
	}
	n := 0
	return s.modules(path.Join(gitDir, "modules"), &n)
}

// configuredBy keeps what one file names, which lies in the tree or has an absolute
// path. It is the operator's: code could not write to it. tree is empty where the file
// counts in all repositories.
func (s *scan) configuredBy(file, tree string, depth int) ([]gitSetting, error) {
	if depth > 0 {
		if s.included++; s.included > maxIncluded {
			return nil, s.unguarded(".", fmt.Sprintf("configurations of git for it include more than %d files, which cannot all be looked at", maxIncluded))
		}
	}
	text, err := s.readConfig(file)
	switch {
	case missing(err):
		return nil, nil
	case err != nil:
		return nil, s.unguarded(".", "what "+printable(file)+" makes git run is unknown: "+err.Error())
	}
	settings, _ := parseGitConfig(text) // git stops where it does not understand it
	return settings, s.keepTargets(settings, file, dirOf(file), s.worktreeOf(settings, dirOf(file), tree), depth)
}

// readConfig reads a file of configuration. A link outside of the tree is the
// operator's alone. Where the user may not read a file there, git runs nothing of it.
func (s *scan) readConfig(file string) ([]byte, error) {
	if !path.IsAbs(file) {
		return readSmall(int(s.root.File.Fd()), file, maxGitConfig)
	}
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, unix.ENOENT
	}
	b, err := readSmall(unix.AT_FDCWD, real, maxGitConfig)
	if errors.Is(err, unix.EACCES) || errors.Is(err, errNoFile) {
		err = unix.ENOENT
	}
	return b, err
}

// keepTargets keeps what settings name. file is where they stand, for people.
func (s *scan) keepTargets(settings []gitSetting, file, dir, tree string, depth int) error {
	for _, t := range gitTargets(settings) {
		from, why := tree, fmt.Sprintf("%s in %s names it", printable(t.setting), printable(file))
		switch {
		case t.include:
			from = dir
		case tree == "" && t.isRelative():
			s.namesEverywhere(t, why)
			continue
		}
		if err := s.keepWay(from, t, why); err != nil {
			return err
		}
		at, ok := s.locate(from, t.path)
		if !ok {
			continue
		}
		if !path.IsAbs(at) {
			if err := s.keepTarget(at, t, why); err != nil {
				return err
			}
		}
		if t.include && depth < maxIncludes {
			if _, err := s.configuredBy(included(from, t.path, at), tree, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// included is the name by which git opens a file that another one includes, which lies
// at at: what that includes itself starts from there, not from where a link leads.
func included(from, name, at string) string {
	switch name, _ = fromHome(name); {
	case path.IsAbs(name):
		return name
	case path.IsAbs(from):
		return from + "/" + name
	}
	return at
}

// dirOf is path.Dir for a path in which ".." may follow a link.
func dirOf(name string) string {
	switch i := strings.LastIndexByte(name, '/'); i {
	case -1:
		return "."
	case 0:
		return "/"
	default:
		return name[:i]
	}
}

// keepWay keeps what the path of a target leads out of again by "..".
func (s *scan) keepWay(from string, t gitTarget, why string) error {
	for _, name := range leftBehind(t.path) {
		at, ok := s.inside(from, name)
		if !ok || at == "." {
			continue
		}
		if err := s.keepTarget(at, gitTarget{dir: true, way: true, command: t.command}, why); err != nil {
			return err
		}
	}
	return nil
}

// keepTarget keeps a file or directory that a configuration names. What is missing
// shall not come into being.
func (s *scan) keepTarget(at string, t gitTarget, why string) error {
	switch {
	case at == "." && t.command:
		return nil
	case at == ".":
		return s.unguarded(".", why)
	}
	parts := strings.Split(at, "/")
	for i := range parts {
		rel := path.Join(parts[:i+1]...)
		last := i == len(parts)-1
		fd, err := openPath(int(s.root.File.Fd()), rel, beneath)
		switch {
		case missing(err) && t.command && !t.program:
			// Who makes it may have it run; it may also be a word that means something else.
			if strings.ContainsAny(t.path, "/.") {
				s.add(Match{Rel: at, Do: Watch, Why: why, missing: true})
			}
			return nil
		case missing(err):
			s.add(Match{Rel: rel, Dir: !last || t.dir, Do: Keep, Why: why, Absent: true})
			return nil
		case errors.Is(err, unix.ELOOP) && t.gitlink:
			return nil // git looks at no submodule behind a link
		case errors.Is(err, unix.ELOOP):
			return s.unguarded(rel, "it is a symbolic link, which cannot be kept from being replaced ("+why+")")
		case err != nil && t.command:
			return nil // such as a word that is longer than a name
		case err != nil:
			return s.failed(rel, err)
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		if err != nil {
			return s.failed(rel, err)
		}
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		switch {
		case last && isDir && t.way:
			s.add(Match{Rel: rel, Dir: true, Do: Pin, Why: why})
		case last && !(t.command && isDir):
			s.add(Match{Rel: rel, Dir: isDir, Do: Keep, Why: why})
		}
		if !isDir {
			return nil
		}
	}
	return nil
}
