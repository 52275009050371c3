// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/changes"
	"github.com/caisson-run/caisson/session/registry"
)

// Create makes a sandbox and starts it. It is the key's alone.
//
// Errors: ErrInvalid for what cannot be meant, ErrNotFound for a template that
// is not there, ErrDenied with the rule that refuses it, ErrExhausted for a
// quota, ErrUnsupported for what the level cannot do.
func (b *Sandboxes) Create(ctx context.Context, k *Key, c Create) (*Sandbox, error) {
	return (&creation{b: b, key: k, want: c}).run(ctx)
}

// creation is the making of one sandbox for a key.
type creation struct {
	b    *Sandboxes
	key  *Key
	name string // what Acquire finds it by; empty without
	want Create
	from *Snapshot // what it goes on from; nil without

	called time.Time // when the call came
}

// record is the new sandbox's record.
func (n *creation) record(lifetime time.Duration) (*registry.Sandbox, error) {
	c, from := &n.want, n.from
	rec := &registry.Sandbox{Template: c.Template, Env: c.Env, Isolation: c.Isolation, Asked: c.Limits, Writable: c.Writable}
	if w := c.Network; w != nil {
		rec.Allow, rec.Deny, rec.NoNetwork, rec.Headers = w.Allow, w.Deny, w.None, w.Headers
	}
	if from != nil {
		var err error
		if rec, err = c.from(from); err != nil {
			return nil, err
		}
	}
	rec.ID, rec.Owner, rec.Actor, rec.Name, rec.Metadata = registry.NewID("i", 20), n.key.ID, n.key.Actor(), n.name, c.Metadata
	rec.Lifetime, rec.Idle, rec.AutoResume = lifetime, c.Idle, c.AutoResume
	rec.Notes, rec.Names = c.Notes, registry.NewNames()
	if from != nil { // whom its ports let in, they let in as before, unless the caller says otherwise
		rec.Notes = map[string]string{}
		for name, note := range from.Sandbox.Notes {
			if strings.HasPrefix(name, PortNotes) {
				rec.Notes[name] = note
			}
		}
		maps.Copy(rec.Notes, c.Notes)
	}
	rec.OnTimeout = cmp.Or(c.OnTimeout, registry.Kill)
	rec.Template = cmp.Or(rec.Template, BaseTemplate)
	if err := n.wishes(rec); err != nil {
		return nil, err
	}
	if from == nil {
		m, err := n.b.madeOf(n.key, rec.Template)
		if errors.Is(err, sandbox.ErrNotFound) && rec.Template == InterpreterTemplate {
			rec.Template = BaseTemplate
			m, err = n.b.madeOf(n.key, rec.Template)
		}
		if err != nil {
			return nil, err
		}
		rec.Image, rec.OwnImage, rec.Sudo = m.image, m.own, m.root
		if w := rec.Wishes; w != nil && w.Image != "" {
			rec.Image = w.Image
		}
	}
	return rec.Clone(), nil // the maps are the caller's
}

// wishes notes what the owner of this host asks for besides.
func (n *creation) wishes(rec *registry.Sandbox) error {
	w := n.want.Wishes
	switch {
	case w != nil && n.key.Owner == "":
		return sandbox.Errorf(sandbox.ErrDenied, "create sandbox", "only the operator asks for things of this host")
	case w != nil && n.from != nil:
		return sandbox.Errorf(sandbox.ErrInvalid, "create sandbox", "what is made of a snapshot has what that has")
	case n.key.Owner != "":
		rec.Wishes = cmp.Or(w, &policy.Call{})
	}
	return nil
}

