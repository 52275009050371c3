// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// Baseline is what was known of a tree before a sandbox could write to it.
type Baseline struct {
	root         *Source
	placeholders *Placeholders
	kept         map[string]bool    // mounted over itself: as it was
	hidden       map[id]bool        // masked: as it was, wherever it is now
	watched      map[string]string  // its print, by path
	awaited      map[string]string  // what was missing → why it is told of when it is there
	everywhere   []namedEverywhere  // what is run in new repositories, too
	repositories map[string]kindsOf // those that code may write in, with their names

	// For tests; 0 is the usual.
	maxEntries int
	maxTime    time.Duration
}

// Remember notes what Scan found, and what of it is to be compared by Look. p is what
// makes placeholders in the tree; nil is none. root must stay open until Look is done.
func Remember(root *Source, p *Placeholders, ms []Match) *Baseline {
	b := &Baseline{root: root, placeholders: p, kept: map[string]bool{}, hidden: map[id]bool{}, watched: map[string]string{}, awaited: map[string]string{}, repositories: map[string]kindsOf{}}
	for _, m := range ms {
		b.everywhere = append(b.everywhere, m.everywhere...)
		switch m.Do {
		case Keep:
			b.kept[m.Rel] = true
		case Hide:
			if o, err := b.object(m.Rel); err == nil {
				b.hidden[o] = true
			}
		case Watch:
			switch {
			case m.missing:
				b.awaited[m.Rel] = m.Why
			case m.kinds == nil:
				b.watched[m.Rel] = b.print(m.Rel)
			}
		}
		if m.kinds != nil {
			b.repositories[m.Rel] = m.kinds
		}
	}
	return b
}

// object is what has a path in the tree now.
func (b *Baseline) object(rel string) (id, error) {
	var st unix.Stat_t
	fd, err := openPath(int(b.root.File.Fd()), path.Dir(rel), beneath)
	if err != nil {
		return id{}, err
	}
	defer unix.Close(fd)
	err = unix.Fstatat(fd, path.Base(rel), &st, unix.AT_SYMLINK_NOFOLLOW)
	return id{st.Dev, st.Ino}, err
}

// print stands for something and all that is in it: names, objects, sizes and times
// of change, which code cannot set. It is empty for what cannot be compared.
func (b *Baseline) print(rel string) string {
	p := newPrint()
	if p.add(int(b.root.File.Fd()), rel, rel, 0) != nil {
		return ""
	}
	return p.sum()
}

// Look looks through the tree after the sandbox has ended, for what is new or not as
// it was and may run something on the host. Nothing in the tree is trusted: no link is
// followed, nothing but regular files is opened, and all is bounded. What could not be
// looked at is a Finding. They are in the order of the walk.
func (b *Baseline) Look(ctx context.Context) []Finding {
	maximum, within := maxLookEntries, maxLookTime
	if b.maxEntries > 0 {
		maximum = b.maxEntries
	}
	if b.maxTime != 0 {
		within = b.maxTime
	}
	l := &look{b: b, ctx: ctx, left: maximum, until: time.Now().Add(within)}
	fd, err := openDir(int(b.root.File.Fd()), ".")
	if err == nil {
		err = l.walk(fd, ".", 0)
	}
	if err != nil {
		l.unseen(".", err)
	}
	return l.findings
}

// look is one walk.
type look struct {
	b        *Baseline
	ctx      context.Context
	left     int // entries that may still be read
	until    time.Time
	findings []Finding
}

// errUnseen ends the walk: the rest is not looked at.
type errUnseen string

func (e errUnseen) Error() string { return string(e) }

func (l *look) add(rel, problem string) error {
	if len(l.findings) >= maxFindings {
		return errUnseen(fmt.Sprintf("there are more than %d findings, the rest was not looked at", maxFindings))
	}
	l.findings = append(l.findings, Finding{Rel: rel, Problem: problem})
	return nil
}

