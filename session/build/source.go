// SPDX-License-Identifier: Apache-2.0

package build

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/template"
)

// source is where files of a COPY come from. Names are clean and relative to its root, "."
// for that itself; no link leads out of it.
type source interface {
	// Look looks at a name without following a link.
	Look(name string) (entry, error)
	// Link is where a name leads that is a link; empty for others.
	Link(name string) (string, error)
	// List is what a directory holds, sorted.
	List(name string) ([]entry, error)
	// Open opens a regular file, with its size.
	Open(name string) (io.ReadCloser, int64, error)
	Close() error
}

// entry is one file, directory or link of a source.
type entry struct {
	Name string
	As   string // the last element of the name that it was asked for by
	Dir  bool
	Link string // where it leads; empty for others
	Mode int64

	UID, GID uint32 // in an image; 0 for others
}

// open opens the source of a COPY.
func (w *work) open(ctx context.Context, c *template.Copy) (source, error) {
	switch {
	case c.FromImage != "":
		info, err := w.find(ctx, c.FromImage)
		if err != nil {
			return nil, err
		}
		return openImage(w.Images, info)
	case c.From >= 0:
		info, err := w.earlier(ctx, c.From)
		if err != nil {
			return nil, err
		}
		return openImage(w.Images, info)
	case c.Upload != "":
		if w.Upload == nil {
			return nil, fail(sandbox.ErrInvalid, "its files were not sent", "send them first")
		}
		dir, err := w.Upload(c.Upload)
		if err != nil {
			return nil, err
		}
		return &directory{root: dir, close: dir.Close}, nil
	case len(c.Sources) == 0: // all of it is in the definition
		return nothing{}, nil
	case w.Dir == nil:
		return nil, fail(sandbox.ErrInvalid, "there is no directory to copy from", "name one: caisson template build NAME -f FILE DIR")
	}
	return &directory{root: w.Dir, ignore: w.Ignore, close: func() error { return nil }}, nil
}

