// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// collectOptions say which files come out, and where they go.
type collectOptions struct {
	// Wishes are patterns, each with its directory. Overwrite has what exists there give way.
	Wishes    []policy.CollectWish
	Overwrite bool
	// Limits are of each wish.
	Limits guest.CollectLimits
	// Writable are directories of the host's that code inside may write to.
	Writable []string
	// Ended says which limit ended the sandbox, if one did. Required.
	Ended func(context.Context) (reason string, limit bool)
}

// collectedFiles takes files out of one sandbox. It is for one goroutine.
//
// Their names and bytes were chosen by untrusted code. Each is written below the caller's
// directory, through handles that no link leads out of (os.Root). It is a new file that
// takes its name only when it is whole, and has none before where the file system can: a
// caisson that is killed leaves nothing half done. Hidden files come out only where the
// pattern has their dot, and what would run something on the host only where the pattern
// has its name. Nothing goes into a repository or makes one (collectrelease.go). Links come
// out that lead to what came out (collectlinks.go). An existing file is replaced only where
// the caller says so. What does not come out is said beside what came of the program.
type collectedFiles struct {
	o     collectOptions
	dests []*os.Root // where those of each wish go
	made  []string   // directories that were not there before, a later one below an earlier
}

// openCollected opens where files are to go, before anything runs: code that may write to a
// directory on the way could put a link there, now or for the next run
// (CVE-2026-46406). The caller must call Close.
func openCollected(o collectOptions) (*collectedFiles, error) {
	f := &collectedFiles{o: o}
	for _, wish := range o.Wishes {
		root, err := f.open(wish.Dest)
		if err == nil {
			f.dests = append(f.dests, root)
			err = leadsTo(wish.Dest, root)
		}
		if err == nil {
			continue
		}
		f.Close()
		if e := (*sandbox.Error)(nil); errors.As(err, &e) {
			return nil, err
		}
		return nil, (&collector{wish: wish}).failed("the directory cannot be opened", err)
	}
	return f, nil
}

// Close lets go of where files go. What was made for them and got none is removed.
func (f *collectedFiles) Close() error {
	var errs []error
	for _, root := range f.dests {
		errs = append(errs, root.Close())
	}
	for _, dir := range slices.Backward(f.made) {
		_ = syscall.Rmdir(dir) // one that holds something stays
	}
	return errors.Join(errs...)
}

// Take takes files out of the sandbox of client, whose patterns are of the directory
// dir, and says in res which came out, and of which wishes not all did.
func (f *collectedFiles) Take(ctx context.Context, client *guest.Client, dir string, res *sandbox.Result) {
	taken, swept := map[string]string{}, map[string]bool{}
	for i, wish := range f.o.Wishes {
		c := &collector{wish: wish, res: res, root: f.dests[i], overwrite: f.o.Overwrite, limits: f.o.Limits, taken: taken, swept: swept}
		if err := c.collect(ctx, client, dir); err != nil {
			res.Uncollected = append(res.Uncollected, f.uncollected(ctx, wish, err))
		}
	}
}

// uncollected says why a wish was not carried out, or not to its end.
func (f *collectedFiles) uncollected(ctx context.Context, wish policy.CollectWish, err error) sandbox.Uncollected {
	u := sandbox.Uncollected{Pattern: wish.Pattern, Reason: err.Error(), Hint: sandbox.Hint(err)}
	if reason, limit := f.o.Ended(ctx); limit {
		u.Reason, u.Hint = reason+" before all files had come out", "raise the limit, or collect less"
	} else if ctx.Err() != nil {
		u.Reason, u.Hint = "ended by the caller before all files had come out", ""
	}
	return u
}

// open opens one directory, and makes what is missing of it. Below what code may write
// to no link is followed.
func (f *collectedFiles) open(dest string) (*os.Root, error) {
	for _, dir := range f.o.Writable {
		rel, ok := below(dir, dest)
		if !ok {
			continue
		}
		top, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		defer top.Close()
		return openBelowOrMake(top, filepath.ToSlash(rel))
	}
	var missing []string
	for dir := dest; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			break
		}
		missing = append(missing, dir)
	}
	slices.Reverse(missing)
	f.made = append(f.made, missing...)
	if err := os.MkdirAll(dest, 0o755); err != nil {
		return nil, err
	}
	return os.OpenRoot(dest)
}

