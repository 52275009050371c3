// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// KeepChanges keeps what was changed so far in the workspace of the running sandbox as a
// change set of its key; ignored keeps also what .gitignore files ignore. Programs stand
// still meanwhile, and go on. It is nil when nothing was changed that is kept.
//
// The workspace is the one that the key's policy names, copy-on-write. Errors:
// ErrUnsupported for a sandbox without one and for a level that does not tell what was
// changed, ErrDenied where the policy keeps nothing, ErrConflict when it is paused.
func (h *Handle) KeepChanges(ctx context.Context, ignored bool) (kept *sandbox.Changes, err error) {
	g, err := h.boxes.grants.of(h.key)
	if err != nil {
		return nil, err
	}
	_, err = h.change(ctx, func(l locked) error {
		kept, err = l.keepChanges(ctx, g, ignored)
		return err
	})
	return kept, err
}

// keepChanges decides it like what else is done with the sandbox, and records it.
func (l locked) keepChanges(ctx context.Context, g *grant, ignored bool) (*sandbox.Changes, error) {
	if err := l.awake(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	in, rec := l.in, l.rec.Clone()
	l.mu.Unlock()
	if in == nil {
		if rec.State == registry.Ended {
			return nil, l.gone()
		}
		return nil, &sandbox.Error{Op: "keep changes", Kind: sandbox.ErrConflict, Problem: "the sandbox is paused", Hint: "resume it first"}
	}
	call := callFor(rec)
	call.Changes = policy.ChangesWish{Keep: true, Required: true, Ignored: ignored}
	r := g.starting(rec, call)
	v, err := r.Decide()
	r.Intent.Kind = session.KindKeepChanges
	if err == nil {
		err = cannotKeep(rec, in)
	}
	if err == nil && v.Decision == policy.Deny {
		err = v.Err()
	}
	if err != nil {
		return nil, errors.Join(r.Failed(ctx, l.b.o.Journal, err), r.Undo.Run(ctx))
	}
	r.Plan = v.Plan
	return r.KeepChanges(ctx, in.box, rec.Workspace)
}

// cannotKeep refuses by name what the sandbox or its level has not.
func cannotKeep(rec *Sandbox, in *running) error {
	e := &sandbox.Error{Op: "keep changes", Kind: sandbox.ErrUnsupported}
	_, reads := in.box.(sandbox.ChangeReader)
	switch {
	case rec.Workspace == nil:
		e.Problem, e.Hint = "the sandbox has no copy-on-write workspace", "name one in its key's policy, files: {workspace: {source: DIR}}, and make it anew"
	case !reads || !in.caps.Changes:
		e.Problem, e.Hint = rec.Isolation+" does not tell what was changed", "take another level: --isolation gvisor"
	default:
		return nil
	}
	return e
}
