// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"encoding/json"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
)

// KindApplyChanges and KindDropChanges are what records call it when a change set is
// applied to the host, or removed.
const (
	KindApplyChanges = "apply_changes"
	KindDropChanges  = "drop_changes"
)

// ApplyChanges applies a change set to the workspace that it was made of. call says who
// asks; its policy's rules count where no person looks (Rules). The record has the set's
// digest and the paths before anything is written, and what was applied afterwards. Errors
// are those of [changes.Store.Apply]; what was applied is in the answer beside them.
func (s *Session) ApplyChanges(ctx context.Context, call *Call, id string, o changes.ApplyOptions) (*changes.Applied, error) {
	store, err := s.ChangeSets()
	if err != nil {
		return nil, err
	}
	set, err := store.Get(owner(call), id)
	if err != nil {
		return nil, err
	}
	params, err := json.Marshal(struct {
		ID     string          `json:"id"`
		Digest string          `json:"digest"`
		Paths  []string        `json:"paths,omitempty"`
		Held   []string        `json:"held,omitempty"`
		Rules  []changes.Rules `json:"rules,omitempty"`
	}{set.ID, o.Digest, o.Paths, o.Held, o.Rules})
	if err != nil {
		return nil, err
	}
	in := s.changesIntent(call, KindApplyChanges, set)
	in.Params = params
	var applied *changes.Applied
	err = audit.Perform(ctx, s.o.Journal, in, func(ctx context.Context, _ *audit.Operation) (*sandbox.Result, error) {
		applied, err = store.Apply(ctx, set.ID, o)
		if err != nil {
			return nil, err
		}
		return &sandbox.Result{Status: sandbox.StatusSuccess, Changes: &sandbox.Changes{
			ID: set.ID, Digest: set.Digest, Files: set.Files, Held: set.Held, Applied: applied.Paths,
		}}, nil
	})
	return applied, err
}

// DropChanges removes a change set.
func (s *Session) DropChanges(ctx context.Context, call *Call, id string) error {
	store, err := s.ChangeSets()
	if err != nil {
		return err
	}
	set, err := store.Get(owner(call), id)
	if err != nil {
		return err
	}
	return audit.Perform(ctx, s.o.Journal, s.changesIntent(call, KindDropChanges, set), func(context.Context, *audit.Operation) (*sandbox.Result, error) {
		return nil, store.Drop(set.ID)
	})
}

// changesIntent is what a record says of a change set before something is done with it.
func (s *Session) changesIntent(call *Call, kind string, set *changes.Set) audit.Intent {
	return audit.Intent{
		Actor: call.Actor, Kind: kind, Sandbox: set.Run, Policy: s.o.PolicyName, PolicySHA: s.o.Policy.Digest(), Account: call.Account,
		Mounts: []audit.Mount{{Name: set.Name, Target: set.Target, Access: sandbox.ReadWrite.String()}},
		Labels: map[string]string{"changes": set.ID},
	}
}

// applyByRules applies what the policy lets be applied without a person.
func applyByRules(ctx context.Context, r *Invocation, res *sandbox.Result) {
	if res == nil || res.Changes == nil || res.Changes.ID == "" || len(r.Plan.Changes.Rules) == 0 {
		return
	}
	applied, err := r.Session.ApplyChanges(context.WithoutCancel(ctx), r.Call, res.Changes.ID, changes.ApplyOptions{
		Digest: res.Changes.Digest, Rules: Rules(r.Plan.Changes.Rules), SkipConflicts: true,
	})
	if applied != nil {
		res.Changes.Applied = applied.Paths
		if n := len(applied.Conflicts); n > 0 {
			res.Changes.Problem, res.Changes.Hint = changes.Shown(applied.Conflicts[0].Path)+": "+applied.Conflicts[0].Why, "caisson changes show "+res.Changes.ID
		}
	}
	if err != nil {
		res.Changes.Problem, res.Changes.Hint = err.Error(), sandbox.Hint(err)
	}
}

// Rules are a policy's rules as a change set takes them.
func Rules(of []policy.ChangeRules) []changes.Rules {
	var rules []changes.Rules
	for _, r := range of {
		rules = append(rules, changes.Rules{Apply: r.Apply, Hold: r.Hold, MaxFiles: r.MaxFiles})
	}
	return rules
}
