// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // git's own ids
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/caisson-run/caisson/sandbox"
)

// Objects are the objects that a sandbox has. Open gives one as git keeps it by itself,
// loose; fs.ErrNotExist where there is none. Nothing of it is trusted.
type Objects interface {
	Open(ID) (io.ReadCloser, error)
}

// Import is what is taken over into a repository: what its tip leads to and the
// repository does not have. Nothing is written before Write.
type Import struct {
	Tip     ID
	Commits int

	repo    *Repository
	from    Objects
	ctx     context.Context
	objects map[ID]*object // found to be whole, or on their way
	order   []ID           // each after what it leads to
	bytes   int64
	held    int64
	max     bounds
}

type bounds struct {
	objects int
	bytes   int64
	held    int64
}

// object is one that is new to the repository.
type object struct {
	kind    Kind
	size    int64
	content []byte // of commits, trees, and of what git reads itself; nil: it is read again
	commit  commit
	tree    []treeEntry
	open    func() (io.ReadCloser, error)
	done    bool
}

// hostile refuses what a sandbox has.
func hostile(format string, args ...any) error {
	return &sandbox.Error{Op: "take over commits", Kind: sandbox.ErrInvalid, Problem: "the repository inside is refused: " + fmt.Sprintf(format, args...), Hint: "nothing of it is on the host; code inside may have made it so"}
}

// Plan finds what a commit of the sandbox leads to that the repository does not have, and
// looks at all of it: its ids, its bounds, and that git fsck has nothing against it.
func (r *Repository) Plan(ctx context.Context, from Objects, tip ID) (*Import, error) {
	p := r.plan(ctx, from)
	p.Tip = tip
	return p, p.reach(tip)
}

func (r *Repository) plan(ctx context.Context, from Objects) *Import {
	return &Import{repo: r, from: from, ctx: ctx, objects: map[ID]*object{}, max: bounds{MaxObjects, MaxBytes, maxHeld}}
}

// reach takes in the commits from a tip, without recursion: a history may be long.
func (p *Import) reach(tip ID) error {
	stack := []ID{tip}
	for len(stack) > 0 {
		id := stack[len(stack)-1]
		o, err := p.take(id, Commit)
		if err != nil {
			return err
		}
		if o == nil || o.done {
			stack = stack[:len(stack)-1]
			continue
		}
		before := len(stack)
		for _, parent := range o.commit.parents {
			po, err := p.take(parent, Commit)
			if err != nil {
				return err
			}
			if po != nil && !po.done {
				stack = append(stack, parent) // no circle: an id is a hash of what it leads to
			}
		}
		if len(stack) > before {
			continue
		}
		if err := p.walk(o.commit.tree, 0); err != nil {
			return err
		}
		o.done, p.Commits = true, p.Commits+1
		p.order = append(p.order, id)
		stack = stack[:before-1]
	}
	return nil
}

// walk takes in a tree.
func (p *Import) walk(id ID, depth int) error {
	if depth > maxDepth {
		return hostile("a tree is more than %d directories deep", maxDepth)
	}
	t, err := p.take(id, Tree)
	if err != nil || t == nil || t.done {
		return err
	}
	for i := range t.tree {
		e := &t.tree[i]
		switch e.mode {
		case modeModule:
		case modeDir:
			err = p.walk(e.id, depth+1)
		default:
			err = p.blob(e)
		}
		if err != nil {
			return err
		}
	}
	t.done = true
	p.order = append(p.order, id)
	return nil
}

// blob takes in what a name in a tree leads to.
func (p *Import) blob(e *treeEntry) error {
	o, err := p.take(e.id, Blob)
	if err != nil {
		return err
	}
	kind, isSpecial := special(e.name)
	if isSpecial && o != nil {
		text, err := p.content(e.id, maxSpecial)
		if err == nil {
			err = checkSpecial(kind, string(text))
		}
		if err != nil {
			return hostile("%v", err)
		}
	}
	if o != nil && !o.done {
		o.done = true
		p.order = append(p.order, e.id)
	}
	return nil
}

// take reads and checks an object. It is nil where the repository has it.
func (p *Import) take(id ID, kind Kind) (*object, error) {
	if o := p.objects[id]; o != nil {
		if o.kind != kind {
			return nil, hostile("%s is a %s, and is named as a %s", id, o.kind, kind)
		}
		return o, nil
	}
	if err := p.ctx.Err(); err != nil {
		return nil, err
	}
	has, err := p.repo.Has(id)
	if err != nil || has {
		return nil, errors.Join(err, p.sameKind(id, kind, has))
	}
	o, err := p.read(id, kind)
	if err != nil {
		if e := (*sandbox.Error)(nil); errors.As(err, &e) {
			return nil, err
		}
		return nil, hostile("%s %s: %v", kind, id, err)
	}
	return o, p.add(id, o)
}

