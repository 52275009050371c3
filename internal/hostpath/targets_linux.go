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

const (
	maxIncludes = 10    // files that include each other, as for git
	maxIncluded = 1_000 // files that others include, for one tree
	maxModules  = 500   // submodules of one repository
)

var (
	errNoFile = errors.New("it is no regular file")
	errTooBig = errors.New("it is too big")
)

// readSmall reads a regular file below dir, through no link inside dir and without
// waiting. The error is unix.ENOENT when there is none.
func readSmall(dir int, name string, maximum int64) ([]byte, error) {
	resolve := uint64(unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS)
	if dir != unix.AT_FDCWD {
		resolve |= unix.RESOLVE_BENEATH
	}
	fd, err := openPath(dir, name, resolve)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, errNoFile
	case st.Size > maximum:
		return nil, errTooBig
	}
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(again)
	b := make([]byte, st.Size+1)
	n := 0
	for n < len(b) {
		m, err := unix.Read(again, b[n:])
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, err
		}
		if m == 0 && err == nil {
			break
		}
		n += max(m, 0)
	}
	if n > int(st.Size) {
		return nil, errTooBig // it grows
	}
	return b[:n], nil
}

// missing says that there is no such file, or no directory for it.
func missing(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

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

func (s *scan) readIndex(name string) ([]byte, error) {
	return readSmall(int(s.root.File.Fd()), name, maxGitIndex)
}

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

// hashLength is the length of the names of a repository's objects.
func hashLength(settings []gitSetting, before int) int {
	for _, set := range settings {
		if set.name() == "extensions.objectformat" && strings.EqualFold(set.value, "sha256") {
			return 32
		}
	}
	return before
}

// gitlinks keeps repositories from coming into being where an index has a submodule
// that is not checked out: git looks into one there.
func (s *scan) gitlinks(gitDir string, hash int, tree string, read func(string) ([]byte, error)) error {
	for name, n := path.Join(gitDir, "index"), 0; name != "" && n < 2; n++ {
		b, err := read(name)
		if missing(err) || errors.Is(err, unix.EACCES) && path.IsAbs(gitDir) {
			return nil
		}
		var x *gitIndex
		if err == nil {
			x, err = parseGitIndex(b, hash)
		}
		if err != nil {
			return s.unguarded(".", "which submodules "+printable(name)+" has is unknown: "+err.Error())
		}
		for _, link := range x.gitlinks {
			at, ok := s.inside(tree, path.Join(link, ".git"))
			if !ok || path.IsAbs(link) || link == "" {
				continue
			}
			if err := s.keepTarget(at, gitTarget{dir: true, gitlink: true}, "a submodule in "+printable(name)+" names it"); err != nil {
				return err
			}
		}
		if name = ""; x.shared != "" {
			name = path.Join(gitDir, x.shared)
		}
	}
	return nil
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
