// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// memoryMaker makes the memory of a template: a sandbox that no caller gets, in which the
// template's own lines run, each decided by the policy and recorded.
type memoryMaker struct {
	b     *Sandboxes
	grant *grant
	rec   *Sandbox // the one for which it is made
	key   string

	made *warmSandbox
}

func (m *memoryMaker) run(ctx context.Context) (name string, seal *registry.Seal, err error) {
	b := m.b
	ctx, cancel := context.WithTimeout(ctx, warmupLimit)
	defer cancel()
	call := callFor(m.rec)
	r := &session.Invocation{Session: m.grant.session, Call: call, ID: session.NewID(), Kind: policy.StartSandbox, Origin: session.Origin{Ahead: true}}
	r.OfferRoot()
	if m.made, err = b.makeAhead(ctx, m.grant, r, session.Shape.CheckPristine); err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, r.Undo.Run(context.WithoutCancel(ctx))) }()
	in := &running{run: r, env: m.made.Env, grant: m.grant, caps: r.Caps}
	if b.memories.key(in, m.rec) != m.key {
		return "", nil, errors.New("the template, or its policy, has changed meanwhile")
	}
	snap, ok := m.made.box.(sandbox.Snapshotter)
	if !ok {
		return "", nil, cannotPause(r.Plan.Isolation)
	}
	if err := m.begin(ctx); err != nil {
		return "", nil, err
	}
	if c := m.made.Env.Image.Config; c.Warmup != "" {
		if err := m.cell(ctx, c.Warmup); err != nil {
			return "", nil, notReady("what warms it up failed", c.Warmup, err)
		}
	}
	name, dir, err := b.kept.create()
	if err == nil {
		err = snap.Snapshot(ctx, dir, true)
	}
	if err == nil {
		seal, err = b.kept.seal(name)
	}
	if err != nil {
		return "", nil, errors.Join(err, b.kept.drop(name))
	}
	return name, seal, nil
}

// getReady runs what the template of a sandbox starts that was made ahead, unless it was begun
// with that, and has its memory made for the next one.
func (b *Sandboxes) getReady(ctx context.Context, g *grant, m *warmSandbox) error {
	if m.Env.Image == nil || m.ready {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := (&memoryMaker{b: b, grant: g, made: m}).begin(ctx); err != nil {
		return err
	}
	m.ready = true
	in := &running{run: m.Invocation, env: m.Env, grant: g, caps: m.Invocation.Caps}
	rec := aheadOf(m.Invocation.Call)
	if key := b.memories.key(in, rec); key != "" {
		b.memories.want(key, in, rec)
	}
	return nil
}

// begin runs what the template starts, and waits until it is ready.
func (m *memoryMaker) begin(ctx context.Context) error {
	c := &m.made.Env.Image.Config
	if c.Start != "" {
		if err := m.line(ctx, startLine, c.Start); err != nil {
			return notReady("what it starts was not started", c.Start, err)
		}
	}
	if c.Ready != "" {
		if err := m.line(ctx, readyLine, c.Ready); err != nil {
			return notReady("it does not get ready", c.Ready, err)
		}
	}
	return nil
}

// line runs a line of shell for a template's command, which is its $0.
func (m *memoryMaker) line(ctx context.Context, line, command string) error {
	call := &session.Call{}
	call.Argv = []string{"/bin/sh", "-c", line, command}
	return m.perform(ctx, call, func(ctx context.Context) (*sandbox.Result, error) {
		var out bytes.Buffer
		exit, err := m.made.client.Run(ctx, &sandbox.Exec{Argv: call.Argv, Dir: m.made.Env.Dir, Env: slices.Clone(m.made.Env.Exec.Env), Stdout: io.Discard, Stderr: &bounded{&out, 4 << 10}})
		res := &sandbox.Result{}
		if err == nil {
			err = session.ProgramEnd(ctx, res, exit, err)
		}
		if err == nil && res.Status != sandbox.StatusSuccess {
			err = sandbox.Errorf(sandbox.ErrUnavailable, "template", "%s", strings.TrimSpace(fmt.Sprintf("%s %s", res.Status, out.String())))
		}
		return res, err
	})
}

// bounded lets so many bytes through.
type bounded struct {
	w    io.Writer
	left int
}

func (a *bounded) Write(p []byte) (int, error) {
	n := min(len(p), a.left)
	a.left -= n
	_, err := a.w.Write(p[:n])
	return len(p), err
}

// cell runs Python in the default context, which sandboxes then have as it was left.
func (m *memoryMaker) cell(ctx context.Context, code string) error {
	call := &session.Call{}
	call.Source = &session.Source{Name: "warmup", Language: interpreter.Python, Code: []byte(code), Cell: true}
	return m.perform(ctx, call, func(ctx context.Context) (*sandbox.Result, error) {
		ex, err := m.made.client.Execute(ctx, interpreter.Cell{Language: interpreter.Python, Code: code})
		if err != nil {
			return nil, err
		}
		defer ex.Close()
		return &sandbox.Result{Status: sandbox.StatusSuccess}, failureOf(ex)
	})
}

// failureOf is what went wrong in a cell, once it has ended.
func failureOf(ex execution) (failed error) {
	for {
		e, err := ex.Next()
		switch {
		case err != nil:
			return err
		case e.Type == interpreter.End && failed == nil && e.End.Status != interpreter.Done:
			return sandbox.Errorf(sandbox.ErrUnavailable, "template", "%s", sandbox.Quoted(sandbox.Clip(e.End.Status+": "+e.End.Reason, 300)))
		case e.Type == interpreter.End:
			return failed
		case e.Type == interpreter.Failure && e.Error != nil:
			failed = sandbox.Errorf(sandbox.ErrUnavailable, "template", "%s", sandbox.Quoted(sandbox.Clip(e.Error.Name+": "+e.Error.Value, 300)))
		}
	}
}

// perform has the policy decide a call in the sandbox, records it, and carries it out.
func (m *memoryMaker) perform(ctx context.Context, call *session.Call, do func(context.Context) (*sandbox.Result, error)) error {
	of := m.made.Invocation
	call.Actor, call.Account, call.Operator, call.Sudo = cmp.Or(of.Call.Actor, "caisson"), of.Call.Account, of.Call.Operator, m.made.Env.Spec.Sudo
	r := &session.Invocation{Session: m.grant.session, Call: call, ID: of.ID, Name: of.ID}
	v, err := r.Decide()
	r.Intent.Isolation = of.Plan.Isolation
	switch {
	case err != nil:
	case v.Decision != policy.Allow:
		err = v.Err()
	case v.Plan.Root && m.made.Env.Spec.User.UID != 0:
		err = sandbox.Errorf(sandbox.ErrUnsupported, "template", "its programs are root by its policy")
	}
	if err == nil {
		r.Plan, r.Caps = v.Plan, of.Caps
		err = r.ReadCode(ctx, call.Argv, of)
	}
	if err != nil {
		return r.Failed(ctx, m.b.o.Journal, err)
	}
	return audit.Perform(ctx, m.b.o.Journal, r.Intent, func(ctx context.Context, _ *audit.Operation) (*sandbox.Result, error) { return do(ctx) })
}
