// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"encoding/json"
	"errors"
	"path"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// fileCall is a call about files that was allowed and whose intent is recorded.
type fileCall struct {
	Inside
	kind policy.Kind
	// paths are the call's as they were decided. What is empty or another's ~ is as it was;
	// no agent takes it.
	paths []string

	run   *session.Invocation
	key   *Key
	grant *grant
	op    *audit.Operation
	leave func()
}

// begin decides what is to be done with paths and records the intent. The first path of a
// MoveFile is what is moved; those of a WriteFile behind the first are what it is made of. A
// call whose paths come one by one has none here; see allow.
func (f *Files) begin(ctx context.Context, kind policy.Kind, paths ...string) (_ *fileCall, err error) {
	for _, p := range paths {
		if err := CheckPath(p); err != nil {
			return nil, &sandbox.Error{Op: "file", Kind: sandbox.ErrInvalid, Problem: err.Error()}
		}
	}
	h := f.handle
	g, err := h.boxes.grants.of(h.key)
	if err != nil {
		return nil, err
	}
	l, in, shown, err := h.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.unuse()
		}
	}()
	as, err := shown.as(f.user)
	a := &fileCall{kind: kind, key: h.key, grant: g, leave: l.unuse}
	a.run = &session.Invocation{Session: g.session, Call: &session.Call{Frontend: f.frontend}, ID: in.run.ID, Name: h.id, Decision: session.Decision{Caps: in.caps}}
	a.run.Intent = audit.Intent{
		Actor: h.key.Actor(), Account: h.key.ID, Kind: string(kind), Sandbox: h.id, Isolation: in.run.Plan.Isolation,
		Policy: g.options.PolicyName, PolicySHA: g.policy.Digest(),
	}
	if err != nil { // what a path would mean is not known
		a.run.Intent.User, a.run.Intent.Params = f.user, fileParams(paths)
		return nil, a.run.Failed(ctx, g.session.Journal(), err)
	}
	if a.Inside = *as; a.User != shown.User {
		a.run.Intent.User = a.User.Name
	}
	for _, p := range paths {
		a.paths = append(a.paths, InHome(a.User.Home, p))
	}
	a.run.Intent.Params = fileParams(a.paths)
	for _, p := range a.paths {
		if err := a.allow(ctx, kind, p); err != nil {
			return nil, err
		}
	}
	for _, p := range sources(kind, a.paths) {
		if err := a.allow(ctx, policy.ReadFile, p); err != nil {
			return nil, err
		}
	}
	if a.op, err = audit.Begin(ctx, h.boxes.o.Journal, a.run.Intent); err != nil {
		return nil, err
	}
	return a, nil
}

// change carries out what do does to paths, as one call.
func (f *Files) change(ctx context.Context, kind policy.Kind, do func(*fileCall) ([]sandbox.File, error), paths ...string) error {
	a, err := f.begin(ctx, kind, paths...)
	if err != nil {
		return err
	}
	files, err := do(a)
	return errors.Join(err, a.end(ctx, files, err))
}

// sources are those of paths whose contents can be had elsewhere afterwards: who may not
// read them there may not have them moved to where they may.
func sources(kind policy.Kind, paths []string) []string {
	first := min(1, len(paths))
	switch kind {
	case policy.MoveFile:
		return paths[:first]
	case policy.WriteFile:
		return paths[first:]
	}
	return nil
}

// fileParams are paths as records have them.
func fileParams(paths []string) []byte {
	var b []byte
	switch len(paths) {
	case 0:
	case 1:
		b, _ = json.Marshal(map[string]string{"path": paths[0]}) // text always is JSON
	default:
		b, _ = json.Marshal(map[string][]string{"paths": paths})
	}
	return b
}

// allow decides one path of the call, which may not have been known when it began. What is
// refused is recorded by itself.
func (a *fileCall) allow(ctx context.Context, kind policy.Kind, p string) error {
	if !path.IsAbs(p) {
		return nil // the agent refuses it
	}
	r := a.run
	call := &policy.Call{Kind: kind, Actor: a.key.Actor(), Path: p, Cwd: a.Dir, Operator: a.key.Owner != ""}
	if !call.Operator {
		call.Tool = &policy.ToolCall{Name: fileTool(kind), Args: map[string]any{"path": p, "sandbox_id": r.Name}, Sandbox: r.Name}
	}
	v := a.grant.policy.Decide(call)
	err := a.grant.session.ChargeRates(ctx, a.key.ID, &v, a.key.Actor(), "")
	switch {
	case v.Decision == policy.Allow && err == nil:
		return nil
	case v.Decision == policy.Ask:
		q := v.Question.Askings[0]
		err = &sandbox.Error{Op: "policy", Kind: sandbox.ErrDenied, Problem: q.What + ", and no approver can be asked while a file is on its way", Rule: q.Rule,
			Hint: "call the tool " + fileTool(kind) + ", which waits for an answer"}
	case v.Decision != policy.Allow:
		err = v.Err()
	}
	refused := &session.Decision{Intent: r.Intent}
	refused.Intent.Params = fileParams([]string{p})
	return refused.Failed(ctx, a.grant.session.Journal(), err)
}

// fileTool is the built-in tool whose entry in a policy holds for such calls, too:
// a caller that may not write a file may not remove or move it.
func fileTool(k policy.Kind) string {
	if k == policy.ReadFile {
		return string(policy.ReadFile)
	}
	return string(policy.WriteFile)
}

// end records what came of it, once: which files went where, and how many bytes they had; err
// is why it was not carried out.
func (a *fileCall) end(ctx context.Context, files []sandbox.File, err error) error {
	defer a.leave()
	return a.op.End(ctx, audit.OutcomeOf(&sandbox.Result{Status: sandbox.StatusSuccess, Files: files}, err))
}
