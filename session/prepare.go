// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"maps"
	"slices"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/network"
)

// prepare makes the environment of the call, with its network.
func (r *run) prepare(ctx context.Context) (*environment.Environment, error) {
	dir, err := r.s.o.State.Run(r.id)
	if err != nil {
		return nil, err
	}
	r.dir = dir
	r.undo.Add(func(context.Context) error { return dir.Remove() })
	r.s.soon()
	r.s.sweep(ctx)
	e, err := environment.Open(ctx, r.environment())
	if err != nil {
		return nil, err
	}
	r.env = e
	if err := r.judgeImage(ctx, e); err != nil {
		return nil, err
	}
	r.credentials = r.newCredentials()
	wire, err := r.connect()
	if err != nil {
		return nil, err
	}
	if err := e.Build(ctx, environment.BuildOptions{Network: wire, Authority: r.credentials.Authority, Commands: r.startedBy}); err != nil {
		return nil, err
	}
	// One with a name of the host's that has to stay what it is does not outlive who looks
	// after that.
	if r.s.o.Outlive && r.kind == policy.StartSandbox && r.caps.Survives && len(e.Kept) == 0 {
		e.Spec.Outlives, e.Spec.Hold = true, dir.Hold()
	}
	e.Exec.Env = r.variables(e)
	return e, nil
}

// host opens the host's files for the call.
func (r *run) host() *environment.Host {
	return &environment.Host{StateDir: r.s.o.State.Path(), AllowDangerous: r.call.AllowDangerousMounts, Undo: &r.undo}
}

// environment says what environment the call gets.
func (r *run) environment() environment.Options {
	o := environment.Options{
		ID: r.id, Dir: r.dir.Path(), Images: r.s.Images(), Host: r.host(), Call: &r.call.Call, Plan: &r.plan, Caps: r.caps,
		Read:     slices.Concat(r.s.o.Policy.Reads(), r.s.o.Read, r.call.Read),
		Progress: r.call.OnPull, Notice: r.notice,
	}
	switch {
	case r.kind == policy.StartSandbox:
		o.First = environment.Agent
	case r.call.fetches:
		o.First = environment.Fetch
	case r.own:
		o.First = environment.Script
	}
	if p := r.prog; p != nil {
		o.Program = &environment.Program{
			Argv: p.argv, Name: sourceName(r.call, *p), From: r.call.Source.Name, File: r.call.File, Code: r.call.Source.Code, Binary: r.binary, Later: r.ahead,
		}
	}
	return o
}

// judgeImage notes which image it is, and judges what it starts: that is known now.
func (r *run) judgeImage(ctx context.Context, e *environment.Environment) error {
	p := r.plan.Image
	if p == nil {
		return nil
	}
	if e.Image == nil { // a plain directory
		r.intent.Image, r.intent.Mounts = "", r.mountsForRecord()
	} else if ref, err := reference.Parse(p.Ref); err != nil || ref.Digest == "" {
		r.intent.Image += "@" + e.Image.Digest
	}
	if r.prog != nil || r.kind != "" || r.own || r.call.fetches {
		return nil
	}
	if e.Image != nil {
		if v := r.s.o.Policy.Starts(&r.call.Call, e.Exec.Argv); v != nil {
			if v.Decision != policy.Ask {
				return v.Err()
			}
			if r.question = merge(r.question, v.Question); len(r.question.Channels) == 0 {
				return v.Err()
			}
		}
		r.intent.Argv = e.Exec.Argv
	}
	return r.readCode(ctx, e.Exec.Argv, r)
}

// startedBy are the names of the commands that the call is judged by, where it was
// looked at in detail because somebody is asked.
func (r *run) startedBy(argv []string) []string {
	if r.question == nil {
		return nil
	}
	var out []string
	for _, words := range r.starts(argv) {
		if words[0] != "" {
			out = append(out, words[0])
		}
	}
	return out
}

// variables are those of the call's programs in e: nothing of the caller's but what the
// plan passes on.
func (r *run) variables(e *environment.Environment) []string {
	term := ""
	if r.call.TTY != nil {
		term = r.call.term()
	}
	return e.Variables(term, r.plan.Env, r.placeholders())
}

// newCredentials are those of the call's network, with the placeholders that a sandbox
// that goes on has already.
func (r *run) newCredentials() *network.Credentials {
	return &network.Credentials{StateDir: r.s.o.State.Path(), Lookup: r.call.Lookup, Placeholders: maps.Clone(r.shown)}
}

// placeholders are what the call's programs have in place of secrets, by name.
func (r *run) placeholders() map[string]string {
	if r.credentials == nil {
		return r.shown
	}
	return r.credentials.Placeholders
}
