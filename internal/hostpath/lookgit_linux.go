// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// gitDir looks at a repository's own directory. before are its names when code was
// let in, nil for one that is new: then all in it is code's.
func (l *look) gitDir(dir int, rel string, entries []fs.DirEntry, before kindsOf) error {
	g := &gitLook{look: l, rel: rel, before: before}
	kinds := kindsOf{}
	for _, e := range entries {
		kinds[e.Name()] = e.Type()
	}
	if before == nil {
		g.config(dir, kinds)
		if err := l.newTree(treeOf(rel)); err != nil {
			return err
		}
	} else if !headIsPlain(dir) {
		g.problem("its HEAD is gone or broken: git looks for another repository around it")
	}
	for _, e := range entries {
		if err := g.entry(dir, e); err != nil {
			return err
		}
	}
	switch {
	case len(g.problems) > 0 && before == nil:
		return l.add(rel, "it is a new repository: "+strings.Join(g.problems, "; "))
	case len(g.problems) > 0:
		return l.add(rel, strings.Join(g.problems, "; "))
	case before == nil && len(l.findings) < maxFindings:
		l.findings = append(l.findings, Finding{Rel: rel, Problem: "it is a new repository, whose configuration makes git run nothing", Plain: true})
	}
	return nil
}

// treeOf is the working tree of a repository's own directory.
func treeOf(gitDir string) string {
	if IsGit(path.Base(gitDir)) {
		return path.Dir(gitDir)
	}
	return gitDir
}

// newTree looks for what the user's configuration has git run in a new working tree.
func (l *look) newTree(rel string) error {
	for _, n := range l.b.everywhere {
		at := path.Join(rel, n.target.path)
		if at == "." || !fs.ValidPath(at) || l.b.kept[at] {
			continue
		}
		fd, err := openPath(int(l.b.root.File.Fd()), at, beneath)
		if missing(err) {
			continue
		}
		if err == nil {
			unix.Close(fd)
		}
		if err := l.add(at, "it is in a new working tree, and "+n.why); err != nil {
			return err
		}
	}
	return nil
}

// gitLook is a look at one repository.
type gitLook struct {
	*look
	rel      string
	before   kindsOf
	problems []string
	more     bool
}

// maxProblems bounds what is said of one repository.
const maxProblems = 8

func (g *gitLook) problem(format string, args ...any) {
	switch {
	case len(g.problems) < maxProblems:
		g.problems = append(g.problems, fmt.Sprintf(format, args...))
	case !g.more:
		g.more = true
		g.problems = append(g.problems, "and more")
	}
}

// config looks at what a new repository makes git run.
func (g *gitLook) config(dir int, kinds kindsOf) {
	g.settings(dir)
	if kinds.has("commondir") {
		g.common(dir)
	}
	if kinds.has("hooks") {
		g.hooks(dir)
	}
}

// common looks at the repository that has the configuration of a new worktree. It need
// not be one that the walk takes for one: git does not ask whether it has a HEAD.
func (g *gitLook) common(dir int) {
	text, err := readSmall(dir, "commondir", maxPath)
	if err != nil || strings.TrimRight(string(text), "\r\n") != "../.." || path.Base(path.Dir(g.rel)) != "worktrees" {
		g.problem("its configuration is that of another one (commondir)")
		return
	}
	if _, known := g.b.repositories[path.Dir(path.Dir(g.rel))]; known {
		return // its configuration was kept
	}
	fd, err := openDir(dir, "../..")
	if err != nil {
		g.problem("the repository that it belongs to cannot be read")
		return
	}
	defer unix.Close(fd)
	g.settings(fd)
	var st unix.Stat_t
	if unix.Fstatat(fd, "hooks", &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		g.hooks(fd)
	}
	if unix.Fstatat(fd, "commondir", &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		g.problem("its configuration is that of another one (commondir)")
	}
}

// settings looks at the configuration in dir.
func (g *gitLook) settings(dir int) {
	module := g.isModule()
	for _, name := range []string{"config", "config.worktree"} {
		text, err := readSmall(dir, name, maxGitConfig)
		if missing(err) {
			continue
		}
		if err != nil {
			g.problem("its %s cannot be read: %v", name, err)
			continue
		}
		if keys := notPlain(text, module); len(keys) > 0 {
			g.problem("its %s sets %s", name, strings.Join(keys, ", "))
		}
	}
}

// isModule says whether the repository is one of a submodule's, which says itself
// where that is checked out.
func (g *gitLook) isModule() bool { return strings.Contains("/"+g.rel, "/.git/modules/") }

// hooks looks for what git would run.
func (g *gitLook) hooks(dir int) {
	fd, err := openDir(dir, "hooks")
	if err != nil {
		g.problem("its hooks cannot be read")
		return
	}
	f := dirFile(fd)
	defer f.Close()
	entries, err := g.names(f, f.ReadDir)
	if err != nil {
		g.problem("its hooks cannot be read")
		return
	}
	var live []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".sample") && len(live) < 3 {
			live = append(live, printable(e.Name()))
		}
	}
	if len(live) > 0 {
		g.problem("it has hooks: %s", strings.Join(live, ", "))
	}
}

