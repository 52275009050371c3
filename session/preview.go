// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/volume"
)

// Preview is what a call would run under.
type Preview struct {
	Isolation string          `json:"isolation"`
	Clauses   []policy.Clause `json:"clauses"`
	Posture   sandbox.Posture `json:"posture"`
	// Volumes are those of the plan, and Left what of the caller's PATH is not shown.
	Volumes []volume.Volume    `json:"volumes,omitempty"`
	Left    []environment.Left `json:"path_left,omitempty"`
	// Kept says that what is changed in the workspace becomes a change set.
	Kept bool `json:"changes_kept"`
}

// Preview says what a call would run under: it decides it, asks the level, and opens and
// judges the paths of the host that it names. It runs and makes nothing, and has no record;
// a refusal is its error.
func (s *Session) Preview(ctx context.Context, call *Call) (p *Preview, err error) {
	r := &Invocation{Session: s, Call: call, ID: NewID()}
	defer func() { err = errors.Join(err, r.Undo.Run(ctx)) }()
	v, err := r.Verdict()
	if err != nil {
		return nil, err
	}
	if v.Decision == policy.Deny {
		return nil, v.Err()
	}
	r.Plan = v.Plan
	if n := r.Plan.Network; n != nil {
		for _, secret := range n.Secrets {
			r.Intent.Secrets = append(r.Intent.Secrets, secret.Name)
		}
	}
	p = &Preview{Isolation: r.Plan.Isolation}
	if _, p.Posture, err = r.Level(ctx, r.Session, r.Call); err != nil {
		return nil, err
	}
	p.Clauses = policy.ExplainPlan(s.o.Policy, call.Operator, &r.Plan, map[string]sandbox.Capabilities{r.Plan.Isolation: r.Caps})
	p.Kept = r.Plan.Changes != nil && !r.Plan.Changes.Discard
	workspace, err := lookAtPaths(s.host(call, &r.Undo), &r.Plan)
	if err != nil {
		return nil, err
	}
	for _, one := range r.Plan.Volumes {
		found, err := volume.In(s.o.State.Path()).Look(one.Name, workspace)
		if err != nil {
			return nil, err
		}
		p.Volumes = append(p.Volumes, *found)
	}
	if t := r.Plan.PathTools; t != nil {
		tools := s.host(call, &r.Undo).PathTools(t.Dirs, workspace, r.Caps.OnlyEROFS && r.Plan.Image == nil)
		r.Undo.Close(tools)
		p.Posture.Toolchains, p.Left = append(p.Posture.Toolchains, tools.Names()...), tools.Left
	}
	return p, nil
}

// lookAtPaths opens what the plan names of the host, as a run would.
func lookAtPaths(h *environment.Host, p *policy.Plan) (workspace *hostpath.Source, err error) {
	if w := p.Workspace; w != nil {
		if workspace, err = h.Open(w.PlanPath, "workspace", w.Access); err != nil {
			return nil, err
		}
	}
	for _, m := range p.Mounts {
		if _, err := h.Open(m.PlanPath, "mount", m.Access); err != nil {
			return nil, err
		}
	}
	for _, t := range p.Toolchains {
		if _, err := h.Open(t, "toolchain", sandbox.ReadOnly); err != nil {
			return nil, err
		}
	}
	return workspace, nil
}
