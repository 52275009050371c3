// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// maxEntries bounds a set, in entries.
const maxEntries = 200_000

// comparison compares a layer with the host. Only what the layer has, and what a removed
// or renamed directory had, is looked at.
type comparison struct {
	ctx     context.Context
	git     bool // it is of the workspace's own repository, and of nothing else
	layer   *layer
	host    *host
	entries []Entry
	seen    int // names of the host that were looked at without the layer naming them
	touched int // directories above, that are removed, in which the host changed names since the run began
}

// compare gives what the layer changes, sorted.
func compare(ctx context.Context, l *layer, h *host) ([]Entry, error) {
	c := &comparison{ctx: ctx, layer: l, host: h}
	if err := c.inside("", l.top, origin{"", true}, true); err != nil {
		return nil, hostError("the workspace", err)
	}
	slices.SortFunc(c.entries, func(a, b Entry) int { return comparePaths(a.Path, b.Path) })
	return c.entries, nil
}

// compareGit gives what the layer changes of the workspace's own repository, sorted.
func compareGit(ctx context.Context, l *layer, h *host) ([]Entry, error) {
	n, from := l.top.children[gitDir], origin{"", true}
	if n == nil || l.filter.excluded(gitDir) {
		return nil, nil
	}
	c := &comparison{ctx: ctx, git: true, layer: l, host: h}
	if err := c.node(gitDir, n, from.of(gitDir, n)); err != nil {
		return nil, hostError("the workspace", err)
	}
	slices.SortFunc(c.entries, func(a, b Entry) int { return comparePaths(a.Path, b.Path) })
	return c.entries, nil
}

// never says that a path is not kept, and not counted as ignored either.
func (c *comparison) never(at string) bool {
	if c.git {
		return c.layer.filter.excluded(at)
	}
	return c.layer.filter.never(at)
}

// keeps says whether a path is kept, and counts it where it is not.
func (c *comparison) keeps(at string, dir bool) bool {
	if c.git {
		return !c.layer.filter.excluded(at)
	}
	return c.layer.filter.keeps(at, dir)
}

// comparePaths puts a directory before what is in it, and that before what comes after
// the directory.
func comparePaths(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	switch {
	case i == len(a) || i == len(b):
		return cmp.Compare(len(a), len(b))
	case a[i] == '/':
		return -1
	case b[i] == '/':
		return 1
	}
	return cmp.Compare(a[i], b[i])
}

// origin is the directory of the host that an overlay shows through one of the layer's.
type origin struct {
	path  string
	shown bool // false: there is none
}

// of is the origin of a directory in one with the origin o.
func (o origin) of(name string, n *node) origin {
	switch {
	case n.opaque:
		return origin{}
	case strings.HasPrefix(n.redirect, "/"):
		return origin{n.redirect[1:], true}
	case !o.shown:
		return origin{}
	case n.redirect != "":
		return origin{path.Join(o.path, n.redirect), true}
	}
	return origin{path.Join(o.path, name), true}
}

