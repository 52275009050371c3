// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Foresee is what would become of a call, as far as that is decided before it runs:
// the policy's verdict, its rules about code included. The texts that the call would
// run are read as they are for the call itself, in sandboxes that are recorded. Of the
// call nothing is run, counted or recorded. What comes on its standard input, and what
// an image runs by itself, is not known. See toolcall.Carried for the call of a tool.
func (s *Session) Foresee(ctx context.Context, w policy.Wish) (_ policy.Verdict, err error) {
	call, err := Judged(w)
	if err != nil {
		return policy.Verdict{}, err
	}
	v := s.o.Policy.Decide(call)
	if !NeedsReading(&v) || call.Kind == policy.CallTool {
		return v, nil
	}
	r := &Invocation{Session: s, Call: &Call{Call: *call}, ID: NewID(), Decision: Decision{Plan: v.Plan}}
	defer func() { err = errors.Join(err, r.Undo.Run(ctx)) }()
	if call.Kind == policy.RunCode {
		r.Call.Source = &Source{Name: w.File, Language: call.Language, Code: []byte(w.Source)}
		if err := r.source.load(r.Call, s.host(r.Call, &r.Undo)); err != nil {
			return v, err
		}
	}
	if v.Plan.Image != nil && r.Program == nil {
		return v, nil
	}
	err = r.ReadCode(ctx, call.Argv, r)
	var e *sandbox.Error
	if errors.Is(err, sandbox.ErrDenied) && errors.As(err, &e) {
		return policy.Verdict{Decision: policy.Deny, Rule: e.Rule, Reason: e.Problem, Hint: e.Hint}, nil
	}
	return v, err
}

// NeedsReading says that a verdict leaves a part to rules about code.
func NeedsReading(v *policy.Verdict) bool { return v.Decision != policy.Deny && v.Plan.Code != nil }
