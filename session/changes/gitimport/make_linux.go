// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // git's own ids
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
)

// Made says what one commit is made of.
type Made struct {
	Entries []changes.Entry // of a set; directories do not count
	Content func(e *changes.Entry) (io.ReadCloser, error)
	Message string
	Time    time.Time
}

// author is who makes a commit that no agent made.
const author = "caisson <caisson@localhost>"

// Make plans one commit on the repository's HEAD that has the changes of a set.
func (r *Repository) Make(ctx context.Context, m Made) (*Import, error) {
	p := r.plan(ctx, nil)
	head, ok, err := r.Head()
	if err != nil {
		return nil, r.failed(err)
	}
	text, top := "", ID{}
	if ok {
		c, err := r.commit(head)
		if err != nil {
			return nil, err
		}
		top, text = c.tree, "parent "+head.String()+"\n"
	}
	t := &growing{imports: p, id: top}
	for i := range m.Entries {
		if err := t.apply(&m, &m.Entries[i]); err != nil {
			return nil, err
		}
	}
	tree, err := t.write(true)
	if err != nil {
		return nil, err
	}
	if tree == top {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: "nothing of the set changes what git has", Hint: "name what is held back with --held, or look at the set"}
	}
	who := fmt.Sprintf("%s %d +0000", author, m.Time.Unix())
	content := []byte("tree " + tree.String() + "\n" + text + "author " + who + "\ncommitter " + who + "\n\n" + m.Message + "\n")
	p.Tip = identify(Commit, content)
	parsed, err := parseCommit(content)
	if err != nil {
		return nil, err
	}
	p.Commits = 1
	return p, p.made(p.Tip, &object{kind: Commit, size: int64(len(content)), content: content, commit: parsed})
}

// made takes in an object that was made here.
func (p *Import) made(id ID, o *object) error {
	if p.objects[id] != nil {
		return nil
	}
	has, err := p.repo.Has(id)
	if err != nil || has {
		return err
	}
	o.done = true
	p.order = append(p.order, id)
	return p.add(id, o)
}

// growing is a tree that is changed. It is read when something in it is.
type growing struct {
	imports *Import
	id      ID
	read    bool
	names   map[string]*growingName
}

type growingName struct {
	treeEntry
	sub *growing // of a directory, once something in it is changed
}

func (t *growing) open() error {
	if t.read {
		return nil
	}
	t.read, t.names = true, map[string]*growingName{}
	all, err := t.imports.entries(t.id)
	for _, e := range all {
		t.names[e.name] = &growingName{treeEntry: e}
	}
	return err
}

// apply puts one entry of a set into the tree.
func (t *growing) apply(m *Made, e *changes.Entry) error {
	if e.Type == changes.Dir && (e.Op == changes.Mode || e.Op == changes.Add) {
		return nil // git has no directories
	}
	dirs := strings.Split(e.Path, "/")
	name := dirs[len(dirs)-1]
	for _, part := range dirs[:len(dirs)-1] {
		if err := t.open(); err != nil {
			return err
		}
		n := t.names[part]
		if n == nil || !n.dir() {
			if e.Op == changes.Remove || e.Op == changes.Mode {
				return nil
			}
			if err := checkName(part); err != nil {
				return hostile("%v", err)
			}
			n = &growingName{treeEntry: treeEntry{name: part, mode: modeDir}}
			t.names[part] = n
		}
		if n.sub == nil {
			n.sub = &growing{imports: t.imports, id: n.id}
		}
		t = n.sub
	}
	if err := t.open(); err != nil {
		return err
	}
	return t.set(m, e, name)
}

func (t *growing) set(m *Made, e *changes.Entry, name string) error {
	n := t.names[name]
	switch {
	case e.Op == changes.Remove || e.Type == changes.Dir:
		if n != nil && !n.dir() {
			delete(t.names, name)
		}
		return nil
	case e.Op == changes.Mode && (n == nil || n.mode != modeFile && n.mode != modeExec):
		return nil // git does not have the file
	}
	if err := checkName(name); err != nil {
		return hostile("%v", err)
	}
	is := treeEntry{name: name, mode: modeFile}
	if e.Exec() {
		is.mode = modeExec
	}
	var err error
	switch {
	case e.Op == changes.Mode:
		is.id = n.id
	case e.Type == changes.Link:
		is.mode = modeLink
		is.id, err = t.imports.keep([]byte(e.Link))
	default:
		is.id, err = t.imports.file(m, e)
	}
	if err == nil {
		err = is.check()
	}
	t.names[name] = &growingName{treeEntry: is}
	return err
}

// keep takes in a small blob.
func (p *Import) keep(b []byte) (ID, error) {
	id := identify(Blob, b)
	return id, p.made(id, &object{kind: Blob, size: int64(len(b)), content: b})
}

// file takes in the content of a file.
func (p *Import) file(m *Made, e *changes.Entry) (id ID, err error) {
	f, err := m.Content(e)
	if err != nil {
		return id, err
	}
	defer f.Close()
	sum := sha1.New()
	fmt.Fprintf(sum, "%s %d\x00", Blob, e.Size)
	var text io.Writer = io.Discard
	kind, isSpecial := special(e.Path[strings.LastIndexByte(e.Path, '/')+1:])
	var kept strings.Builder
	if isSpecial && e.Size <= maxSpecial {
		text = &kept
	}
	n, err := io.Copy(io.MultiWriter(sum, text), f)
	if err == nil && n != e.Size {
		err = errors.New("a content has another size")
	}
	if err == nil && isSpecial {
		if e.Size > maxSpecial {
			return id, hostile("%s has more than %d bytes", kind, maxSpecial)
		}
		if err := checkSpecial(kind, kept.String()); err != nil {
			return id, hostile("%v", err)
		}
	}
	if err != nil {
		return id, err
	}
	entry := *e
	id = ID(sum.Sum(nil))
	return id, p.made(id, &object{kind: Blob, size: e.Size, open: func() (io.ReadCloser, error) { return m.Content(&entry) }})
}

// write takes in the tree and those in it that were changed. One without anything in it
// is left out, but for the top.
func (t *growing) write(top bool) (ID, error) {
	if !t.read {
		return t.id, nil
	}
	var all []treeEntry
	for _, n := range t.names {
		if n.sub != nil {
			id, err := n.sub.write(false)
			if err != nil {
				return id, err
			}
			if n.id = id; id == (ID{}) {
				continue
			}
		}
		all = append(all, n.treeEntry)
	}
	if len(all) == 0 && !top {
		return ID{}, nil
	}
	slices.SortFunc(all, func(a, b treeEntry) int { return cmp.Compare(a.sortKey(), b.sortKey()) })
	b := writeTree(all)
	id := identify(Tree, b)
	return id, t.imports.made(id, &object{kind: Tree, size: int64(len(b)), content: b, tree: all})
}