// inside compares what is in a directory of the layer. there says that the host has a
// directory at its path.
func (c *comparison) inside(at string, n *node, from origin, there bool) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(n.children))
	for _, name := range names {
		if err := c.node(path.Join(at, name), n.children[name], from.of(name, n.children[name])); err != nil {
			return err
		}
	}
	if from == (origin{at, true}) {
		return nil // what the layer does not have is the host's, and as it was
	}
	shown, err := c.list(from)
	if err != nil {
		return err
	}
	for _, name := range shown {
		if _, ok := n.children[name]; !ok {
			if err := c.moved(path.Join(at, name), path.Join(from.path, name)); err != nil {
				return err
			}
		}
	}
	if !there {
		return nil
	}
	base, err := c.look(at)
	if err != nil {
		return err
	}
	defer c.below(base)()
	here, err := c.list(origin{at, true})
	if err != nil {
		return err
	}
	for _, name := range here {
		_, inLayer := n.children[name]
		if _, inOrigin := slices.BinarySearch(shown, name); !inLayer && !inOrigin {
			if err := c.removed(path.Join(at, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// list lists a directory of the host, within bounds.
func (c *comparison) list(from origin) ([]string, error) {
	if !from.shown {
		return nil, nil
	}
	names, err := c.host.list(from.path)
	if c.seen += len(names); c.seen > maxNodes {
		return nil, malformed(from.path, "was removed or renamed with more than %d files", maxNodes)
	}
	return names, err
}

// node compares one path of the layer.
func (c *comparison) node(at string, n *node, from origin) error {
	switch n.kind {
	case nodeLeft:
		return nil
	case nodeRemoved:
		return c.removed(at)
	}
	base, err := c.look(at)
	if err != nil {
		return err
	}
	if !n.isDir() {
		if !c.git && ownGit(at) {
			return nil
		}
		return c.leaf(at, n, base)
	}
	keeps := !c.never(at)
	if base != nil && base.Type == Dir {
		if n.kind == nodeDir && n.mode != base.Mode && keeps {
			err = c.add(Entry{Path: at, Op: Mode, Type: Dir, Mode: n.mode, Base: base})
		}
	} else if keeps && !c.ignores(at) {
		err = c.add(Entry{Path: at, Op: opOver(base), Type: Dir, Mode: cmp.Or(n.mode, 0o755), Base: base})
	}
	if err != nil {
		return err
	}
	return c.inside(at, n, from, base != nil && base.Type == Dir)
}

func (c *comparison) ignores(at string) bool {
	return !c.git && c.layer.filter.ignores != nil && c.layer.filter.ignores.match(at, true)
}

// leaf compares a file or a link.
func (c *comparison) leaf(at string, n *node, base *Base) error {
	e := Entry{Path: at, Op: opOver(base), Type: File, Mode: n.mode, Size: n.size, SHA256: n.sha, Link: n.link, Base: base}
	if n.kind == nodeLink {
		e.Type, e.Mode = Link, 0o777
	}
	if base != nil && base.Type == e.Type {
		same, err := c.same(&e)
		if err != nil {
			return err
		}
		switch {
		case !same:
		case e.Type == File && e.Exec() != (base.Mode&0o111 != 0):
			e.Op = Mode
		default:
			return nil
		}
	}
	if base != nil && base.Type == Dir {
		if err := c.emptied(at, base); err != nil {
			return err
		}
	}
	return c.add(e)
}

// same says whether the host has the same content, or the same link.
func (c *comparison) same(e *Entry) (bool, error) {
	if e.Type == Link {
		to, err := c.host.readlink(e.Path)
		return err == nil && to == e.Link, nil
	}
	if e.Base.Size != e.Size {
		return false, nil
	}
	sha, err := hashFile(c.host, e.Path)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return false, nil // what cannot be read is shown as changed
	}
	return sha == e.SHA256, err
}

func opOver(base *Base) Op {
	if base == nil {
		return Add
	}
	return Change
}

// removed compares a path that the layer removed.
func (c *comparison) removed(at string) error {
	base, err := c.look(at)
	if err != nil || base == nil {
		return err
	}
	dir := base.Type == Dir
	if !c.keeps(at, dir) {
		if dir && c.ignores(at) {
			c.layer.filter.ignored++ // it is not walked to count what is in it
		}
		return nil
	}
	if dir {
		if err := c.emptied(at, base); err != nil {
			return err
		}
	}
	base.Touched = base.Touched || c.touched > 0
	return c.add(Entry{Path: at, Op: Remove, Type: base.Type, Mode: base.Mode, Size: base.Size, Base: base})
}

// below says that what is removed next lies in a directory. What the host moved into it
// after the run had begun, the code never saw, and it may be as old as it was: where the
// names in it have changed, all of it is in conflict. The caller calls leave.
func (c *comparison) below(dir *Base) (leave func()) {
	if dir == nil || !c.host.since(dir) {
		return func() {}
	}
	c.touched++
	return func() { c.touched-- }
}

// emptied compares a directory of the host of which nothing is left.
func (c *comparison) emptied(at string, base *Base) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if c.host.since(base) {
		base.Touched = true
	}
	defer c.below(base)()
	names, err := c.list(origin{at, true})
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := c.removed(path.Join(at, name)); err != nil {
			return err
		}
	}
	return nil
}

// moved compares a path that shows what the host has elsewhere: it is in a directory that
// was renamed. What the code could not read there, it does not get by a new name.
func (c *comparison) moved(at, from string) error {
	if c.never(from) || len(at) > maxPath || strings.Count(at, "/") > maxDepth {
		return nil
	}
	was, err := c.host.look(from)
	if elsewhere(err) || was == nil && err == nil {
		return nil
	}
	if err != nil {
		return err
	}
	n := &node{mode: was.Mode, size: was.Size}
	if was.Type != Dir && !c.keeps(at, false) {
		return nil
	}
	if ok, err := c.host.shows(from); err != nil || !ok {
		c.layer.filter.skip(at)
		return err
	}
	switch was.Type {
	case Dir:
		n.kind = nodeDir
	case Link:
		n.kind = nodeLink
		n.link, err = c.host.readlink(from)
	case File:
		n.kind = nodeFile
		n.sha, n.size, err = c.copy(from)
	default:
		c.layer.filter.skip(at)
		return nil
	}
	if err != nil {
		return err
	}
	return c.node(at, n, origin{from, true})
}

// copy keeps a file of the host.
func (c *comparison) copy(from string) (string, int64, error) {
	f, err := c.host.open(from)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	return c.layer.contents.add(f)
}

// look looks at the host. What lies on another file system was not the overlay's.
func (c *comparison) look(at string) (*Base, error) {
	base, err := c.host.look(at)
	if elsewhere(err) {
		return nil, &sandbox.Error{Op: "read what was changed", Kind: sandbox.ErrUnsupported, Problem: Shown(at) + " is on another file system than the workspace",
			Hint: "mount that directory by itself", Cause: err}
	}
	return base, err
}

func (c *comparison) add(e Entry) error {
	if len(c.entries) == maxEntries {
		return &sandbox.Error{Op: "keep what was changed", Kind: sandbox.ErrExhausted, Problem: "more than 200000 files were changed", Hint: "ignore what is built"}
	}
	c.entries = append(c.entries, e)
	return nil
}