// sources is a digest of all that a COPY would copy. That of another stage is the stage's
// own; an image is known by its digest.
func (w *work) sources(ctx context.Context, c *template.Copy) (string, error) {
	switch {
	case c.From >= 0:
		return w.end(c.From), nil
	case c.FromImage != "":
		info, err := w.find(ctx, c.FromImage)
		if err != nil {
			return "", err
		}
		return info.Digest, nil
	}
	from, err := w.open(ctx, c)
	if err != nil {
		return "", err
	}
	defer from.Close()
	found, err := selected(from, c)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, e := range found {
		if err := digestEntry(ctx, h, from, e); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func digestEntry(ctx context.Context, h io.Writer, from source, e entry) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	mark(h, e)
	switch {
	case e.Dir:
		list, err := from.List(e.Name)
		if err != nil {
			return err
		}
		for _, in := range list {
			if err := digestEntry(ctx, h, from, in); err != nil {
				return err
			}
		}
		markEnd(h)
		return nil
	case e.Link != "":
		return nil
	}
	f, size, err := from.Open(e.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	markSize(h, size)
	_, err = io.Copy(h, f)
	return err
}

// mark, markSize and markEnd are what a digest of entries has besides what is in files.
func mark(h io.Writer, e entry) {
	fmt.Fprintf(h, "%q %q %t %q %o\n", e.Name, e.As, e.Dir, e.Link, e.Mode)
}

func markSize(h io.Writer, size int64) { fmt.Fprintln(h, size) }

func markEnd(h io.Writer) { fmt.Fprintln(h, "end") }

// selected are the entries that a COPY names. Each has to name something. What is named
// is where links lead to, as docker has it, but for files that a client has sent: it has
// followed those that it wanted followed.
func selected(from source, c *template.Copy) ([]entry, error) {
	var out []entry
	for _, p := range c.Sources {
		look := from.Look
		if c.Upload == "" {
			look = func(name string) (entry, error) { return follow(from, name) }
		}
		list, err := match(from, p, look)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0 {
			return nil, fail(sandbox.ErrNotFound, sandbox.Quoted(p)+" is not there to be copied", "check the name, and what .dockerignore hides")
		}
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// maxHops is how many links one name may lead through (MAXSYMLINKS of Linux).
const maxHops = 40

// follow looks at where a name leads inside of the source, through links. A target that is
// absolute begins at its root.
func follow(from source, name string) (entry, error) {
	at, todo := ".", strings.Split(name, "/")
	for hops := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		if part == ".." {
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		to, err := from.Link(next)
		if err != nil {
			return entry{}, fs.ErrNotExist
		}
		if to == "" {
			at = next
			continue
		}
		if hops++; hops > maxHops {
			return entry{}, fail(sandbox.ErrInvalid, "too many links on the way to "+sandbox.Quoted(name), "name the file itself")
		}
		if path.IsAbs(to) {
			at = "."
		}
		todo = append(strings.Split(to, "/"), todo...)
	}
	return from.Look(at)
}

// match finds what one pattern names, component by component. look looks at a name.
func match(from source, pattern string, look func(string) (entry, error)) ([]entry, error) {
	named := func(name string) (entry, error) {
		e, err := look(name)
		e.As = path.Base(name)
		return e, err
	}
	if pattern == "." || !hasMeta(pattern) {
		e, err := named(pattern)
		return []entry{e}, err
	}
	dirs := []string{"."}
	dir, last := path.Split(pattern)
	if dir = path.Clean(dir); dir != "." {
		list, err := match(from, dir, look)
		if err != nil {
			return nil, err
		}
		dirs = nil
		for _, e := range list {
			if e.Dir {
				dirs = append(dirs, e.Name)
			}
		}
	}
	var out []entry
	for _, d := range dirs {
		list, err := from.List(d)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			if ok, _ := path.Match(last, path.Base(e.Name)); !ok {
				continue
			}
			if e, err = named(e.Name); err != nil {
				return nil, err
			}
			out = append(out, e)
		}
	}
	return out, nil
}

func hasMeta(p string) bool { return strings.ContainsAny(p, `*?[\`) }

// nothing has no files.
type nothing struct{}

func (nothing) Look(string) (entry, error)                { return entry{}, fs.ErrNotExist }
func (nothing) Link(string) (string, error)               { return "", fs.ErrNotExist }
func (nothing) List(string) ([]entry, error)              { return nil, nil }
func (nothing) Open(string) (io.ReadCloser, int64, error) { return nil, 0, fs.ErrNotExist }
func (nothing) Close() error                              { return nil }

// directory is one of the host's, or one with files that a client has sent.
type directory struct {
	root   *os.Root
	ignore template.Ignore
	close  func() error
}

func (d *directory) Close() error { return d.close() }

func (d *directory) Look(name string) (entry, error) {
	info, err := d.root.Lstat(name)
	if err != nil {
		return entry{}, fs.ErrNotExist
	}
	if name != "." {
		hidden, err := d.ignore.Match(name)
		if hidden && err == nil && info.IsDir() && d.ignore.Excepts() {
			hidden, err = d.empty(name)
		}
		if err != nil || hidden {
			return entry{}, cmp.Or(err, fs.ErrNotExist)
		}
	}
	return d.entry(name, info)
}

// empty says whether nothing is to be seen in a directory: one that is hidden is seen for
// what a pattern with ! shows in it.
func (d *directory) empty(name string) (bool, error) {
	names, err := d.names(name)
	for _, in := range names {
		_, err := d.Look(path.Join(name, in))
		if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return true, err
}

func (d *directory) Link(name string) (string, error) {
	info, err := d.root.Lstat(name)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return "", err
	}
	return d.root.Readlink(name)
}

func (d *directory) entry(name string, info fs.FileInfo) (entry, error) {
	e := entry{Name: name, Dir: info.IsDir(), Mode: int64(info.Mode().Perm())}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := d.root.Readlink(name)
		e.Link = to
		return e, err
	case !info.IsDir() && !info.Mode().IsRegular():
		return e, fail(sandbox.ErrInvalid, sandbox.Quoted(name)+" is a device, pipe or socket", "name it in .dockerignore")
	}
	return e, nil
}

// names are those of a directory, sorted.
func (d *directory) names(name string) ([]string, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func (d *directory) List(name string) ([]entry, error) {
	names, err := d.names(name)
	if err != nil {
		return nil, err
	}
	var out []entry
	for _, in := range names {
		e, err := d.Look(path.Join(name, in))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (d *directory) Open(name string) (io.ReadCloser, int64, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fail(sandbox.ErrInvalid, sandbox.Quoted(name)+" is no regular file any more", "try again")
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// imageSource is an image, or another stage.
type imageSource struct{ *image.Opened }

func openImage(s *image.Store, info *image.Stored) (source, error) {
	o, err := s.Open(info)
	if err != nil {
		return nil, err
	}
	return imageSource{o}, nil
}

// node finds a name. Directories on the way may be links inside of the image.
func (i imageSource) node(name string) (*fstree.Node, error) {
	if name == "." {
		return i.Tree, nil
	}
	dir, err := i.Tree.Walk(splitDir(name), nil)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	n := dir.Children[path.Base(name)]
	if n == nil {
		return nil, fs.ErrNotExist
	}
	return n, nil
}

func splitDir(name string) []string { return strings.Split(path.Dir(name), "/") }

func (i imageSource) Look(name string) (entry, error) {
	n, err := i.node(name)
	if err != nil {
		return entry{}, err
	}
	return imageEntry(name, n), nil
}

func imageEntry(name string, n *fstree.Node) entry {
	return entry{Name: name, Dir: n.Kind == fstree.Dir, Link: n.Target, Mode: int64(n.Mode & 0o777), UID: n.UID, GID: n.GID}
}

func (i imageSource) Link(name string) (string, error) {
	n, err := i.node(name)
	if err != nil {
		return "", err
	}
	return n.Target, nil
}

func (i imageSource) List(name string) ([]entry, error) {
	n, err := i.node(name)
	if err != nil {
		return nil, err
	}
	var out []entry
	for _, in := range n.Names() {
		out = append(out, imageEntry(path.Join(name, in), n.Children[in]))
	}
	return out, nil
}

func (i imageSource) Open(name string) (io.ReadCloser, int64, error) {
	n, err := i.node(name)
	if err != nil {
		return nil, 0, err
	}
	return io.NopCloser(i.Read(n)), n.Size, nil
}
