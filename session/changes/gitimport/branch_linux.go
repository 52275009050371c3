// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
)

// Branch makes a branch of what was committed inside, in the repository of the workspace
// that the set was made of; where nothing was, of one commit that has the set's changes.
// A held path that any of the commits changes refuses all of it, unless it is named.
func Branch(ctx context.Context, set *changes.Contents, o Options) (*Branched, error) {
	if err := CheckBranch(o.Branch); err != nil {
		return nil, err
	}
	root, err := set.Set.OpenRoot()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	repo, err := Open(root, set.Set.Name)
	if err != nil {
		return nil, err
	}
	defer repo.Close()
	if err := repo.inTheWay(o.Branch); err != nil {
		return nil, err
	}
	in := newInside(set, repo)
	tip, committed, err := in.tip()
	if err != nil {
		return nil, err
	}
	if committed {
		if committed, err = in.made(tip); err != nil {
			return nil, err
		}
	}
	out := &Branched{Branch: o.Branch, Made: !committed}
	var p *Import
	if committed {
		p, err = in.commits(ctx, tip, o.Held)
	} else {
		p, err = in.one(ctx, changes.Ignores(root), o, out)
	}
	if err != nil {
		return nil, err
	}
	out.Tip, out.Commits = p.Tip.String(), p.Commits
	return out, p.Write(o.Branch)
}

// inside is the repository of a sandbox: what the set has of it, over the host's.
type inside struct {
	set  *changes.Contents
	repo *Repository
	git  map[string]*changes.Entry
}

func newInside(set *changes.Contents, repo *Repository) *inside {
	in := &inside{set: set, repo: repo, git: map[string]*changes.Entry{}}
	for i := range set.Set.Git {
		e := &set.Set.Git[i]
		in.git[e.Path] = e
	}
	return in
}

// Open opens an object that the sandbox has by itself.
func (in *inside) Open(id ID) (io.ReadCloser, error) {
	dir, name := id.path()
	e := in.git[".git/objects/"+dir+"/"+name]
	if e == nil || e.Type != changes.File || e.Op == changes.Remove || e.Op == changes.Mode {
		return nil, fs.ErrNotExist
	}
	return in.set.Open(e)
}

// made says that a commit was made inside: another branch of the host's may have been
// taken there. One that has come over before was made inside all the same.
func (in *inside) made(tip ID) (bool, error) {
	if f, err := in.Open(tip); err == nil {
		return true, f.Close()
	}
	has, err := in.repo.Has(tip)
	return !has, err
}

// text reads a small file of the repository as the sandbox has it.
func (in *inside) text(name string) (string, error) {
	e := in.git[".git/"+name]
	switch {
	case e == nil || e.Op == changes.Mode:
		return in.repo.text(name)
	case e.Op == changes.Remove || e.Type == changes.Dir:
		return "", fs.ErrNotExist
	case e.Type != changes.File:
		return "", fmt.Errorf("%s is a link", name)
	}
	f, err := in.set.Open(e)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err == nil && len(b) > maxText {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxText)
	}
	return string(b), err
}

// tip is the commit that HEAD means inside.
func (in *inside) tip() (ID, bool, error) {
	tip, ok, err := resolve(in.text)
	if e := (*sandbox.Error)(nil); err != nil && !errors.As(err, &e) {
		err = hostile("%v", err)
	}
	return tip, ok, err
}

// commits plans what was committed inside.
func (in *inside) commits(ctx context.Context, tip ID, named []string) (*Import, error) {
	p, err := in.repo.Plan(ctx, in, tip)
	if err != nil {
		return nil, err
	}
	held, err := p.Held()
	if err != nil {
		return nil, err
	}
	for _, name := range named {
		if !slices.ContainsFunc(held, func(e changes.Entry) bool { return e.Path == name }) {
			return nil, &sandbox.Error{Op: "--held " + changes.Shown(name), Kind: sandbox.ErrInvalid, Problem: "no commit changes such a path that is held back", Hint: "name a file as git names it, or leave it out"}
		}
	}
	held = slices.DeleteFunc(held, func(e changes.Entry) bool { return slices.Contains(named, e.Path) })
	if len(held) == 0 {
		return p, nil
	}
	return nil, refuseHeld(held)
}

// maxNamed is how many paths an error names.
const maxNamed = 20

func refuseHeld(held []changes.Entry) error {
	var lines []string
	hint := "look at them, and name each:"
	for i, e := range held {
		if i == maxNamed {
			lines, hint = append(lines, fmt.Sprintf("and %d more", len(held)-i)), hint+" ..."
			break
		}
		lines, hint = append(lines, changes.Shown(e.Path)+" ("+because(e)+")"), hint+" --held "+changes.Shown(e.Path)
	}
	return &sandbox.Error{Op: "make a branch", Kind: sandbox.ErrDenied, Problem: "the commits change what is held back: " + strings.Join(lines, ", "), Rule: "built-in: what the host would run", Hint: hint}
}

// because is why e is held back, for a sentence that names it.
func because(e changes.Entry) string {
	own := changes.Shown(path.Base(e.Path)) + ": "
	var why []string
	for _, w := range e.Held {
		why = append(why, strings.TrimPrefix(w, own))
	}
	return strings.Join(why, "; ")
}

// one plans one commit of the set: what is not held back, or named, and not ignored.
func (in *inside) one(ctx context.Context, ignored func(string, bool) bool, o Options, out *Branched) (*Import, error) {
	m := Made{Content: in.set.Open, Time: o.Time, Message: "Change set " + in.set.Set.ID + "\n\nDigest: " + in.set.Set.Digest}
	entries := slices.Clone(in.set.Set.Entries)
	in.repo.named.Hold(entries)
	for _, name := range o.Held {
		if !slices.ContainsFunc(entries, func(e changes.Entry) bool { return e.Path == name && len(e.Held) > 0 }) {
			return nil, &sandbox.Error{Op: "--held " + changes.Shown(name), Kind: sandbox.ErrInvalid, Problem: "the set has no such path that is held back", Hint: "name a file as the set does, or leave it out"}
		}
	}
	for _, e := range entries {
		switch {
		case len(e.Held) > 0 && !slices.Contains(o.Held, e.Path):
			if e.Type != changes.Dir {
				out.Left = append(out.Left, changes.Left{Path: e.Path, Why: "held back: " + because(e)})
			}
			continue
		case e.Op != changes.Remove && ignored(e.Path, e.Type == changes.Dir):
			continue
		}
		m.Entries = append(m.Entries, e)
	}
	return in.repo.Make(ctx, m)
}
