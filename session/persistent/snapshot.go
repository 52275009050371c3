// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"maps"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// Snapshot is a sandbox as it was at one moment; see [Create.Snapshot].
type Snapshot = registry.Snapshot

// Snapshot writes the running sandbox down, which goes on meanwhile but for a
// moment. name is the caller's own. A level that writes none refuses.
func (h *Handle) Snapshot(ctx context.Context, name string) (*Snapshot, error) {
	b, k := h.boxes, h.key
	if len(name) > maxName {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "snapshot", "its name is longer than %d bytes", maxName)
	}
	g, err := b.grants.of(k)
	if err != nil {
		return nil, err
	}
	leave, err := b.inventory.snapshotPlace(ctx, b.o.Registry, k.ID, g.profile.Quota)
	if err != nil {
		return nil, err
	}
	defer leave()
	s := &Snapshot{ID: registry.NewID("s", 20), Owner: k.ID, Name: name, Created: b.o.Clock.Now()}
	_, err = h.change(ctx, func(l locked) (err error) {
		var in *running
		var ended error // the sandbox did, once it was written down
		in, s.Kept, err = l.copyDown(ctx, "snapshot_sandbox", func(ctx context.Context, in *running, dir string) (err error) {
			s.Sandbox = l.record()
			ended, err = l.writeStill(ctx, in, dir)
			return err
		})
		if err != nil {
			return err
		}
		s.Sandbox.HideHeaders() // it may be kept for longer than the sandbox
		if s.Seal, err = l.seal(in, s.Kept); err == nil {
			s.Bytes = s.Seal.Bytes
			err = b.inventory.addSnapshot(ctx, b.o.Registry, s, g.profile.Quota)
		}
		if err != nil {
			return errors.Join(err, ended, b.kept.drop(s.Kept))
		}
		b.events.tell(s.Sandbox, "snapshot")
		return alone(s, ended)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// writeMemory writes a running sandbox into dir with its memory alone, for what is kept for a
// moment.
func (l locked) writeMemory(ctx context.Context, in *running, dir string) error {
	return in.box.(sandbox.Snapshotter).Snapshot(ctx, dir, false)
}

// alone tells of a snapshot whose sandbox has ended for a reason; nil without one.
func alone(s *Snapshot, ended error) error {
	if ended == nil {
		return nil
	}
	return &sandbox.Error{Op: "snapshot", Kind: sandbox.ErrUnavailable, Problem: "the sandbox was written down as " + s.ID + ", did not go on, and has ended",
		Hint: "go on with it: caisson sandbox create --snapshot " + s.ID, Cause: ended}
}

// writeStill writes a running sandbox into dir as it was at one moment, with its files beside
// its memory. One that does not go on afterwards ends: ended says so where what was written is
// whole, else err.
func (l locked) writeStill(ctx context.Context, in *running, dir string) (ended, err error) {
	box, ok := in.box.(sandbox.Pauser)
	if !ok {
		return nil, cannotPause(in.run.Plan.Isolation)
	}
	if err = box.Pause(ctx); err == nil {
		err = l.writeOut(ctx, in, dir)
	}
	if undo := box.Resume(ctx); undo != nil {
		ended = errors.Join(undo, l.end(ctx, "it did not go on after a snapshot: "+undo.Error()))
	}
	if err != nil {
		return nil, errors.Join(err, ended)
	}
	return ended, nil
}

// copyDown has write write a running sandbox into a directory of its own, which is the
// caller's.
func (l locked) copyDown(ctx context.Context, kind string, write func(context.Context, *running, string) error) (in *running, kept string, err error) {
	b := l.b
	if err := l.awake(ctx); err != nil {
		return nil, "", err
	}
	ctx = context.WithoutCancel(ctx)
	l.mu.Lock()
	in = l.in
	rec := l.rec
	l.mu.Unlock()
	if in == nil {
		if rec.State == registry.Ended {
			return nil, "", l.gone()
		}
		return nil, "", &sandbox.Error{Op: "snapshot", Kind: sandbox.ErrConflict, Problem: "the sandbox is paused", Hint: "resume it first"}
	}
	if _, ok := in.box.(sandbox.Snapshotter); !ok || !in.caps.Snapshot {
		return nil, "", &sandbox.Error{Op: "snapshot", Kind: sandbox.ErrUnsupported, Problem: rec.Isolation + " cannot write a sandbox down", Hint: "take another level: --isolation gvisor"}
	}
	intent := audit.Intent{Actor: rec.Actor, Account: rec.Owner, Kind: kind, Sandbox: l.id, Isolation: rec.Isolation}
	err = audit.Perform(ctx, b.o.Journal, intent, func(ctx context.Context, _ *audit.Operation) (*sandbox.Result, error) {
		var dir string
		if kept, dir, err = b.kept.create(); err == nil {
			err = write(ctx, in, dir)
		}
		if err != nil {
			err = errors.Join(err, b.kept.drop(kept))
		}
		return nil, err
	})
	if err != nil {
		return nil, "", err
	}
	return in, kept, nil
}

// Snapshots lists a key's snapshots, newest first: those of one sandbox, unless
// of is empty.
func (b *Sandboxes) Snapshots(ctx context.Context, k *Key, of string) ([]*Snapshot, error) {
	all, err := b.o.Registry.Snapshots(ctx, k.ID)
	if err != nil || of == "" {
		return all, err
	}
	var out []*Snapshot
	for _, s := range all {
		if s.Sandbox.ID == of {
			out = append(out, s)
		}
	}
	return out, nil
}

// DeleteSnapshot removes a snapshot. Sandboxes that go on from it already need it
// no longer.
func (b *Sandboxes) DeleteSnapshot(ctx context.Context, k *Key, id string) error {
	s, err := b.o.Registry.GetSnapshot(ctx, k.ID, id)
	if err != nil {
		return err
	}
	dropped, err := b.o.Registry.DropSnapshot(ctx, id)
	if err != nil {
		return err
	}
	if dropped { // by this call, and no other
		b.inventory.giveRoom(s)
	}
	return b.kept.drop(s.Kept)
}

// from is c with the environment of the sandbox that was written down in a snapshot: it
// goes on as it was, so that only its network may be another.
func (c *Create) from(s *Snapshot) (*registry.Sandbox, error) {
	if len(c.Limits.Explicit) > 0 || len(c.Writable) > 0 || c.Isolation != "" && c.Isolation != s.Sandbox.Isolation || c.Template != "" {
		return nil, &sandbox.Error{Op: "create sandbox", Kind: sandbox.ErrInvalid, Problem: "a snapshot goes on with its own template, level, limits and directories", Hint: "leave them out"}
	}
	rec := s.Sandbox.Clone()
	if rec.Env == nil {
		rec.Env = map[string]string{}
	}
	maps.Copy(rec.Env, c.Env)
	switch w := c.Network; {
	case w == nil:
	case len(w.Headers) > 0 && len(rec.Headers) == 0:
		return nil, withoutHeaders("create sandbox")
	case rec.Wired: // its environment keeps the wire
		rec.HideHeaders()
		rec.Reach = &registry.Reach{Allow: w.Allow, Deny: w.Deny, None: w.None, Headers: w.Headers}
	default:
		rec.Allow, rec.Deny, rec.NoNetwork = w.Allow, w.Deny, w.None
	}
	return &registry.Sandbox{
		Template: rec.Template, Image: rec.Image, ImageDigest: rec.ImageDigest, Isolation: rec.Isolation, Asked: rec.Asked, Env: rec.Env,
		Allow: rec.Allow, Deny: rec.Deny, NoNetwork: rec.NoNetwork, Reach: rec.Reach, Headers: rec.Headers, Placeholders: rec.Placeholders, Sudo: rec.Sudo, OwnImage: rec.OwnImage, Writable: rec.Writable, Unwarmed: rec.Unwarmed,
	}, nil
}
