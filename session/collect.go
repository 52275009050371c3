// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/internal/newfile"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// collect takes files out. Their names and bytes were chosen by code that
// nobody trusts: each is written below the caller's directory, through handles
// that no link leads out of (os.Root), into a new file that takes its name only
// when it is whole, and has none before where the file system can: who is killed
// leaves nothing half done. Hidden files come out only where the pattern names them, so
// that "**" into a project cannot plant .git/hooks or .envrc; execute bits stay
// behind. What does not come out is said beside what came of the program, which
// has ended: code inside has a hand in both.
func (r *run) collect(ctx context.Context, client *guest.Client, w *world, res *sandbox.Result) {
	taken := map[string]string{}
	for i, wish := range r.plan.Collect {
		c := &collector{wish: wish, run: r, res: res, root: r.dests[i], taken: taken}
		if err := c.collect(ctx, client, w.cwd); err != nil {
			res.Uncollected = append(res.Uncollected, uncollected(ctx, wish, err))
		}
	}
}

// uncollected says why a wish was not carried out, or not to its end.
func uncollected(ctx context.Context, wish policy.CollectWish, err error) sandbox.Uncollected {
	u := sandbox.Uncollected{Pattern: wish.Pattern, Reason: err.Error(), Hint: sandbox.Hint(err)}
	var e *ending
	switch {
	case errors.As(context.Cause(ctx), &e):
		u.Reason, u.Hint = e.reason+" before all files had come out", "raise the limit, or collect less"
	case ctx.Err() != nil:
		u.Reason, u.Hint = "ended by the caller before all files had come out", ""
	}
	return u
}

// openDests opens where files are to go, before anything runs: code that may
// write to a directory on the way could put a link there, now or for the next
// run (CVE-2026-46406).
func (r *run) openDests() error {
	r.dests = nil
	for _, wish := range r.plan.Collect {
		root, err := r.openDest(wish.Dest)
		if err != nil {
			return (&collector{wish: wish}).failed("the directory cannot be opened", err)
		}
		r.undo.add(func(context.Context) error { return root.Close() })
		r.dests = append(r.dests, root)
	}
	return nil
}

// openDest opens one, and makes what is missing of it. Below what code may write
// to no link is followed out of that.
func (r *run) openDest(dest string) (*os.Root, error) {
	mounts := r.plan.Mounts
	if r.plan.Workspace != nil {
		mounts = append(slices.Clone(mounts), *r.plan.Workspace)
	}
	for _, m := range mounts {
		rel, err := filepath.Rel(m.Source, dest)
		if err != nil || m.Access != sandbox.ReadWrite || !filepath.IsLocal(rel) {
			continue
		}
		top, err := os.OpenRoot(m.Source)
		if err != nil {
			return nil, err
		}
		defer top.Close()
		if err := top.MkdirAll(rel, 0o755); err != nil {
			return nil, err
		}
		return top.OpenRoot(rel)
	}
	if err := os.MkdirAll(dest, 0o755); err != nil {
		return nil, err
	}
	return os.OpenRoot(dest)
}

// collector carries out one wish.
type collector struct {
	wish   policy.CollectWish
	run    *run
	res    *sandbox.Result
	root   *os.Root
	prefix string          // of names inside that does not come out
	hidden bool            // the pattern names hidden files
	from   string          // the directory inside that paths are of
	last   *saving         // the last file that was offered: it has no name yet, and may not be whole
	named  map[string]bool // those that have theirs, by paths as they were offered
	fault  error           // of the first that cannot have its own
	faults int
	taken  map[string]string // files that came out, of all wishes: paths inside by objectOf
}

func (c *collector) collect(ctx context.Context, client *guest.Client, cwd string) error {
	pattern, from := c.wish.Pattern, cwd
	if p, ok := strings.CutPrefix(pattern, "/"); ok {
		pattern, from = p, "/"
	}
	c.prefix, c.hidden, c.from, c.named = literal(pattern), namesHidden(pattern), from, map[string]bool{}
	defer c.discard()
	got, err := client.Collect(ctx, []string{pattern}, from, c.create, guest.CollectLimits{})
	if got != nil {
		kept := c.keep(got)
		err = cmp.Or(err, kept)
	}
	return err
}

// create opens a file without a name for one that is offered. That it is called says
// that the one before has arrived whole.
func (c *collector) create(f guest.File) (io.Writer, error) {
	c.settle()
	name := strings.TrimPrefix(f.Path, c.prefix)
	if !c.hidden && isHidden(name) {
		return io.Discard, nil
	}
	dir := path.Dir(name)
	if dir != "." {
		if err := c.root.MkdirAll(filepath.FromSlash(dir), 0o755); err != nil {
			return nil, c.failed("a directory for "+quoted(name)+" cannot be made", err)
		}
	}
	w, err := newfile.Begin(c.root, filepath.FromSlash(dir), 0o644)
	if err != nil {
		return nil, c.unwritten(name, err)
	}
	c.last = &saving{w, c, f.Path, name}
	return c.last, nil
}