// run makes the sandbox.
func (n *creation) run(ctx context.Context) (_ *Sandbox, err error) {
	n.called = time.Now()
	b, c := n.b, &n.want
	if c.Snapshot != "" {
		if n.from, err = b.o.Registry.GetSnapshot(ctx, n.key.ID, c.Snapshot); err != nil {
			return nil, err
		}
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	g, err := b.grants.of(n.key)
	if err != nil {
		return nil, err
	}
	lifetime, err := g.profile.lifetime(c.Timeout)
	if err != nil {
		return nil, err
	}
	rec, err := n.record(lifetime)
	if err != nil {
		return nil, err
	}
	defer b.warmPool.Hold()()
	call := callFor(rec)
	call.Frontend = c.Frontend
	r := g.starting(rec, call)
	if n.from != nil {
		if err := b.judgeOwn(r, rec); err != nil {
			return nil, err
		}
	} else {
		r.OfferRoot()
		if b.warmPool.wants(c) {
			b.warmPool.want(b.warmPool.kindOf(g, rec))
		}
	}
	l, err := b.reserve(g, rec, r)
	if err != nil {
		return nil, err
	}
	defer l.unlock()
	if err := n.start(ctx, l, g, r); err != nil {
		b.inventory.remove(l.managed)
		return nil, err
	}
	if in := l.here(); n.from == nil && in != nil && !in.remembers {
		if err := l.prepare(ctx, n.key); err != nil {
			return nil, errors.Join(err, l.end(context.WithoutCancel(ctx), "its template did not get ready"))
		}
		b.memories.want(in.memory, in, l.record())
	}
	if n.from == nil { // a copy has what that had
		if err := l.noteUnwarmed(ctx); err != nil {
			return nil, errors.Join(err, l.end(context.WithoutCancel(ctx), "it could not be kept"))
		}
	}
	rec = l.record()
	b.events.tell(rec, "created")
	l.tellRebooted()
	return rec, nil
}

// noteUnwarmed notes why the warmup of its template was not done in a sandbox that was just made.
func (l locked) noteUnwarmed(ctx context.Context) error {
	in := l.here()
	if in == nil {
		return nil
	}
	why := l.b.memories.unwarmed(in, l.record())
	if why == l.record().Unwarmed {
		return nil
	}
	return l.keep(ctx, func(s *registry.Sandbox) { s.Unwarmed = why })
}

// start starts the sandbox, which has its place.
func (n *creation) start(ctx context.Context, l locked, g *grant, r *session.Invocation) error {
	var kept keptState
	if n.from != nil {
		kept = keptState{n.b.kept.path(n.from.Kept), n.from.Seal}
	}
	var began time.Time
	if v, err := r.Verdict(); err == nil && v.Plan.Workspace != nil {
		began = changes.Clock(n.called)
	}
	in, a, err := l.boot(ctx, g, r, kept)
	if err != nil {
		return err
	}
	if err := in.canPause(l.record().OnTimeout); err != nil {
		return errors.Join(err, in.close(ctx))
	}
	ws, err := session.WorkspaceOf(&in.run.Plan, in.env, began)
	if err != nil {
		return errors.Join(err, in.close(ctx))
	}
	err = l.keep(ctx, func(s *registry.Sandbox) {
		now := n.b.o.Clock.Now()
		s.State, s.Created, s.Started, s.Began, s.Ends = registry.Running, now, now, now, now.Add(s.Lifetime)
		s.Isolation, s.Limits, s.Posture = a.Posture.Isolation, in.run.Plan.Limits, a.Posture
		s.Sudo, s.Names = in.env.Spec.Sudo, in.run.Names
		bound(s, now)
		s.Wired, s.Network, s.Denied, s.Life = in.run.Network != nil, in.run.Hosts, in.run.Denied, in.life()
		s.Placeholders, s.Workspace = maps.Clone(in.run.Placeholders()), n.workspace(ws)
		s.Rebooted, s.ImageDigest = in.rebooted, in.imageDigest()
	})
	if err != nil {
		return errors.Join(err, in.close(ctx))
	}
	l.begin(in)
	return nil
}

// workspace is what is known of the sandbox's workspace. What was changed in a sandbox that
// goes on was changed since the first one was made.
func (n *creation) workspace(made *registry.Workspace) *registry.Workspace {
	if n.from == nil || made == nil {
		return made
	}
	was := n.from.Sandbox.Workspace
	if was == nil || was.Dev != made.Dev || was.Inode != made.Inode {
		return nil // its files were another directory's
	}
	made.Began = was.Began
	return made
}

// reserve takes a place for the sandbox of a call.
func (b *Sandboxes) reserve(g *grant, rec *registry.Sandbox, r *session.Invocation) (locked, error) {
	l := newLocked(b, rec)
	v, _ := r.Verdict()              // what goes wrong goes wrong in admit
	l.quota.reserved = v.Plan.Limits // none where it will be refused
	if err := b.inventory.add(l.managed, g.profile.Quota); err != nil {
		return locked{}, err
	}
	return l, nil
}

// Withdraw ends a sandbox whose caller has gone before it was told its id, unless the
// sandbox has ended. Only the frontend knows that, so no key is checked. ctx may be over.
func (b *Sandboxes) Withdraw(ctx context.Context, id string) error {
	ctx = context.WithoutCancel(ctx)
	found := b.inventory.get(id)
	if found == nil {
		return nil
	}
	l, err := found.lock(ctx)
	if err != nil {
		return err
	}
	defer l.unlock()
	if l.state() == registry.Ended {
		return nil
	}
	return l.end(ctx, "who asked for it has gone")
}

// callFor is what is asked for with a sandbox, as the pipeline has it.
func callFor(s *registry.Sandbox) *session.Call {
	c := &session.Call{Account: s.Owner}
	if s.Wishes != nil {
		c.Call, c.Operator = *s.Wishes, true
	}
	c.Actor, c.Env, c.Image, c.Limits, c.Isolation = s.Actor, s.Env, s.Image, s.Asked, s.Isolation
	c.Network, c.NetworkDeny, c.NoNetwork, c.Writable = s.Allow, s.Deny, s.NoNetwork, s.Writable
	c.Headers = s.Headers
	c.Sudo, c.OwnImage = s.Sudo, s.OwnImage
	return c
}

// starting is the call that starts the sandbox of rec.
func (g *grant) starting(rec *registry.Sandbox, call *session.Call) *session.Invocation {
	return &session.Invocation{Session: g.session, Call: call, ID: session.NewID(), Kind: policy.StartSandbox, Name: rec.ID, Origin: session.Origin{Reach: rec.Reach, Names: rec.Names, Image: rec.ImageDigest}, Resources: session.Resources{Known: rec.Placeholders}}
}