// sameKind sees that what the repository has is what it is named as: a tree that names a
// blob of the host's as a tree is malformed.
func (p *Import) sameKind(id ID, kind Kind, has bool) error {
	if !has {
		return nil
	}
	is, err := p.repo.kind(id)
	if err == nil && is != kind {
		err = hostile("%s is a %s on the host, and is named as a %s", id, is, kind)
	}
	return err
}

func (p *Import) add(id ID, o *object) error {
	if len(p.objects) >= p.max.objects {
		return hostile("there are more than %d objects", p.max.objects)
	}
	if p.bytes += o.size; p.bytes > p.max.bytes {
		return hostile("the objects have more than %d bytes", p.max.bytes)
	}
	if p.held += int64(len(o.content)); p.held > p.max.held {
		return hostile("commits and trees have more than %d bytes", p.max.held)
	}
	p.objects[id] = o
	return nil
}

// read reads an object of the sandbox and compares it with its id.
func (p *Import) read(id ID, kind Kind) (*object, error) {
	l, err := p.loose(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("it is neither in the set as an object by itself nor on the host; what git has packed inside does not come out: git unpack-objects unpacks it")
	}
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if l.kind != kind {
		return nil, fmt.Errorf("it is a %q", clip(string(l.kind)))
	}
	o := &object{kind: kind, size: l.size, open: func() (io.ReadCloser, error) { return p.loose(id) }}
	if kind == Blob {
		return o, p.compare(l, id)
	}
	maximum := int64(maxTree)
	if kind == Commit {
		maximum = maxCommit
	}
	if o.content, err = l.whole(maximum); err != nil {
		return nil, err
	}
	if identify(kind, o.content) != id {
		return nil, errors.New("its content is another object's")
	}
	if kind == Commit {
		o.commit, err = parseCommit(o.content)
	} else {
		o.tree, err = parseTree(o.content, false)
	}
	return o, err
}

// compare reads a blob to its end and compares it with its id.
func (p *Import) compare(l *loose, id ID) error {
	if l.size > p.max.bytes-p.bytes {
		return fmt.Errorf("the objects have more than %d bytes", p.max.bytes)
	}
	sum := sha1.New()
	fmt.Fprintf(sum, "%s %d\x00", Blob, l.size)
	n, err := io.Copy(sum, l)
	if err == nil && (n != l.size || ID(sum.Sum(nil)) != id) {
		err = errors.New("its content is another object's")
	}
	return err
}

func (p *Import) loose(id ID) (*loose, error) {
	if p.from == nil {
		return nil, fs.ErrNotExist
	}
	f, err := p.from.Open(id)
	if err != nil {
		return nil, err
	}
	return openLoose(f)
}

// content gives a blob that is new, or the repository's.
func (p *Import) content(id ID, maximum int64) ([]byte, error) {
	o := p.objects[id]
	if o == nil {
		_, b, err := p.repo.read(id, maximum)
		return b, err
	}
	if o.content != nil {
		return o.content, nil
	}
	if o.size > maximum {
		return nil, fmt.Errorf("%s has more than %d bytes", id, maximum)
	}
	f, err := o.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maximum+1))
	if err == nil && identify(Blob, b) != id {
		err = errors.New("its content is another object's")
	}
	return b, err
}

// Write writes the objects, each after what it leads to, and then makes the branch. A
// branch that is there is never changed. Where it ends half way there is no branch, and
// what was written is not reached from anywhere: git gc takes it away.
func (p *Import) Write(branch string) error {
	if err := CheckBranch(branch); err != nil {
		return err
	}
	if err := p.repo.inTheWay(branch); err != nil {
		return err
	}
	for _, id := range p.order {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if err := p.write(id, p.objects[id]); err != nil {
			return err
		}
	}
	return p.repo.makeBranch(branch, p.Tip)
}

func (p *Import) write(id ID, o *object) error {
	if o.content != nil {
		return p.repo.writeObject(id, o.kind, o.size, bytes.NewReader(o.content))
	}
	f, err := o.open()
	if err != nil {
		return err
	}
	defer f.Close()
	return p.repo.writeObject(id, o.kind, o.size, f)
}
