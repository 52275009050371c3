// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"context"
	"io"

	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/changes"
)

// ChangeSets are what requests changed in copy-on-write workspaces and kept
// ([Request.KeepChanges]): all of the state directory, for 7 days. Nothing of them is on
// the host before Apply.
type ChangeSets struct{ session *session.Session }

// ChangeSets are those of the state directory.
func (c *Caisson) ChangeSets() *ChangeSets { return &ChangeSets{c.session} }

// List lists them, the newest first.
func (s *ChangeSets) List() ([]changes.Summary, error) {
	store, err := s.session.ChangeSets()
	if err != nil {
		return nil, err
	}
	return store.List("")
}

// Get gives one, by its ID or the beginning of it where only one has that. Names in it are
// of the code's making: [changes.Shown] makes them fit to print.
func (s *ChangeSets) Get(id string) (*changes.Set, error) {
	store, err := s.session.ChangeSets()
	if err != nil {
		return nil, err
	}
	return store.Get("", id)
}

// WritePatch writes what was changed as a diff with the files that the host has now: all
// of it, or what is at a path and below. It is to be read, not to be fed to patch.
func (s *ChangeSets) WritePatch(w io.Writer, set *changes.Set, path string) error {
	store, err := s.session.ChangeSets()
	if err != nil {
		return err
	}
	return store.WritePatch(w, set, path)
}

// Apply applies a set to its workspace on the host. The options have the digest of the
// set that was looked at, and may name paths. See [changes.Store.Apply] for what a
// conflict is.
func (s *ChangeSets) Apply(ctx context.Context, id string, o changes.ApplyOptions) (*changes.Applied, error) {
	return s.session.ApplyChanges(ctx, operator(), id, o)
}

// Drop removes a set.
func (s *ChangeSets) Drop(ctx context.Context, id string) error {
	return s.session.DropChanges(ctx, operator(), id)
}

// operator is a call of who runs the program.
func operator() *session.Call {
	c := &session.Call{Frontend: frontend}
	c.Operator = true
	return c
}