// collector carries out one wish.
type collector struct {
	wish      policy.CollectWish
	res       *sandbox.Result
	root      *os.Root
	prefix    string // of names inside that does not come out
	hidden    bool   // the pattern names hidden files
	overwrite bool   // what exists gives way
	limits    guest.CollectLimits
	from      string            // the directory inside that paths are of
	last      *saving           // the last file that was offered: it has no name yet, and may not be whole
	named     map[string]bool   // those that have theirs, by paths as they were offered
	fault     error             // of the first that does not come out
	others    []string          // names of others
	taken     map[string]string // files that came out, of all wishes: paths inside by hostpath.Identity
	swept     map[string]bool   // directories that were looked through for what others left, by hostpath.Identity
}

func (c *collector) collect(ctx context.Context, client *guest.Client, cwd string) error {
	pattern, from := c.wish.Pattern, cwd
	if p, ok := strings.CutPrefix(pattern, "/"); ok {
		pattern, from = p, "/"
	}
	c.prefix, c.hidden, c.from, c.named = literal(pattern), namesHidden(pattern), from, map[string]bool{}
	defer c.discard()
	got, err := client.Collect(ctx, []string{pattern}, from, c.create, c.limits)
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
	if err := c.mayRelease(name); err != nil {
		c.fails(name, err)
		return io.Discard, nil
	}
	dir, err := c.directory(path.Dir(name))
	if err != nil {
		return nil, c.failed("a directory for "+sandbox.Quoted(name)+" cannot be made", err)
	}
	w, err := files.Begin(dir, ".", modeOf(f.Mode))
	if err != nil {
		dir.Close()
		return nil, c.unwritten(name, err)
	}
	c.last = &saving{w, dir, c, f.Path, name}
	return c.last, nil
}

// modeOf is the mode of a file that comes out, less the caller's umask: of what code set, the
// owner's execute bit counts and nothing else.
func modeOf(inside fs.FileMode) fs.FileMode {
	if inside&0o100 != 0 {
		return 0o755
	}
	return 0o644
}

// directory opens a directory below the caller's, and makes what is missing of it. It
// goes through no link: code may have left one, now or when it had the directory before.
func (c *collector) directory(rel string) (*os.Root, error) {
	at, err := openBelowOrMake(c.root, rel)
	if err != nil {
		return nil, err
	}
	if info, err := at.Stat("."); err == nil && !c.swept[hostpath.Identity(info)] {
		c.swept[hostpath.Identity(info)] = true
		files.Sweep(at)
	}
	return at, nil
}

// saving is a file that has no name yet, whose faults are said by the one that it is to
// have.
type saving struct {
	file    *files.File
	dir     *os.Root // where it goes
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
	defer last.dir.Close()
	if err := c.name(last); err != nil {
		last.file.Drop()
		c.fails(last.name, err)
		return
	}
	c.named[last.offered] = true
}

// refused is why what code made does not come out.
func (c *collector) refused(name, reason, hint string) error {
	return &sandbox.Error{Op: "collect into " + sandbox.Quoted(c.wish.Dest), Kind: sandbox.ErrInvalid, Problem: sandbox.Quoted(name) + " is not brought out: " + reason, Hint: hint}
}

// nothing is the error of a pattern that matched nothing.
func (c *collector) nothing() error {
	return &sandbox.Error{Op: "collect into " + sandbox.Quoted(c.wish.Dest), Kind: sandbox.ErrNotFound, Problem: "nothing matches " + sandbox.Quoted(c.wish.Pattern),
		Hint: "patterns are paths from the working directory; ** matches directories, too"}
}

// fails notes that a file does not come out.
func (c *collector) fails(name string, err error) {
	if c.fault == nil {
		c.fault = err
		return
	}
	c.others = append(c.others, name)
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
	c.links(got.Links)
	for _, s := range got.Skipped {
		if c.hidden || !isHidden(strings.TrimPrefix(s.Path, c.prefix)) {
			c.fails(s.Path, c.refused(s.Path, s.Reason, "let the program pack it into an archive"))
		}
	}
	if len(got.Unmatched) > 0 && c.fault == nil {
		c.fault = c.nothing()
	}
	return andMore(c.fault, c.others)
}

