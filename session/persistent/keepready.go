// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"context"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// likeness is what KeepReady has kept ready.
type likeness struct {
	key   *Key
	like  Create
	ready int
}

// KeepReady keeps n sandboxes ready, 1 to [session.MaxReady], for each Create of the key that
// asks for what like does; its metadata, notes, variables and times do not matter. They are that
// key's alone. While they wait they count for no quota and have no time that ends; given away,
// one is a sandbox of the key like any other. One waits when it returns. What cannot be made
// ahead, or not by the key, is an error. It is not undone before Close.
func (b *Sandboxes) KeepReady(ctx context.Context, k *Key, like Create, n int) error {
	if n < 1 || n > session.MaxReady {
		return sandbox.Errorf(sandbox.ErrInvalid, "pool", "from 1 to %d sandboxes are kept ready", session.MaxReady)
	}
	like.Env, like.Metadata, like.Notes, like.Lifetime = nil, nil, nil, Lifetime{}
	if err := like.check(); err != nil {
		return err
	}
	g, err := b.grants.of(k)
	if err != nil {
		return err
	}
	p := b.warmPool
	p.mu.Lock()
	p.likes = append(p.likes, likeness{k, like, n})
	kind := warmKind{grant: g, template: cmp.Or(like.Template, BaseTemplate), owner: k.ID, like: len(p.likes)}
	p.mu.Unlock()
	m, err := p.make(ctx, kind)
	if err == nil {
		p.Add(kind, m)
	}
	return err
}

// likeOf is what a kind is like; the zero value where that is its template alone.
func (p *warmPool) likeOf(k warmKind) likeness {
	if k.like == 0 {
		return likeness{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.likes[k.like-1]
}

// invocation is what makes a sandbox like l, as the key's own would be made.
func (l *likeness) invocation(b *Sandboxes, g *grant) (*session.Invocation, error) {
	rec, err := (&creation{b: b, key: l.key, want: l.like}).record(0)
	if err != nil {
		return nil, err
	}
	r := g.starting(rec, callFor(rec))
	r.Ahead, r.Name = true, ""
	r.OfferRoot()
	return r, nil
}
