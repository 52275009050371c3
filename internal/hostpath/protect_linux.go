// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

func newKinds(entries []fs.DirEntry) kindsOf {
	kinds := kindsOf{}
	for _, e := range entries {
		kinds[e.Name()] = e.Type()
	}
	return kinds
}

func (k kindsOf) has(name string) bool { _, ok := k[name]; return ok }

func (k kindsOf) is(name string, kind ...fs.FileMode) bool {
	is, ok := k[name]
	return ok && slices.Contains(kind, is)
}

// repository says whether git takes the directory dir for a repository's own: .git, a
// bare repository, what a .git file leads to. The file system is asked, which may take
// head for HEAD.
func (k kindsOf) repository(dir int) bool {
	return k.hasHead() && isRepository(func(name string) (mode uint32, ok bool) {
		var st unix.Stat_t
		err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		return st.Mode, err == nil
	})
}

// hasHead says whether a file system may take one of the names for HEAD.
func (k kindsOf) hasHead() bool {
	if k.has("HEAD") {
		return true
	}
	for name := range k {
		if IsHead(name) {
			return true
		}
	}
	return false
}

// isRepository is repository by what a directory has under a name. Git follows links
// there. Of objects and refs it asks only whether it may execute them: an executable file
// is enough.
func isRepository(has func(name string) (mode uint32, ok bool)) bool {
	file := func(name string) bool {
		mode, ok := has(name)
		kind := mode & unix.S_IFMT
		return ok && (kind == unix.S_IFREG || kind == unix.S_IFLNK)
	}
	enough := func(name string) bool {
		mode, ok := has(name)
		return ok && (mode&unix.S_IFMT == unix.S_IFDIR || mode&unix.S_IFMT == unix.S_IFLNK || mode&0o111 != 0)
	}
	return file("HEAD") && (enough("objects") && enough("refs") || file("commondir"))
}

// protect notes what in one directory has to be kept, existing or not, and
// returns what holds for the directories in it.
func (s *scan) protect(fd int, rel string, kinds kindsOf, z zone) (zone, error) {
	if !s.o.GitWrite && (kinds.repository(fd) || z.top && strings.Contains(s.root.Real+"/", "/.git/")) {
		if z.top {
			return z, &sandbox.Error{Op: "guard " + printable(s.root.Name), Kind: sandbox.ErrUnsupported, Problem: "it is a repository's own directory, or lies in one, and git on the host runs what is in it",
				Hint: "mount it :cow or :ro, or let code write in it with --git rw", Rule: "built-in: " + ruleRuns}
		}
		return s.keepRepository(rel, z), s.configured(rel, rel)
	}
	switch {
	case s.o.GitWrite && kinds.repository(fd):
		return s.openRepository(rel, kinds, z)
	case z.git:
		return z, nil
	}
	anchor := z.top || kinds.has(".git")
	if !anchor {
		return z, nil
	}
	if !z.dependencies {
		if err := s.keep(rel, kinds, protectedNames, true); err != nil {
			return z, err
		}
	}
	// A .git that is a file leads to the repository: who writes it chooses one.
	if kinds.has(".git") && !kinds.is(".git", fs.ModeDir) || z.top && !kinds.has(".git") && !s.o.GitWrite {
		if err := s.keep(rel, kinds, []protected{noGit}, true); err != nil {
			return z, err
		}
		if kinds.is(".git", 0) {
			here := path.Join(s.root.Real, rel)
			if err := s.linked(path.Join(here, ".git"), here); err != nil {
				return z, err
			}
		}
	}
	if z.top {
		if err := s.above(); err != nil {
			return z, err
		}
	}
	if z.top && !s.o.GitWrite && !repositoryIn(fd, ".git") {
		i := slices.IndexFunc(bareNames, func(p protected) bool { return !kinds.has(p.name) })
		if i < 0 {
			// They all exist, in kinds that make no repository now.
			return z, s.keep(rel, kinds, bareNames, true)
		}
		return z, s.keep(rel, kinds, bareNames[i:i+1], true)
	}
	return z, nil
}

// keepRepository keeps a repository's own directory as a whole.
func (s *scan) keepRepository(rel string, z zone) zone {
	s.add(Match{Rel: rel, Dir: true, Do: Keep, Why: whyRepository})
	z.kept, z.git = true, true
	return z
}

// openRepository keeps what git runs or reads of a repository that code may write in.
// objects and refs stay where they are: without one of them git takes the directory
// for none, and looks around it. HEAD is replaced by each switch; see [Baseline.Look].
func (s *scan) openRepository(rel string, kinds kindsOf, z zone) (zone, error) {
	inGit := z.git
	z.git = true
	do := Pin
	if rel == "." {
		do = Watch
	}
	s.add(Match{Rel: rel, Dir: true, Do: do, Why: "it is a repository", kinds: kinds})
	if err := s.keep(rel, kinds, gitNames, !inGit || !kinds.has("commondir")); err != nil {
		return z, err
	}
	for name, kind := range kinds {
		at := path.Join(rel, name)
		switch known, _ := gitEntry(name); {
		case name == "objects" || name == "refs":
			if kind != fs.ModeDir {
				return z, s.unguarded(at, "it is no directory, so it cannot be kept from being replaced ("+whyRepository+")")
			}
			s.add(Match{Rel: at, Dir: true, Do: Pin, Why: "without it git looks for another repository"})
		case known == gitUnfinished:
			s.add(Match{Rel: at, Dir: kind == fs.ModeDir, Do: Watch, Why: whyUnfinished})
		case known == gitUnknown && kind != fs.ModeSymlink && (rel != "." || kind != fs.ModeDir):
			s.add(Match{Rel: at, Dir: kind == fs.ModeDir, Do: Keep, Why: whyUnknown})
		}
	}
	return z, s.configured(rel, rel)
}

// repositoryIn says whether git takes the directory called name for a
// repository, or the file of that name for the way to one. An empty .git, such
// as another sandbox's placeholder, is none: git looks further then.
func repositoryIn(dir int, name string) bool {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	return st.Mode&unix.S_IFMT != unix.S_IFDIR || unix.Faccessat(dir, name+"/HEAD", unix.F_OK, 0) == nil
}

// keep notes those names in a directory that exist and, with absent, those that
// shall not come into being.
func (s *scan) keep(rel string, kinds kindsOf, names []protected, absent bool) error {
	for _, p := range names {
		at := path.Join(rel, p.name)
		if s.deny.match(at) != "" {
			// What is hidden is a mountpoint as well; what is denied and does
			// not exist is kept from coming into being.
			if kind, ok := kinds[p.name]; ok && kind != fs.ModeSymlink {
				continue
			}
		}
		kind, ok := kinds[p.name]
		switch {
		case ok && kind == fs.ModeSymlink:
			return s.unguarded(at, "it is a symbolic link, which cannot be kept from being replaced ("+p.why+")")
		case ok:
			s.add(Match{Rel: at, Dir: kind == fs.ModeDir, Do: Keep, Why: p.why})
		case absent && p.missing:
			s.add(Match{Rel: at, Dir: p.dir, Do: Keep, Why: p.why, Absent: true, Text: p.text})
		}
	}
	return nil
}
