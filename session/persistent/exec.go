// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Exec runs one program in the sandbox under the limits that are a program's, and
// waits for its end. See [Session.Do] for what the Result and an error are.
func (h *Handle) Exec(ctx context.Context, call *session.Call, io session.IO) (res *sandbox.Result, err error) {
	a, err := newAction(ctx, h, call, io)
	if err != nil {
		return nil, err
	}
	r := a.run
	defer r.Drain(ctx, &err)
	defer r.Undo.Run(ctx)
	l := r.Plan.Limits
	l.CPUTime = 0 // the agent's to hold, for each process
	r.Plan.Limits = l
	argv, err := a.program(ctx)
	if err != nil {
		return nil, errors.Join(err, a.end(ctx, nil, err, nil, nil))
	}
	ex := &sandbox.Exec{Argv: argv, Dir: a.Dir, Env: a.Env}
	if _, own := r.Plan.Env["TERM"]; call.TTY != nil && !own {
		ex.Env = overlay(ex.Env, map[string]string{"TERM": call.TerminalName()})
	}
	began := time.Now()
	res, err = r.CarryOut(ctx, ex, func(ctx context.Context, ex *sandbox.Exec) (*sandbox.Result, error) {
		ex.Sample, ex.SampleEvery = nil, 0
		exit, err := a.agent.Run(ctx, ex)
		res, err := a.ended(ctx, exit, err)
		if err == nil && res.Status != sandbox.StatusSuccess {
			a.tellHits(ctx, res, began)
		}
		return res, err
	})
	if res != nil {
		r.Finish(res, a.held)
	}
	o := r.Outcome(res, err)
	if jerr := a.end(ctx, res, err, o.Stdout, o.Stderr); jerr != nil {
		return res, errors.Join(jerr, err)
	}
	return res, err
}

// ended turns the agent's word on a program's end into a Result, or into the reason
// why the sandbox is gone under its feet.
func (a *action) ended(ctx context.Context, exit guest.Exit, err error) (*sandbox.Result, error) {
	if ctx.Err() == nil && (exit.Code == nil || *exit.Code == shellKilled) {
		_, _ = a.in.usage(ctx) // the caller sees a limit that has killed something
	}
	over, res := session.AwaitEnd(ctx, a.in.box, exit, err), &sandbox.Result{}
	select {
	case <-a.Gone:
		over = true
		if e := endingOf(a.in); e != nil {
			res.Status, res.Resource, res.Rule, res.Reason, res.Signal = e.Status, e.Resource, e.Rule, e.Reason, "SIGKILL"
			return res, nil
		}
	default:
	}
	if session.LimitEnded(a.in.box, res) {
		return res, nil
	}
	if over {
		return nil, &sandbox.Error{Op: "exec", Kind: sandbox.ErrUnavailable, Problem: "the sandbox ended or was paused while the program ran", Cause: err}
	}
	if err := session.ProgramEnd(ctx, res, exit, err); err != nil {
		return nil, err
	}
	return res, nil
}

// tellHits names the limits of the sandbox that were reached while a program ran which
// has failed, by it or another one. Who has not failed is not asked about: it takes time.
func (a *action) tellHits(ctx context.Context, res *sandbox.Result, began time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if u, err := a.in.box.Usage(ctx); err == nil {
		res.LimitsHit = u.HitSince(began)
	}
}

// shellKilled is what a shell makes of a program that SIGKILL has ended.
const shellKilled = 128 + 9

// program is what the action starts. Source is put into a file of the sandbox's
// /tmp first, which is taken away again.
func (a *action) program(ctx context.Context) ([]string, error) {
	r := a.run
	if r.Program == nil {
		return r.Call.Argv, nil
	}
	dir := "/tmp/" + session.NewID()
	name := path.Join(dir, session.SourceName(r.Call, *r.Program))
	if err := a.agent.WriteFile(ctx, name, bytes.NewReader(r.Call.Source.Code), sandbox.WriteOptions{Mode: 0o600}); err != nil {
		return nil, err
	}
	r.Undo.Add(func(ctx context.Context) error {
		select {
		case <-a.Gone: // and the file with it
			return nil
		default:
		}
		// What is left of it is the sandbox's own, and it may have removed it.
		_ = a.agent.Remove(ctx, dir)
		return nil
	})
	return append(append(slices.Clone(r.Program.Argv), name), r.Call.Argv...), nil
}
