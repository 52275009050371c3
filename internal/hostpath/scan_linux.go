// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	maxEntries = 200_000 // files and directories of one tree
	maxDepth   = 200     // directories inside each other; each holds a descriptor while it is walked
)

// Scan walks an opened tree and returns what must be mounted over, in the
// order in which it must be. Links are not followed, but what a denied link
// leads to inside the tree is denied as well, and so are other names (hard
// links) of a denied file.
//
// It returns ErrInvalid for a malformed glob, and ErrUnsupported when the tree
// cannot be guarded: more than 200 000 files, more than 2000 matches, or a
// symbolic link where something has to be kept, which cannot be mounted over. It
// returns ErrDenied for a source in which an input cannot be kept as it is.
// A source that is a file has no matches.
func Scan(ctx context.Context, root *Source, o ScanOptions) ([]Match, error) {
	deny, err := parseDeny(o.Deny)
	if err != nil {
		return nil, err
	}
	if o.maxEntries == 0 {
		o.maxEntries = maxEntries
	}
	s := &scan{ctx: ctx, root: root, o: o, deny: deny, denied: map[id]string{}}
	if err := s.keepInputs(); err != nil || !root.Dir {
		return nil, err
	}
	fd, err := openDir(int(root.File.Fd()), ".")
	if err != nil {
		return nil, s.failed(".", err)
	}
	if o.Protect {
		if err := s.configuredByUser(); err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	if err := s.walk(fd, ".", zone{top: true}); err != nil {
		return nil, err
	}
	if len(s.denied) > 0 {
		if err := s.otherNames(); err != nil {
			return nil, err
		}
	}
	ms := settle(pinAbove(s.matches))
	if len(ms) > 0 {
		ms[0].everywhere = s.everywhere
	}
	if len(ms) > maxMatches {
		return nil, s.unguarded(".", fmt.Sprintf("%d paths in it would have to be guarded, more than %d", len(ms), maxMatches))
	}
	return ms, nil
}

// Below opens (O_PATH) what a Match names, through no link: what is to be
// mounted over itself. The caller closes it.
func (s *Source) Below(rel string) (*os.File, error) {
	fd, err := openPath(int(s.File.Fd()), rel, beneath)
	if err != nil {
		return nil, &sandbox.Error{Op: "guard " + printable(path.Join(s.Name, rel)), Kind: sandbox.ErrConflict, Cause: err,
			Problem: "it was moved or removed while it was looked at", Hint: "stop what changes it and try again"}
	}
	return os.NewFile(uintptr(fd), path.Join(s.Real, rel)), nil
}

// scan is one walk.
type scan struct {
	ctx     context.Context
	root    *Source
	o       ScanOptions
	deny    denyList
	entries int
	matches []Match
	denied  map[id]string // objects that may have further names → why

	included   int // files of git's configuration that others include
	everywhere []namedEverywhere
}

// zone is what is known of a directory from those above it.
type zone struct {
	depth int
	top   bool
	git   bool // in a repository's own directory
	kept  bool // in what is kept: only denials count
	// dependencies is below one of dependencyDirs.
	dependencies bool
}

// openDir opens a directory for reading, never through a link.
func openDir(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// dirFile is an open directory as a file. Its name is only used when the
// filesystem does not tell kinds: then os looks at the entries one by one.
func dirFile(fd int) *os.File { return os.NewFile(uintptr(fd), fmt.Sprintf("/proc/self/fd/%d", fd)) }

// readDir reads a directory, in a fixed order.
func readDir(f *os.File) ([]fs.DirEntry, error) {
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// walk looks through the directory fd, which it closes.
func (s *scan) walk(fd int, rel string, z zone) error {
	f := dirFile(fd)
	defer f.Close()
	entries, err := readDir(f)
	if err != nil {
		return s.failed(rel, err)
	}
	if s.entries += len(entries); s.entries > s.o.maxEntries {
		return s.unguarded(rel, fmt.Sprintf("it holds more than %d files, which cannot all be looked at", s.o.maxEntries))
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	kinds := newKinds(entries)
	if s.o.Protect && !z.kept {
		if z, err = s.protect(int(f.Fd()), rel, kinds, z); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := s.entry(int(f.Fd()), path.Join(rel, e.Name()), e, z); err != nil {
			return err
		}
	}
	return nil
}

// entry looks at one thing in the directory dir.
func (s *scan) entry(dir int, rel string, e fs.DirEntry, z zone) error {
	if glob := s.deny.match(rel); glob != "" {
		return s.hide(dir, rel, e, "the glob "+glob+" denies it")
	}
	if s.o.Peers && e.Type()&(fs.ModeSocket|fs.ModeNamedPipe) != 0 {
		s.add(Match{Rel: rel, Do: Hide, Why: "it leads to a process of the host"})
		return nil
	}
	if s.o.Protect && !z.kept && !z.git {
		z.dependencies = z.dependencies || e.IsDir() && slices.Contains(dependencyDirs, e.Name())
		p, ok := protectedName(rel)
		switch {
		case e.Name() == ".git" && e.IsDir() && !s.o.GitWrite:
			z = s.keepRepository(rel, z)
			if err := s.configured(rel, path.Dir(rel)); err != nil {
				return err
			}
		case ok && (z.dependencies || e.Type() == fs.ModeSymlink):
			s.add(Match{Rel: rel, Dir: e.IsDir(), Do: Watch, Why: p.why})
			z.kept = true
		case ok:
			s.add(Match{Rel: rel, Dir: e.IsDir(), Do: Keep, Why: p.why})
			z.kept = true
		}
	}
	if s.o.Protect && z.git && !z.kept && e.Type() == fs.ModeSymlink {
		s.add(Match{Rel: rel, Do: Watch, Why: "it is a link in a repository"})
	}
	// A repository's objects have hashes for names; there are many of them.
	if !e.IsDir() || z.git && e.Name() == "objects" || z.kept && len(s.deny) == 0 && !s.o.Peers {
		return nil
	}
	z.top = false
	if z.depth++; z.depth > maxDepth {
		return s.unguarded(rel, fmt.Sprintf("directories lie more than %d deep in it", maxDepth))
	}
	fd, err := openDir(dir, e.Name())
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil // gone
	case errors.Is(err, unix.EACCES) && (len(s.deny) > 0 || s.o.Peers):
		// Who knows a name in it may be able to open that.
		s.add(Match{Rel: rel, Dir: true, Why: "it cannot be read, so what should not be seen in it is unknown"})
		return nil
	case errors.Is(err, unix.EACCES):
		s.add(Match{Rel: rel, Dir: true, Do: Watch, Why: "it cannot be read"})
		return nil
	case err != nil:
		return s.failed(rel, err)
	}
	return s.walk(fd, rel, z)
}

// add notes a match.
func (s *scan) add(m Match) { s.matches = append(s.matches, m) }

// hide notes what a glob denies. A link needs no mask, for it holds nothing;
// what it leads to does.
func (s *scan) hide(dir int, rel string, e fs.DirEntry, why string) error {
	var st unix.Stat_t
	if e.Type() == fs.ModeSymlink {
		fd, err := openPath(int(s.root.File.Fd()), rel, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
		if err != nil {
			return nil // it leads nowhere inside the tree
		}
		defer unix.Close(fd)
		if err := unix.Fstat(fd, &st); err != nil {
			return s.failed(rel, err)
		}
		if (id{st.Dev, st.Ino}) == (id{s.root.Dev, s.root.Ino}) {
			return s.unguarded(rel, "it is denied and leads to the tree itself")
		}
		s.denied[id{st.Dev, st.Ino}] = rel + ", which leads to it, is denied"
		return nil
	}
	if err := unix.Fstatat(dir, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return s.failed(rel, err)
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if isDir || st.Nlink > 1 {
		s.denied[id{st.Dev, st.Ino}] = "it is another name of " + rel + ", which is denied"
	}
	s.add(Match{Rel: rel, Dir: isDir, Why: why})
	return nil
}

// otherNames walks again for further names of denied objects: hard links of
// files, bind mounts of directories.
func (s *scan) otherNames() error {
	masked := map[string]bool{}
	for _, m := range s.matches {
		masked[m.Rel] = m.Do == Hide
	}
	var walk func(fd int, rel string) error
	walk = func(fd int, rel string) error {
		f := dirFile(fd)
		defer f.Close()
		entries, err := readDir(f)
		if err != nil {
			return s.failed(rel, err)
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		for _, e := range entries {
			at := path.Join(rel, e.Name())
			var st unix.Stat_t
			if masked[at] || unix.Fstatat(int(f.Fd()), e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
			if why, ok := s.denied[id{st.Dev, st.Ino}]; ok {
				s.add(Match{Rel: at, Dir: isDir, Why: why})
				continue
			}
			if !isDir {
				continue
			}
			if sub, err := openDir(int(f.Fd()), e.Name()); err == nil {
				if err := walk(sub, at); err != nil {
					return err
				}
			}
		}
		return nil
	}
	fd, err := openDir(int(s.root.File.Fd()), ".")
	if err != nil {
		return s.failed(".", err)
	}
	return walk(fd, ".")
}

// failed is the error for what could not be looked at.
func (s *scan) failed(rel string, err error) error {
	return &sandbox.Error{Op: "scan " + printable(s.root.Name), Kind: sandbox.ErrUnavailable, Cause: err,
		Problem: printable(rel) + " cannot be looked at", Hint: "check its permissions, or name a smaller directory"}
}

// unguarded is the error for a tree that cannot be shown as asked.
func (s *scan) unguarded(rel, problem string) error {
	what := printable(s.root.Name)
	if rel != "." {
		problem = printable(rel) + ": " + problem
	}
	hint := "name a smaller directory"
	if s.o.Protect {
		hint += ", or mount it :cow or :ro, which needs no guarding"
	}
	if len(s.deny) > 0 {
		hint += ", or drop files.deny"
	}
	return &sandbox.Error{Op: "guard " + what, Kind: sandbox.ErrUnsupported, Problem: problem, Hint: hint, Rule: "built-in: " + ruleRuns}
}
