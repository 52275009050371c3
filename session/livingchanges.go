// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/registry"
)

// KindKeepChanges is what records call it when the changes in the workspace of a
// persistent sandbox are kept.
const KindKeepChanges = "keep_changes"

// WorkspaceOf is the copy-on-write workspace that a sandbox was made with; nil without one.
// began is by changes.Clock, before it was made.
func WorkspaceOf(p *policy.Plan, e *environment.Environment, began time.Time) (*registry.Workspace, error) {
	ws := p.Workspace
	if ws == nil || ws.Access != sandbox.CopyOnWrite {
		return nil, nil
	}
	target := environment.WorkspaceTarget(ws)
	for _, m := range e.Spec.Mounts {
		if m.Target != target {
			continue
		}
		root, err := changes.RootOf(m.Source)
		if err != nil {
			return nil, err
		}
		return &registry.Workspace{Began: began, Dev: root.Dev, Inode: root.Inode, Below: mountedBelow(e.Spec, target)}, nil
	}
	return nil, sandbox.Errorf(sandbox.ErrUnavailable, "workspace", "it is not among the mounts")
}

// KeepChanges keeps what was changed so far in the workspace of the sandbox box, which
// goes on. The call of r says who asks; its Plan has been decided. It is nil when nothing
// was changed that is kept. What keeps it from being carried out is recorded.
func (r *Invocation) KeepChanges(ctx context.Context, box sandbox.Instance, ws *registry.Workspace) (*sandbox.Changes, error) {
	r.Intent.Kind, r.Intent.Isolation, r.Intent.Mounts = KindKeepChanges, r.Plan.Isolation, mountsForRecord(&policy.Plan{Workspace: r.Plan.Workspace})
	var kept *sandbox.Changes
	err := audit.Perform(ctx, r.Session.o.Journal, r.Intent, func(ctx context.Context, _ *audit.Operation) (*sandbox.Result, error) {
		k, err := newLivingKeeper(ctx, r, ws)
		if err != nil {
			return nil, err
		}
		k.readFrom(box)
		if k.err != nil {
			return nil, k.err
		}
		res := &sandbox.Result{Status: sandbox.StatusSuccess}
		k.tell(res)
		kept = res.Changes
		return res, nil
	})
	return kept, errors.Join(err, r.Undo.Run(ctx))
}

// newLivingKeeper is that of a persistent sandbox: the directory that its policy names has to
// be the one that it was made with.
func newLivingKeeper(ctx context.Context, r *Invocation, ws *registry.Workspace) (*keeper, error) {
	store, err := r.Session.ChangeSets()
	if err != nil {
		return nil, err
	}
	plan := r.Plan.Workspace
	src, err := r.Session.host(r.Call, &r.Undo).Open(plan.PlanPath, "workspace", plan.Access)
	if err != nil {
		return nil, err
	}
	if src.Dev != ws.Dev || src.Ino != ws.Inode {
		return nil, &sandbox.Error{Op: "keep changes", Kind: sandbox.ErrConflict, Problem: sandbox.Quoted(plan.Source) + " is another directory than the one that the sandbox was made with", Hint: "make a sandbox with the one that is there now"}
	}
	return &keeper{store: store, ctx: ctx, ended: func() {}, source: changes.Source{
		Root: src.File, Name: plan.Source, Target: environment.WorkspaceTarget(plan), Owner: owner(r.Call), Run: r.Name, Began: ws.Began,
		KeepIgnored: r.Plan.Changes.Ignored, Exclude: notItsOwn(ws.Below).covers,
	}}, nil
}