// unseen says what was not looked at, and why.
func (l *look) unseen(rel string, err error) {
	var end errUnseen
	if !errors.As(err, &end) {
		err = fmt.Errorf("it could not be looked at: %w", err)
	}
	l.findings = append(l.findings, Finding{Rel: rel, Problem: err.Error()})
}

// names reads the names in an open directory.
func (l *look) names(d io.Closer, read func(int) ([]fs.DirEntry, error)) ([]fs.DirEntry, error) {
	var all []fs.DirEntry
	for {
		some, err := read(lookChunk)
		all = append(all, some...)
		l.left -= len(some)
		switch {
		case l.left < 0:
			return nil, errUnseen("it holds too many files to look at all of them; the rest was not looked at")
		case time.Now().After(l.until):
			return nil, errUnseen("there was no time left to look at all of it; the rest was not looked at")
		case l.ctx.Err() != nil:
			return nil, errUnseen("the caller did not wait for all of it to be looked at; the rest was not looked at")
		case errors.Is(err, io.EOF):
			slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
			return all, nil
		case err != nil:
			return nil, err
		}
	}
}

// directory reads the names in an open directory, and what they are. Of one that cannot
// be read, which it adds, there is neither.
func (l *look) directory(f *os.File, rel string) ([]fs.DirEntry, kindsOf, error) {
	entries, err := l.names(f, f.ReadDir)
	var end errUnseen
	switch {
	case errors.As(err, &end):
		return nil, nil, err
	case err != nil:
		return nil, nil, l.add(rel, "it cannot be read, so what is in it is unknown")
	}
	return entries, newKinds(entries), nil
}

// open opens a directory in another one; not ok is one that is gone, or that was
// as unreadable before.
func (l *look) open(dir int, name, rel string) (fd int, ok bool, err error) {
	fd, err = openDir(dir, name)
	switch {
	case err == nil:
		return fd, true, nil
	case missing(err) || errors.Is(err, unix.ELOOP):
		return -1, false, nil
	}
	if before, ok := l.b.watched[rel]; ok && before != "" && before == l.b.print(rel) {
		return -1, false, nil
	}
	return -1, false, l.add(rel, "it cannot be read, so what is in it is unknown")
}

// walk looks through the directory fd, which it closes.
func (l *look) walk(fd int, rel string, depth int) error {
	f := dirFile(fd)
	defer f.Close()
	entries, kinds, err := l.directory(f, rel)
	if kinds == nil {
		return err
	}
	dir := int(f.Fd())
	before, known := l.b.repositories[rel]
	if known || kinds.repository(dir) {
		if err := l.gitDir(dir, rel, entries, before); err != nil {
			return err
		}
		if known && rel != "." {
			return nil
		}
	}
	for _, e := range entries {
		if err := l.entry(dir, path.Join(rel, e.Name()), e, depth); err != nil {
			return err
		}
	}
	return nil
}

// entry looks at one thing in the directory dir.
func (l *look) entry(dir int, rel string, e fs.DirEntry, depth int) error {
	if l.b.kept[rel] || l.hidden(dir, e) {
		return nil
	}
	if why, ok := l.b.awaited[rel]; ok && !e.IsDir() {
		if err := l.add(rel, "it is new, and "+why); err != nil {
			return err
		}
	}
	// A directory that only some file systems take for .git is walked like any other; the
	// walk knows a repository by what is in it.
	if e.Name() == ".git" || IsGit(e.Name()) && !e.IsDir() {
		return l.dotGit(dir, rel, e)
	}
	if p, ok := protectedName(rel); ok {
		return l.name(dir, rel, e, p)
	}
	if !e.IsDir() {
		return nil
	}
	if depth >= maxLookDepth {
		return l.add(rel, fmt.Sprintf("it lies more than %d directories deep, and was not looked at", maxLookDepth))
	}
	fd, ok, err := l.open(dir, e.Name(), rel)
	if !ok {
		return err
	}
	return l.walk(fd, rel, depth+1)
}