// saving is a file that has no name yet, whose faults are said by the one that it is to
// have.
type saving struct {
	file    *newfile.File
	c       *collector
	offered string // its path
	name    string
}

func (s *saving) Write(b []byte) (int, error) {
	n, err := s.file.Write(b)
	if err != nil {
		err = s.c.unwritten(s.name, err)
	}
	return n, err
}

func (s *saving) Close() error {
	if err := s.file.Written(); err != nil {
		return s.c.unwritten(s.name, err)
	}
	return nil
}

// settle gives the last file its name. What cannot have its own does not keep the rest
// from theirs.
func (c *collector) settle() {
	last := c.last
	if last == nil {
		return
	}
	c.last = nil
	if err := c.name(last); err != nil {
		last.file.Drop()
		c.fault = cmp.Or(c.fault, err)
		c.faults++
		return
	}
	c.named[last.offered] = true
}

// keep says what came out, when all has arrived that will. The first fault is told.
func (c *collector) keep(got *guest.Collection) error {
	if n := len(got.Files); n > 0 && c.last != nil && got.Files[n-1].Path == c.last.offered {
		c.settle()
	}
	for _, f := range got.Files {
		if !c.named[f.Path] {
			continue
		}
		c.res.Files = append(c.res.Files, sandbox.File{Path: path.Join(c.from, f.Path), Size: f.Size, SHA256: f.SHA256,
			SavedAs: filepath.Join(c.wish.Dest, filepath.FromSlash(strings.TrimPrefix(f.Path, c.prefix)))})
	}
	for _, s := range got.Skipped {
		c.run.notice("not collected: " + s.Path + ": " + s.Reason)
	}
	for _, p := range got.Unmatched {
		c.run.notice("nothing was collected for " + quoted(p))
	}
	return andMore(c.fault, c.faults-1)
}

// name gives a file the name it is to have. What lay there before gives way,
// unless it came out of this sandbox, too, and was another file there: whichever stayed,
// nobody would miss the other. It is told by the file itself, as there are many ways to
// a directory.
func (c *collector) name(s *saving) error {
	to, inside := filepath.FromSlash(s.name), path.Join(c.from, s.offered)
	if old, err := c.root.Lstat(to); err == nil {
		is := objectOf(old)
		if other, ok := c.taken[is]; ok && other != inside {
			e := c.failed("that would take the place of "+quoted(other), nil)
			e.Hint = "collect them into different directories: --collect 'PATTERN:DIR'"
			return e
		}
		delete(c.taken, is)
	}
	if err := s.file.Keep(path.Base(s.name)); err != nil {
		return c.unwritten(s.name, err)
	}
	if now, err := c.root.Lstat(to); err == nil {
		c.taken[objectOf(now)] = inside
	}
	return nil
}

// andMore has the fault of one file say how many others there are.
func andMore(fault error, others int) error {
	var e *sandbox.Error
	if others > 0 && errors.As(fault, &e) {
		e.Problem = fmt.Sprintf("%s (and %d more did not come out)", e.Problem, others)
	}
	return fault
}

// discard lets go of what did not arrive whole.
func (c *collector) discard() {
	if c.last != nil {
		c.last.file.Drop()
	}
	c.last = nil
}

func (c *collector) unwritten(name string, err error) *sandbox.Error {
	return c.failed(quoted(name)+" cannot be written", err)
}

// failed is what a call of the host's system said, in words: it names temporary files,
// and nobody asked for those.
func (c *collector) failed(problem string, err error) *sandbox.Error {
	e := &sandbox.Error{Op: "collect into " + quoted(c.wish.Dest), Kind: sandbox.ErrUnavailable, Problem: problem,
		Hint: "choose another directory: --collect 'PATTERN:DIR'", Cause: err}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return e
	}
	e.Cause = errno
	switch errno {
	case syscall.ENOSPC, syscall.EDQUOT:
		e.Problem, e.Hint = problem+": the disk is full", "make room there, or "+e.Hint
	case syscall.EISDIR, syscall.EEXIST, syscall.ENOTEMPTY:
		e.Problem, e.Hint = problem+": there is a directory of that name", "move it away, or "+e.Hint
	case syscall.ENOTDIR:
		e.Problem = problem + ": a part of its path is no directory"
	case syscall.EACCES, syscall.EPERM:
		e.Problem = problem + ": you may not write there"
	case syscall.EROFS:
		e.Problem = problem + ": that file system is read-only"
	case syscall.ENAMETOOLONG:
		e.Problem = problem + ": the name is too long for that file system"
	}
	return e
}

// literal is the part of a pattern that holds no wildcard, up to its last
// slash: out/ of out/*.png. Files land without it.
func literal(pattern string) string {
	end := 0
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '/':
			end = i + 1
		case '*', '?', '\\', '[':
			return pattern[:end]
		}
	}
	return pattern[:end]
}

func isHidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}

// namesHidden says whether a component of the pattern begins with a dot, as a
// shell's would have to.
func namesHidden(pattern string) bool { return isHidden(pattern) }
