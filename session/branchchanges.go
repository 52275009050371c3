// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"encoding/json"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes/gitimport"
)

// KindBranchChanges is what records call it when a branch is made of a change set.
const KindBranchChanges = "branch_changes"

// BranchOptions say what branch is made of a change set.
type BranchOptions struct {
	Branch string   `json:"branch"`
	Digest string   `json:"digest"`         // the set's, as it was shown; another is refused
	Held   []string `json:"held,omitempty"` // paths that come over although they are held back
}

// BranchChanges makes a branch of a change set, in the repository of the workspace that it
// was made of: of what was committed inside, or of one commit of the set. The record has
// the set's digest and the name before anything is written.
func (s *Session) BranchChanges(ctx context.Context, call *Call, id string, o BranchOptions) (*gitimport.Branched, error) {
	store, err := s.ChangeSets()
	if err != nil {
		return nil, err
	}
	set, err := store.Get(owner(call), id)
	if err != nil {
		return nil, err
	}
	in := s.changesIntent(call, KindBranchChanges, set)
	if in.Params, err = json.Marshal(o); err != nil {
		return nil, err
	}
	var made *gitimport.Branched
	err = audit.Perform(ctx, s.o.Journal, in, func(ctx context.Context, _ *audit.Operation) (*sandbox.Result, error) {
		if o.Digest != set.Digest {
			return nil, &sandbox.Error{Op: "change set " + set.ID, Kind: sandbox.ErrConflict, Problem: "it has another digest than the one that was shown", Hint: "show it again, and give the digest that it shows"}
		}
		files, err := store.Files(set.ID)
		if err != nil {
			return nil, err
		}
		defer files.Close()
		made, err = gitimport.Branch(ctx, files, gitimport.Options{Branch: o.Branch, Held: o.Held, Time: s.o.Now()})
		if err != nil {
			made = nil
			return nil, err
		}
		return &sandbox.Result{Status: sandbox.StatusSuccess, Reason: "branch " + made.Branch + " at " + made.Tip,
			Changes: &sandbox.Changes{ID: set.ID, Digest: set.Digest, Files: set.Files, Held: set.Held}}, nil
	})
	return made, err
}
