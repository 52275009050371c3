// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/session/changes"
)

// maxScript bounds a file that is looked at to say whether it is held back, in bytes.
const maxScript = 2 << 20

// Held gives what any of the new commits changes that is held back, sorted, with why. What
// a merge has from one of its parents as it is there was looked at there, or is the
// host's.
func (p *Import) Held() ([]changes.Entry, error) {
	held := map[string]changes.Entry{}
	for _, id := range p.order {
		o := p.objects[id]
		if o.kind != Commit {
			continue
		}
		all, err := p.changed(o)
		if err != nil {
			return nil, err
		}
		p.repo.named.Hold(all)
		for _, e := range all {
			if was, ok := held[e.Path]; e.Type != changes.Dir && len(e.Held) > 0 && (!ok || len(was.Held) < len(e.Held)) {
				held[e.Path] = e
			}
		}
	}
	return slices.SortedFunc(maps.Values(held), func(a, b changes.Entry) int { return cmp.Compare(a.Path, b.Path) }), nil
}

// changed gives what a commit changes beside all of its parents.
func (p *Import) changed(o *object) ([]changes.Entry, error) {
	if len(o.commit.parents) == 0 {
		return p.beside(ID{}, o.commit.tree)
	}
	var all []changes.Entry
	for i, parent := range o.commit.parents {
		tree, err := p.treeOf(parent)
		if err != nil {
			return nil, err
		}
		here, err := p.beside(tree, o.commit.tree)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			all = here
			continue
		}
		also := map[string]bool{}
		for _, e := range here {
			also[e.Path] = true
		}
		all = slices.DeleteFunc(all, func(e changes.Entry) bool { return !also[e.Path] })
	}
	return all, nil
}

func (p *Import) treeOf(id ID) (ID, error) {
	if o := p.objects[id]; o != nil {
		return o.commit.tree, nil
	}
	c, err := p.repo.commit(id)
	return c.tree, err
}

// entries are what is in a tree; none in the tree of zeros, which is none.
func (p *Import) entries(id ID) ([]treeEntry, error) {
	if id == (ID{}) {
		return nil, nil
	}
	if o := p.objects[id]; o != nil {
		return o.tree, nil
	}
	return p.repo.tree(id)
}

// beside compares two trees, and says what is held back of the difference.
func (p *Import) beside(old, is ID) ([]changes.Entry, error) {
	d := &difference{imports: p, blobs: map[string]ID{}}
	if err := d.trees("", old, is, 0); err != nil {
		return nil, err
	}
	slices.SortFunc(d.entries, func(a, b changes.Entry) int {
		return slices.Compare(strings.Split(a.Path, "/"), strings.Split(b.Path, "/"))
	})
	changes.Hold(d.entries, changes.Beside{
		Look: func(at string) (*changes.Base, error) { return d.look(old, at) },
		Content: func(e *changes.Entry) (io.ReadCloser, error) {
			return d.read(d.blobs[e.Path])
		},
		Old: func(at string) (io.ReadCloser, error) {
			e, err := d.find(old, at)
			if err != nil {
				return nil, err
			}
			return d.read(e.id)
		},
	})
	for i := range d.entries {
		if e := &d.entries[i]; e.Type == "" && e.Op != changes.Remove {
			e.Held = append(e.Held, "it is a submodule: git fetches it from elsewhere")
		}
	}
	return d.entries, nil
}

// difference is what one tree has otherwise than another.
type difference struct {
	imports *Import
	entries []changes.Entry
	blobs   map[string]ID // of the files that are new, by path
}

func (d *difference) read(id ID) (io.ReadCloser, error) {
	b, err := d.imports.content(id, maxScript)
	return io.NopCloser(bytes.NewReader(b)), err
}

func (d *difference) trees(at string, old, is ID, depth int) error {
	if old == is {
		return nil
	}
	if depth > maxDepth {
		return hostile("a tree is more than %d directories deep", maxDepth)
	}
	was, err := d.imports.entries(old)
	if err != nil {
		return err
	}
	now, err := d.imports.entries(is)
	if err != nil {
		return err
	}
	byName := map[string]treeEntry{}
	for _, e := range was {
		byName[e.name] = e
	}
	for _, e := range now {
		before, ok := byName[e.name]
		delete(byName, e.name)
		if ok && before == e {
			continue
		}
		if !ok {
			before = treeEntry{}
		}
		if err := d.name(path.Join(at, e.name), before, e, depth); err != nil {
			return err
		}
	}
	for _, e := range byName {
		if err := d.name(path.Join(at, e.name), e, treeEntry{}, depth); err != nil {
			return err
		}
	}
	return nil
}

// name compares one name; an entry without a mode is none.
func (d *difference) name(at string, was, is treeEntry, depth int) error {
	if was.dir() || is.dir() {
		var old, now ID
		if was.dir() {
			old = was.id
		}
		if is.dir() {
			now = is.id
		}
		if err := d.trees(at, old, now, depth+1); err != nil {
			return err
		}
	}
	e := changes.Entry{Path: at, Base: base(was)}
	kind := is
	switch {
	case is.mode == "" && !was.dir():
		e.Op, kind = changes.Remove, was
	case is.mode == "" || is.dir() && was.dir():
		return nil
	case was.mode == "":
		e.Op = changes.Add
	case was.id == is.id && !was.dir():
		e.Op = changes.Mode
	default:
		e.Op = changes.Change
	}
	b := base(kind)
	e.Type, e.Mode = b.Type, b.Mode
	if is.mode == modeLink {
		to, err := d.imports.content(is.id, maxLink)
		if err != nil {
			return hostile("the link %q: %v", clip(at), err)
		}
		e.Link = string(to)
	}
	d.blobs[at] = is.id
	d.entries = append(d.entries, e)
	return nil
}

const maxLink = 4096

// base is what a tree's entry is in a workspace; of a submodule the type is empty.
func base(e treeEntry) *changes.Base {
	switch e.mode {
	case "":
		return nil
	case modeDir:
		return &changes.Base{Type: changes.Dir, Mode: 0o755}
	case modeLink:
		return &changes.Base{Type: changes.Link, Mode: 0o777}
	case modeExec:
		return &changes.Base{Type: changes.File, Mode: 0o755}
	case modeModule:
		return &changes.Base{Mode: 0o755}
	}
	return &changes.Base{Type: changes.File, Mode: 0o644}
}

// find finds a path in a tree.
func (d *difference) find(tree ID, at string) (treeEntry, error) {
	e := treeEntry{mode: modeDir, id: tree}
	for part := range strings.SplitSeq(at, "/") {
		if !e.dir() {
			return e, fs.ErrNotExist
		}
		all, err := d.imports.entries(e.id)
		if err != nil {
			return e, err
		}
		i := slices.IndexFunc(all, func(e treeEntry) bool { return e.name == part })
		if i < 0 {
			return e, fs.ErrNotExist
		}
		e = all[i]
	}
	return e, nil
}

func (d *difference) look(tree ID, at string) (*changes.Base, error) {
	e, err := d.find(tree, at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return base(e), err
}
