// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/changes"
	"github.com/caisson-run/caisson/session/toolcall"
)

// maxAsked is how much of a diff people are shown in a question, in bytes. It has to fit
// where the least is shown, at a client of MCP.
const maxAsked = 8 << 10

// Applying implements [toolcall.Boxes]. What is held back is never applied for a tool,
// also after a yes. Nor is what another caller's apply left half way.
func (t toolbox) Applying(u *toolcall.Use) (*toolcall.Applying, error) {
	sets := t.boxes.ChangeSets(t.key)
	g, store, err := sets.open()
	if err != nil {
		return nil, err
	}
	set, err := store.Get(t.key.ID, u.Args.Text("id"))
	if err != nil {
		return nil, err
	}
	r, v, err := sets.decide(g, set)
	if err == nil && v.Decision == policy.Deny {
		err = v.Err()
	}
	if err = errors.Join(err, r.Undo.Run(context.Background())); err != nil {
		return nil, err
	}
	o := changes.ApplyOptions{Digest: u.Args.Text("digest"), Paths: u.Args.Texts("paths")}
	if err := mayTool(&v.Plan, set, o.Digest); err != nil {
		return nil, err
	}
	o.Rules = []changes.Rules{{Apply: []string{"**"}, Hold: v.Plan.Changes.Hold}}
	chosen, left, err := changes.Chosen(set, &o)
	if err != nil {
		return nil, userAlone(set, err)
	}
	if len(chosen) == 0 {
		return nil, userAlone(set, &sandbox.Error{Op: "apply changes", Kind: sandbox.ErrDenied, Problem: "all of it is held back", Rule: "built-in: held back"})
	}
	ruled := o
	ruled.Rules = session.Rules(v.Plan.Changes.Rules)
	some, _, err := changes.Chosen(set, &ruled)
	a := &toolcall.Applying{Ruled: err == nil && len(ruled.Rules) > 0 && slices.Equal(some, chosen)}
	if a.Ruled {
		o = ruled
	}
	a.About = func() ([]string, error) { return aboutApply(store, set, chosen, len(left)) }
	a.Do = func(ctx context.Context) (map[string]any, error) {
		applied, err := g.session.ApplyChanges(ctx, sets.call(), set.ID, o)
		if err != nil {
			return nil, err
		}
		return appliedOutput(applied), nil
	}
	return a, nil
}

// mayTool refuses what no tool applies, also after a yes.
func mayTool(p *policy.Plan, set *changes.Set, digest string) error {
	e := &sandbox.Error{Op: "apply changes", Kind: sandbox.ErrConflict, Hint: "on the host: caisson changes apply " + set.ID}
	switch {
	case digest != set.Digest:
		e.Problem, e.Hint = "it has another digest than the one that was shown", "show it again, and give the digest that it shows"
	case set.State.Unfinished:
		e.Problem = "an apply of it ended half way, and the user has to go on with that"
	case p.Workspace.Source != set.Name:
		return anotherWorkspace(set)
	default:
		return nil
	}
	return e
}

// userAlone says to who may not name what is held back who may.
func userAlone(set *changes.Set, err error) error {
	var e *sandbox.Error
	if errors.Is(err, sandbox.ErrDenied) && errors.As(err, &e) {
		told := *e
		told.Hint = "the user alone applies it, on the host: caisson changes show " + set.ID
		return &told
	}
	return err
}

// aboutApply is what people see who are asked: where it goes, each path, and the diff with
// what the host has now where that is short.
func aboutApply(store *changes.Store, set *changes.Set, chosen []*changes.Entry, left int) ([]string, error) {
	out := []string{fmt.Sprintf("change set %s is applied to %s: %d paths (held back: %d)", set.ID, changes.Shown(set.Name), len(chosen), left)}
	diff := &cutText{maximum: maxAsked}
	if err := store.WriteEntries(diff, set, chosen); err != nil && !errors.Is(err, errCut) {
		return nil, err
	}
	if !diff.cut {
		return append(out, strings.Split(strings.TrimSuffix(diff.text.String(), "\n"), "\n")...), nil
	}
	for _, e := range chosen {
		out = append(out, e.Line())
	}
	return append(out, "the diff is too long to be shown here: caisson changes show "+set.ID), nil
}

// textOf is a name as text.
func textOf(name string) string {
	if !utf8.ValidString(name) {
		return changes.Shown(name)
	}
	return name
}