// hidden says whether code saw something empty in the place of it.
func (l *look) hidden(dir int, e fs.DirEntry) bool {
	var st unix.Stat_t
	return len(l.b.hidden) > 0 && unix.Fstatat(dir, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) == nil && l.b.hidden[id{st.Dev, st.Ino}]
}

// name looks at something by whose name a program runs it.
func (l *look) name(dir int, rel string, e fs.DirEntry, p protected) error {
	if before, ok := l.b.watched[rel]; ok {
		if before != "" && before == l.b.print(rel) {
			return nil
		}
		return l.add(rel, "it was changed, and "+p.why)
	}
	if l.b.placeholders.made(dir, e.Name()) {
		return nil
	}
	return l.add(rel, "it is new, and "+p.why)
}

// dotGit looks at a .git that is not kept.
func (l *look) dotGit(dir int, rel string, e fs.DirEntry) error {
	switch {
	case e.Type() == fs.ModeSymlink:
		return l.add(rel, "it is a link to a repository")
	case e.IsDir():
		if l.b.placeholders.made(dir, e.Name()) {
			return nil
		}
		fd, ok, err := l.open(dir, e.Name(), rel)
		if !ok {
			return err
		}
		return l.gitDirAt(fd, rel)
	case e.Type() != 0:
		return nil
	}
	text, err := readSmall(dir, e.Name(), maxPath)
	if missing(err) {
		return nil
	}
	if err != nil {
		return l.add(rel, "where it leads is unknown: "+err.Error())
	}
	target, ok := strings.CutPrefix(string(text), "gitdir: ")
	target = strings.TrimRight(target, "\r\n")
	if !ok || target == "" {
		return nil // git takes it for no repository, and goes no further
	}
	at := path.Join(path.Dir(rel), target)
	switch {
	case path.IsAbs(target) || at == ".." || strings.HasPrefix(at, "../"):
		return l.add(rel, "it leads to a repository outside: "+printable(target))
	case target != path.Clean(target) || strings.ContainsFunc(target, unicode.IsControl):
		// The kernel may come elsewhere: through a link before "..", or to what is before a NUL.
		return l.add(rel, "where it leads is unknown: "+printable(target))
	}
	kept, known := l.known(at)
	module := strings.Contains("/"+at, "/.git/modules/")
	switch _, as := l.b.repositories[at]; {
	case module && (kept || as):
		return nil // its configuration, which was kept, says where it is checked out
	case kept || known && !module:
		return l.add(rel, "it has the repository "+printable(at)+" take what its configuration names from another directory")
	}
	fd, err := openAt(int(l.b.root.File.Fd()), at, unix.O_RDONLY|unix.O_DIRECTORY, beneath)
	switch {
	case missing(err):
		return nil
	case err != nil:
		return l.add(rel, "where it leads is unknown: "+err.Error())
	}
	return errors.Join(l.gitDirAt(fd, at), l.newTree(path.Dir(rel)))
}

// known says whether a path was, or lies in, something that was kept, or a repository.
func (l *look) known(at string) (kept, repository bool) {
	for ; ; at = path.Dir(at) {
		_, is := l.b.repositories[at]
		kept, repository = kept || l.b.kept[at], repository || is
		if at == "." {
			return kept, repository
		}
	}
}

// gitDirAt looks at the directory fd, which it closes, if git takes it for a
// repository, or took it for one before. git init makes one of it, with the
// configuration and the hooks that are there.
func (l *look) gitDirAt(fd int, rel string) error {
	f := dirFile(fd)
	defer f.Close()
	entries, kinds, err := l.directory(f, rel)
	if kinds == nil {
		return err
	}
	before, known := l.b.repositories[rel]
	begun := kinds.has("config") || kinds.has("config.worktree") || kinds.has("hooks") || kinds.has("commondir")
	if !known && !begun && !kinds.repository(int(f.Fd())) {
		return nil
	}
	return l.gitDir(int(f.Fd()), rel, entries, before)
}
