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
	// List is what a directory holds, sorted.
	List(name string) ([]entry, error)
	// Open opens a regular file, with its size.
	Open(name string) (io.ReadCloser, int64, error)
	Close() error
}

// entry is one file, directory or link of a source.
type entry struct {
	Name string
	Dir  bool
	Link string // where it leads; empty for others
	Mode int64
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
	found, err := selected(from, c.Sources)
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
	fmt.Fprintf(h, "%q %t %q %o\n", e.Name, e.Dir, e.Link, e.Mode)
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
		fmt.Fprintln(h, "end")
		return nil
	case e.Link != "":
		return nil
	}
	f, size, err := from.Open(e.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintln(h, size)
	_, err = io.Copy(h, f)
	return err
}

// selected are the entries that patterns name. Each has to name something.
func selected(from source, patterns []string) ([]entry, error) {
	var out []entry
	for _, p := range patterns {
		list, err := match(from, p)
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

// match finds what one pattern names, component by component.
func match(from source, pattern string) ([]entry, error) {
	if pattern == "." || !hasMeta(pattern) {
		e, err := from.Look(pattern)
		return []entry{e}, err
	}
	dirs := []string{"."}
	dir, last := path.Split(pattern)
	if dir = path.Clean(dir); dir != "." {
		list, err := match(from, dir)
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
			if ok, _ := path.Match(last, path.Base(e.Name)); ok {
				out = append(out, e)
			}
		}
	}
	return out, nil
}

func hasMeta(p string) bool { return strings.ContainsAny(p, `*?[\`) }

// nothing has no files.
type nothing struct{}

func (nothing) Look(string) (entry, error)                { return entry{}, fs.ErrNotExist }
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
		if err != nil || hidden {
			return entry{}, cmp.Or(err, fs.ErrNotExist)
		}
	}
	return d.entry(name, info)
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

func (d *directory) List(name string) ([]entry, error) {
	f, err := d.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var out []entry
	for _, in := range list {
		at := path.Join(name, in.Name())
		e, err := d.Look(at)
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
	return entry{Name: name, Dir: n.Kind == fstree.Dir, Link: n.Target, Mode: int64(n.Mode & 0o777)}
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
