// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"io/fs"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// protect notes what in one directory has to be kept, existing or not, and
// returns what holds for the directories in it.
func (s *scan) protect(fd int, rel string, kinds map[string]fs.FileMode, z zone) (zone, error) {
	has := func(name string, mode fs.FileMode) bool { k, ok := kinds[name]; return ok && k == mode }
	exists := func(name string) bool { _, ok := kinds[name]; return ok }
	repository := (has("HEAD", 0) || has("HEAD", fs.ModeSymlink)) && has("objects", fs.ModeDir) && has("refs", fs.ModeDir)

	switch {
	case repository:
		if !z.git && !z.top {
			z.pins = []string{rel}
		}
		z.git = true
		return z, s.keep(rel, kinds, gitNames, z.pins, true)
	case z.git && exists("commondir") && exists("HEAD"):
		// One of .git/worktrees: config and hooks are those of the repository.
		return z, s.keep(rel, kinds, gitNames, z.pins, false)
	case path.Base(rel) == ".git" && !z.git:
		// Not a repository, and it shall not become one.
		s.add(Match{Rel: rel, Dir: true, Do: Keep, Why: noGit.why})
		z.kept = true
		return z, nil
	case z.git:
		return z, nil
	}

	anchor := z.top || exists(".git")
	if !anchor {
		return z, nil
	}
	if err := s.keep(rel, kinds, protectedNames, nil, true); err != nil {
		return z, err
	}
	// A .git that is a file leads to the repository: who writes it chooses one.
	if exists(".git") && !has(".git", fs.ModeDir) || z.top && !exists(".git") {
		if err := s.keep(rel, kinds, []protected{noGit}, nil, true); err != nil {
			return z, err
		}
	}
	if z.top && !repositoryIn(fd, ".git") {
		i := slices.IndexFunc(bareNames, func(p protected) bool { return !exists(p.name) })
		if i < 0 {
			// They all exist, in kinds that make no repository now.
			return z, s.keep(rel, kinds, bareNames, nil, true)
		}
		return z, s.keep(rel, kinds, bareNames[i:i+1], nil, true)
	}
	return z, nil
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
// shall not come into being; and the directories to pin for them.
func (s *scan) keep(rel string, kinds map[string]fs.FileMode, names []protected, pins []string, absent bool) error {
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
		default:
			continue
		}
		for _, pin := range pins {
			s.add(Match{Rel: pin, Dir: true, Do: Pin, Why: "it holds " + at})
		}
	}
	return nil
}