// entry looks at one name in the repository's own directory.
func (g *gitLook) entry(dir int, e fs.DirEntry) error {
	rel := path.Join(g.rel, e.Name())
	if g.b.kept[rel] {
		return nil
	}
	if was, ok := g.b.watched[rel]; ok {
		if was == "" || was != g.b.print(rel) {
			kind, _ := gitEntry(e.Name())
			g.problem("%s was changed%s", printable(e.Name()), map[bool]string{true: ": " + whyUnfinished}[kind == gitUnfinished])
		}
		return nil
	}
	kind, plain := gitEntry(e.Name())
	known := g.before.has(e.Name())
	switch {
	case e.Type() == fs.ModeSymlink:
		if e.Name() != "HEAD" || !headIsPlain(dir) {
			g.problem("%s is a link", printable(e.Name()))
		}
		return nil
	case g.rel == "." || known && (kind == gitUnknown || kind == gitUnfinished):
		// Of a top that is bare all other names are of the work; what was known is kept.
	case kind == gitUnfinished:
		g.problem("%s is new: %s", printable(e.Name()), whyUnfinished)
	case !plain && !g.b.placeholders.made(dir, e.Name()):
		g.problem("%s is new: %s", printable(e.Name()), whyUnknown)
	}
	if !e.IsDir() || g.rel == "." && kind == gitUnknown {
		return nil
	}
	switch e.Name() {
	case "modules", "worktrees":
		fd, ok, err := g.open(dir, e.Name(), rel)
		if !ok {
			return err
		}
		return g.further(fd, rel, 0)
	case "hooks", "objects":
		return nil // hooks: kept, or looked at; objects: named by their contents
	}
	fd, ok, err := g.open(dir, e.Name(), rel)
	if !ok {
		return err
	}
	return g.links(fd, rel, 0)
}

// further looks at the repositories of submodules and worktrees. It closes fd.
func (g *gitLook) further(fd int, rel string, depth int) error {
	f := dirFile(fd)
	defer f.Close()
	entries, err := g.names(f, f.ReadDir)
	if err != nil {
		return err
	}
	if depth > maxLookDepth {
		return g.add(rel, "it lies too deep, and was not looked at")
	}
	kinds := kindsOf{}
	for _, e := range entries {
		kinds[e.Name()] = e.Type()
	}
	before, known := g.b.repositories[rel]
	if known || kinds.repository(int(f.Fd())) {
		return g.gitDir(int(f.Fd()), rel, entries, before)
	}
	for _, e := range entries {
		at := path.Join(rel, e.Name())
		switch {
		case e.Type() == fs.ModeSymlink:
			g.problem("%s is a link", printable(at))
		case e.IsDir() && !g.b.kept[at]:
			sub, ok, err := g.open(int(f.Fd()), e.Name(), at)
			if err != nil {
				return err
			}
			if ok {
				if err := g.further(sub, at, depth+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// links looks for links in what git writes to: they lead git out of the repository,
// as a log of refs that is appended to does. It closes fd.
func (g *gitLook) links(fd int, rel string, depth int) error {
	f := dirFile(fd)
	defer f.Close()
	entries, err := g.names(f, f.ReadDir)
	var end errUnseen
	switch {
	case errors.As(err, &end):
		return err
	case err != nil || depth > maxLookDepth:
		g.problem("%s cannot be read", printable(rel))
		return nil
	}
	for _, e := range entries {
		at := path.Join(rel, e.Name())
		if was, ok := g.b.watched[at]; ok && was != "" && was == g.b.print(at) || g.b.kept[at] {
			continue
		}
		switch {
		case e.Type() == fs.ModeSymlink:
			g.problem("%s is a link", printable(at))
		case e.IsDir():
			sub, ok, err := g.open(int(f.Fd()), e.Name(), at)
			if err != nil {
				return err
			}
			if ok {
				if err := g.links(sub, at, depth+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// headIsPlain says whether git takes HEAD for one: a ref, an object, or the link that
// older versions made.
func headIsPlain(dir int) bool {
	buf := make([]byte, maxPath)
	if n, err := unix.Readlinkat(dir, "HEAD", buf); err == nil {
		return strings.HasPrefix(string(buf[:n]), "refs/")
	}
	text, err := readSmall(dir, "HEAD", maxPath)
	if err != nil {
		return false
	}
	s := strings.TrimRight(string(text), " \t\r\n")
	if ref, ok := strings.CutPrefix(s, "ref:"); ok {
		return strings.HasPrefix(strings.TrimLeft(ref, " \t"), "refs/")
	}
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