// name gives a file the name it is to have. What lay there before stays, unless the caller
// said otherwise, or it came out of this sandbox and is the same file there: of two files
// the loss of one would go unnoticed. It is told by the file itself, as there are many
// ways to a directory.
func (c *collector) name(s *saving) error {
	base := path.Base(s.name)
	replace, err := c.replaces(s.dir, base, s.offered)
	if err != nil {
		return err
	}
	keep := s.file.KeepNew
	if replace {
		keep = s.file.Keep
	}
	if err := keep(base); err != nil {
		if !replace && errors.Is(err, os.ErrExist) {
			return c.exists(s.dir, s.name)
		}
		return c.unwritten(s.name, err)
	}
	c.takes(s.dir, base, s.offered)
	return nil
}

// replaces says whether what is offered may take the place of what lies there.
func (c *collector) replaces(dir *os.Root, base, offered string) (bool, error) {
	old, err := dir.Lstat(base)
	if err != nil {
		return c.overwrite, nil
	}
	is := hostpath.Identity(old)
	other, ours := c.taken[is]
	if ours && other != path.Join(c.from, offered) {
		e := c.failed("that would take the place of "+sandbox.Quoted(other), nil)
		e.Hint = "collect them into different directories: --collect 'PATTERN:DIR'"
		return false, e
	}
	delete(c.taken, is)
	return c.overwrite || ours, nil
}

// takes notes what has its name now.
func (c *collector) takes(dir *os.Root, base, offered string) {
	if now, err := dir.Lstat(base); err == nil {
		c.taken[hostpath.Identity(now)] = path.Join(c.from, offered)
	}
}

// exists is why what is called name does not come out: its name is taken.
func (c *collector) exists(dir *os.Root, name string) error {
	if info, err := dir.Lstat(path.Base(name)); err == nil && info.IsDir() {
		return c.unwritten(name, syscall.EISDIR)
	}
	e := c.failed(sandbox.Quoted(name)+" is there already", nil)
	e.Kind, e.Hint = sandbox.ErrConflict, "to replace what is there: --collect-overwrite; or choose another directory: --collect 'PATTERN:DIR'"
	return e
}

// maxNamed is how many of those files are named that do not come out besides the first.
const maxNamed = 10

// andMore has the fault of one file say which others do not come out.
func andMore(fault error, others []string) error {
	var e *sandbox.Error
	if len(others) == 0 || !errors.As(fault, &e) {
		return fault
	}
	var names []string
	for _, name := range others[:min(len(others), maxNamed)] {
		names = append(names, sandbox.Quoted(name))
	}
	if n := len(others) - len(names); n > 0 {
		names = append(names, "…")
	}
	e.Problem = fmt.Sprintf("%s (and %d more did not come out: %s)", e.Problem, len(others), strings.Join(names, ", "))
	return fault
}

// discard lets go of what did not arrive whole.
func (c *collector) discard() {
	if c.last != nil {
		c.last.file.Drop()
		c.last.dir.Close()
	}
	c.last = nil
}

func (c *collector) unwritten(name string, err error) *sandbox.Error {
	return c.failed(sandbox.Quoted(name)+" cannot be written", err)
}

// failed is what a call of the host's system said, in words: it names temporary files,
// which the caller does not know.
func (c *collector) failed(problem string, err error) *sandbox.Error {
	e := &sandbox.Error{Op: "collect into " + sandbox.Quoted(c.wish.Dest), Kind: sandbox.ErrUnavailable, Problem: problem,
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
		e.Problem = problem + ": a part of its path is no directory, or a link"
	case syscall.EACCES, syscall.EPERM:
		e.Problem = problem + ": you may not write there"
	case syscall.EROFS:
		e.Problem = problem + ": that file system is read-only"
	case syscall.ENAMETOOLONG:
		e.Problem = problem + ": the name is too long for that file system"
	}
	return e
}
