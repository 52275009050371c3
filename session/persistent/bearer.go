// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// Some who come to a sandbox have no key but a right of that sandbox's own: its
// token (see [Sandboxes.Token]), or the name of a port that is public. Frontends
// check that right; what they do then is decided by the key of the owner.

// Find returns a sandbox by its ID, whosever it is, and its owner's key; one that
// has ended is ErrNotFound. The caller has checked, or checks, a right to it.
func (b *Sandboxes) Find(ctx context.Context, id string) (*Sandbox, *Key, error) {
	l := b.inventory.get(id)
	if l == nil || !l.there() {
		return nil, nil, sandbox.Errorf(sandbox.ErrNotFound, "sandbox "+sandbox.Quoted(sandbox.Clip(id, 64)), "there is none")
	}
	k, err := l.ownerOf(ctx)
	if err != nil {
		return nil, nil, err
	}
	return l.record(), k, nil
}

// Search returns the sandbox that is meant, whosever it is, and its owner's key.
// meant must not call Sandboxes but for Token.
func (b *Sandboxes) Search(ctx context.Context, meant func(*Sandbox) bool) (*Sandbox, *Key, error) {
	for _, l := range b.inventory.list() {
		if !l.there() {
			continue
		}
		if rec := l.record(); meant(rec) {
			k, err := l.ownerOf(ctx)
			return rec, k, err
		}
	}
	return nil, nil, sandbox.Errorf(sandbox.ErrNotFound, "sandbox", "there is none")
}

// there says that it was made and has neither ended nor begun to end: who hears
// that it is gone and asks about it is told the same.
func (l *managed) there() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.rec.State
	return s != "" && s != registry.Ended && (s != registry.Running || l.in != nil || l.cold() != "" && !l.timers.silent)
}

// ownerOf is the key that l belongs to, which may be revoked by now: its
// sandboxes live until their time is over.
func (l *managed) ownerOf(ctx context.Context) (*Key, error) {
	b := l.b
	if l.owner == GivenKey {
		return &Key{ID: GivenKey, Name: GivenKey}, nil
	}
	return b.o.Registry.KeyByID(ctx, l.owner)
}

// Counts is how many sandboxes there are of all keys together, by state; of those that run,
// how many have gone cold, too.
func (b *Sandboxes) Counts() map[string]int {
	n := map[string]int{}
	for _, l := range b.inventory.list() {
		if l.there() {
			rec := l.record()
			n[string(rec.State)]++
			if rec.Cold != "" {
				n[string(rec.Cold)]++
			}
		}
	}
	return n
}
