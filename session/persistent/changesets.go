// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"io"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/changes"
)

// ChangeSets are the change sets of one key: those of another are ErrNotFound. Of an ID
// the beginning is enough where only one has it.
type ChangeSets struct {
	boxes *Sandboxes
	key   *Key
}

// ChangeSets are the change sets of a key. Nothing is looked up yet.
func (b *Sandboxes) ChangeSets(k *Key) *ChangeSets { return &ChangeSets{b, k} }

// open opens them.
func (c *ChangeSets) open() (*grant, *changes.Store, error) {
	if c.key.ID == "" { // who sees all
		return nil, nil, sandbox.Errorf(sandbox.ErrInvalid, "change sets", "they are of no key")
	}
	g, err := c.boxes.grants.oneShot(c.key)
	if err != nil {
		return nil, nil, err
	}
	store, err := g.session.ChangeSets()
	return g, store, err
}

// List lists them, the newest first.
func (c *ChangeSets) List() ([]changes.Summary, error) {
	_, store, err := c.open()
	if err != nil {
		return nil, err
	}
	return store.List(c.key.ID)
}

// Get gives one.
func (c *ChangeSets) Get(id string) (*changes.Set, error) {
	_, store, err := c.open()
	if err != nil {
		return nil, err
	}
	return store.Get(c.key.ID, id)
}

// WritePatch writes one as a diff with the files that the host has now: all of it, or what
// is at a path and below. See [changes.Store.WritePatch].
func (c *ChangeSets) WritePatch(w io.Writer, id, path string) error {
	_, store, err := c.open()
	if err != nil {
		return err
	}
	set, err := store.Get(c.key.ID, id)
	if err != nil {
		return err
	}
	return store.WritePatch(w, set, path)
}

// Files opens one with what is in its files.
func (c *ChangeSets) Files(id string) (*changes.Contents, error) {
	_, store, err := c.open()
	if err != nil {
		return nil, err
	}
	set, err := store.Get(c.key.ID, id)
	if err != nil {
		return nil, err
	}
	return store.Files(set.ID)
}

// Apply applies one, or the paths that are named, to the workspace on the host. Only what
// the key's policy lets be applied without a person is: its rules always hold. It takes the
// digest of the set as it was shown. See [changes.Store.Apply].
func (c *ChangeSets) Apply(ctx context.Context, id, digest string, paths []string) (*changes.Applied, error) {
	g, store, err := c.open()
	if err != nil {
		return nil, err
	}
	set, err := store.Get(c.key.ID, id)
	if err != nil {
		return nil, err
	}
	r, v, err := c.decide(g, set)
	if err == nil && v.Decision == policy.Deny {
		err = v.Err()
	}
	if err == nil {
		err = mayApply(&v.Plan, set, digest)
	}
	if err != nil {
		return nil, errors.Join(r.Failed(ctx, g.session.Journal(), err), r.Undo.Run(ctx))
	}
	return g.session.ApplyChanges(ctx, c.call(), set.ID, changes.ApplyOptions{Digest: digest, Paths: paths, Rules: session.Rules(v.Plan.Changes.Rules)})
}

// decide asks the policy what it says of changes in the workspace of the key.
func (c *ChangeSets) decide(g *grant, set *changes.Set) (*session.Invocation, policy.Verdict, error) {
	call := c.call()
	call.Changes = policy.ChangesWish{Keep: true, Required: true}
	r := &session.Invocation{Session: g.session, Call: call, ID: session.NewID(), Kind: policy.StartSandbox, Name: set.Run}
	v, err := r.Decide()
	r.Intent.Kind, r.Intent.Labels = session.KindApplyChanges, map[string]string{"changes": set.ID}
	return r, v, err
}

// mayApply refuses what the policy does not let be applied without a person.
func mayApply(p *policy.Plan, set *changes.Set, digest string) error {
	const op = "apply changes"
	switch {
	case len(p.Changes.Rules) == 0:
		return &sandbox.Error{Op: op, Kind: sandbox.ErrDenied, Rule: policy.RuleApply, Problem: "the key's policy lets nothing be applied without a person",
			Hint: `add to the policy: changes: {apply: ["src/**"]}; or on the host: caisson changes apply ` + set.ID}
	case p.Workspace.Source != set.Name:
		return anotherWorkspace(set)
	case digest == "":
		return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: "it has no digest of what was looked at", Hint: "give the digest that the set has"}
	}
	return nil
}

func anotherWorkspace(set *changes.Set) error {
	return &sandbox.Error{Op: "apply changes", Kind: sandbox.ErrDenied, Rule: policy.RuleApply, Problem: "the key's policy has another workspace than the one that the set was made of",
		Hint: "on the host: caisson changes apply " + set.ID}
}

// Drop removes one.
func (c *ChangeSets) Drop(ctx context.Context, id string) error {
	g, _, err := c.open()
	if err != nil {
		return err
	}
	return g.session.DropChanges(ctx, c.call(), id)
}

// call is a call of the key.
func (c *ChangeSets) call() *session.Call {
	call := &session.Call{Account: c.key.ID}
	call.Actor = c.key.Actor()
	return call
}
