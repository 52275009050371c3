// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
	"github.com/caisson-run/caisson/session/environment"
)

// keepLimit bounds how long changes are read and kept after a program's end.
const keepLimit = 5 * time.Minute

// keeper keeps what one call changed in its workspace as a change set. What keeps it from
// that is told beside what came of the program, which has ended.
type keeper struct {
	store  *changes.Store
	source changes.Source
	ctx    context.Context
	ended  func() // is called before anything is read

	read bool // the layer has been read, or it was tried
	set  *changes.Set
	err  error
}

// newKeeper is that of a one-shot; nil where nothing is kept. What the host changed up to called, when the call
// came, is no conflict: the program, which has not started, will see it.
func newKeeper(ctx context.Context, r *Invocation, e *environment.Environment, called time.Time) (*keeper, error) {
	p := r.Plan.Changes
	if p == nil || p.Discard {
		return nil, nil
	}
	store, err := r.Session.ChangeSets()
	if err != nil {
		return nil, err
	}
	target := environment.WorkspaceTarget(r.Plan.Workspace)
	k := &keeper{store: store, ctx: context.WithoutCancel(ctx), source: changes.Source{
		Name: r.Plan.Workspace.Source, Target: target, Owner: owner(r.Call), Run: r.ID, Began: changes.Clock(called),
		KeepIgnored: p.Ignored, Exclude: mountedBelow(e.Spec, target).covers,
	}}
	for _, m := range e.Spec.Mounts {
		if m.Target == target {
			k.source.Root = m.Source
		}
	}
	if k.source.Root == nil {
		return nil, sandbox.Errorf(sandbox.ErrUnavailable, "keep changes", "the workspace is not among the mounts")
	}
	return k, nil
}

// owner is whose change sets a caller sees: the operator's, "", or those of its key.
func owner(c *Call) string {
	if c.Operator {
		return ""
	}
	return cmp.Or(c.Account, "actor:"+c.Actor)
}

// mountedBelow are the paths below a mount that are not its own: what is mounted there,
// and what is hidden.
func mountedBelow(spec *sandbox.Spec, target string) (at notItsOwn) {
	add := func(t string) {
		if rel, ok := strings.CutPrefix(t, target+"/"); ok {
			at = append(at, rel)
		}
	}
	for _, m := range spec.Mounts {
		add(m.Target)
	}
	for _, m := range spec.Masks {
		add(m.Target)
	}
	for _, s := range spec.Scratch {
		add(s.Target)
	}
	return at
}

// notItsOwn are paths below a mount, with all that is in them.
type notItsOwn []string

func (at notItsOwn) covers(name string) bool {
	for _, rel := range at {
		if name == rel || strings.HasPrefix(name, rel+"/") {
			return true
		}
	}
	return false
}

// take is Spec.OnChanges.
func (k *keeper) take(target string, layer io.Reader) error {
	if target != k.source.Target {
		return nil
	}
	k.read = true
	k.ended()
	ctx, cancel := context.WithTimeout(k.ctx, keepLimit)
	defer cancel()
	k.set, k.err = k.store.Keep(ctx, k.source, layer)
	return k.err
}

// readFrom takes the changes of a living sandbox.
func (k *keeper) readFrom(box sandbox.Instance) {
	if k == nil {
		return
	}
	k.read = true
	k.ended()
	reader, ok := box.(sandbox.ChangeReader)
	if !ok {
		k.err = sandbox.Errorf(sandbox.ErrUnsupported, "keep changes", "this level does not tell what was changed")
		return
	}
	ctx, cancel := context.WithTimeout(k.ctx, keepLimit)
	defer cancel()
	layer, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := reader.ReadChanges(ctx, k.source.Target, w)
		w.CloseWithError(err)
		done <- err
	}()
	k.set, k.err = k.store.Keep(ctx, k.source, layer)
	layer.Close()
	if err := <-done; k.err != nil && err != nil && !errors.Is(err, io.ErrClosedPipe) {
		k.err = err // why the stream ended
	}
}

// tell says in a result what was kept.
func (k *keeper) tell(res *sandbox.Result) {
	if k == nil || res == nil {
		return
	}
	switch {
	case !k.read && res.ExitCode != nil && res.Reason != "": // no program ran, and that is why
	case !k.read:
		res.Changes = &sandbox.Changes{Problem: "the sandbox's kernel ended before its changes could be read", Hint: "raise the memory limit"}
	case k.err != nil:
		res.Changes = &sandbox.Changes{Problem: k.err.Error(), Hint: sandbox.Hint(k.err)}
	case k.set != nil:
		s := k.set
		res.Changes = &sandbox.Changes{ID: s.ID, Digest: s.Digest, Files: s.Files, Held: s.Held, Ignored: s.Ignored}
	}
}

// ChangeSets is the store of what calls changed in their workspaces. It is opened at the
// first call.
func (s *Session) ChangeSets() (*changes.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == nil {
		store, err := changes.Open(filepath.Join(s.o.State.Path(), "changes"), changes.Options{Now: s.o.Now})
		if err != nil {
			return nil, err
		}
		s.changes = store
	}
	return s.changes, nil
}
