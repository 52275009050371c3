// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"io"
	"path"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
	"github.com/caisson-run/caisson/session/environment"
)

// beginning is the change set that a call's workspace begins with.
type beginning struct {
	files  *changes.Contents
	target string              // the workspace inside
	other  func(string) bool   // paths of the workspace that something else is mounted at
	above  map[string]struct{} // and the directories in which that lies
}

// findBeginning finds the change set that an allowed call begins with. From here on the
// plan has its whole ID, and the set stays until the call has ended.
func (r *Invocation) findBeginning() error {
	p := r.Plan.Changes
	if p == nil || p.From == "" {
		return nil
	}
	if !r.oneshot {
		return &sandbox.Error{Op: "change set " + sandbox.Quoted(p.From), Kind: sandbox.ErrUnsupported, Problem: "only a run of one program begins with a change set", Hint: "run --changes " + p.From}
	}
	store, err := r.Session.ChangeSets()
	if err != nil {
		return err
	}
	set, err := store.Get(owner(r.Call), p.From)
	if err != nil {
		return err
	}
	files, err := store.Files(set.ID)
	if err != nil {
		return err
	}
	r.Undo.Close(files)
	whole := *p
	whole.From = set.ID
	r.Plan.Changes = &whole
	r.Intent.Labels = map[string]string{"changes": set.ID, "changes_digest": set.Digest}
	r.begins = &beginning{files: files, target: environment.WorkspaceTarget(r.Plan.Workspace)}
	return nil
}

// fit sees that the set is of the workspace that is mounted.
func (b *beginning) fit(spec *sandbox.Spec) error {
	if b == nil {
		return nil
	}
	set := b.files.Set
	op := "change set " + set.ID
	for _, m := range spec.Mounts {
		if m.Target == b.target && !set.MadeOf(m.Source) {
			return &sandbox.Error{Op: op, Kind: sandbox.ErrConflict, Problem: "it was made of " + sandbox.Quoted(set.Name) + ", which is another directory than the workspace " + sandbox.Quoted(m.Name),
				Hint: "name the workspace that it was made of, or make another set"}
		}
	}
	at := mountedBelow(spec, b.target)
	b.other, b.above = at.covers, map[string]struct{}{}
	for _, rel := range at {
		for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
			b.above[dir] = struct{}{}
		}
	}
	for i := range set.Entries {
		e := &set.Entries[i]
		if _, ok := b.above[e.Path]; ok && (e.Op == changes.Remove || e.Type != changes.Dir) {
			return &sandbox.Error{Op: op, Kind: sandbox.ErrConflict, Problem: "it removes " + changes.Shown(e.Path) + ", and something is mounted in that", Hint: "leave that mount out"}
		}
	}
	return nil
}

// place puts the set in place, before anything else runs inside.
func (b *beginning) place(ctx context.Context, client *guest.Client) error {
	if b == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepLimit)
	defer cancel()
	stream, w := io.Pipe()
	go func() { w.CloseWithError(b.files.WriteTar(w, b.other)) }()
	err := client.Place(ctx, b.target, stream)
	stream.Close()
	return err
}
