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
	"github.com/caisson-run/caisson/session/question"
)

// Prepare makes the environment of the call, with its network.
func (r *Invocation) Prepare(ctx context.Context) (*environment.Environment, error) {
	dir, err := r.Session.o.State.Run(r.ID)
	if err != nil {
		return nil, err
	}
	r.Dir = dir
	r.Undo.Add(func(context.Context) error { return dir.Remove() })
	r.Session.sweep(ctx)
	e, err := environment.Open(ctx, environmentOf(r))
	if err != nil {
		return nil, err
	}
	r.Made = e
	if err := r.judgeImage(ctx, e); err != nil {
		return nil, err
	}
	r.Credentials = r.NewCredentials()
	wire, err := r.connect()
	if err != nil {
		return nil, err
	}
	logins, err := r.Credentials.Files()
	if err != nil {
		return nil, err
	}
	if err := e.Build(ctx, environment.BuildOptions{Network: wire, Logins: loginFiles(logins), Authority: r.Credentials.Authority, Commands: func(argv []string) []string { return startedBy(r.Call, r.Question, argv) }}); err != nil {
		return nil, err
	}
	// One with a name of the host's that has to stay what it is does not outlive who looks
	// after that.
	if r.Session.o.Outlive && r.Kind == policy.StartSandbox && r.Caps.Survives && len(e.Kept) == 0 {
		e.Spec.Outlives, e.Spec.Hold = true, dir.Hold()
	}
	e.Exec.Env = r.Variables(e)
	return e, nil
}

// host opens the host's files for a call.
func (s *Session) host(call *Call, undo *environment.Cleanup) *environment.Host {
	return &environment.Host{StateDir: s.o.State.Path(), AllowDangerous: call.AllowDangerousMounts, Undo: undo}
}

// environmentOf says what environment the call gets.
func environmentOf(r *Invocation) environment.Options {
	o := environment.Options{
		ID: r.ID, Dir: r.Dir.Path(), Images: r.Session.Images(), Host: r.Session.host(r.Call, &r.Undo), Call: &r.Call.Call, Plan: &r.Plan, Caps: r.Caps,
		Owner: owner(r.Call), Digest: r.Origin.Image, Step: r.Call.Step, Hostname: r.Names.Host, MachineID: r.Names.Machine,
		Read:     slices.Concat(r.Session.o.Policy.Reads(), r.Session.o.Read, r.Call.Read),
		Progress: r.Call.OnPull, Packing: r.Call.OnPack, Notice: r.Call.notice,
	}
	switch {
	case r.Kind == policy.StartSandbox:
		o.First = environment.Agent
	case r.Call.Fetches:
		o.First = environment.Fetch
	case r.own:
		o.First = environment.Script
	}
	if p := r.Program; p != nil {
		o.Program = &environment.Program{
			Argv: p.Argv, Name: SourceName(r.Call, *p), From: r.Call.Source.Name, File: r.Call.File, Code: r.Call.Source.Code, Binary: r.binary, Later: r.Ahead,
		}
	}
	return o
}

// judgeImage notes which image it is, and judges what it starts: that is known now.
func (r *Invocation) judgeImage(ctx context.Context, e *environment.Environment) error {
	p := r.Plan.Image
	if p == nil || r.Call.Step != nil {
		return nil
	}
	if e.Image == nil { // a plain directory
		r.Intent.Image, r.Intent.Mounts = "", mountsForRecord(&r.Plan)
	} else if ref, err := reference.Parse(p.Ref); err != nil || ref.Digest == "" {
		r.Intent.Image += "@" + e.Image.Digest
	}
	if r.Program != nil || r.Kind != "" || r.own || r.Call.Fetches {
		return nil
	}
	if e.Image != nil {
		if v := r.Session.o.Policy.Starts(&r.Call.Call, e.Exec.Argv); v != nil {
			if v.Decision != policy.Ask {
				return v.Err()
			}
			if r.Question = question.Merge(r.Question, v.Question); len(r.Question.Channels) == 0 {
				return v.Err()
			}
		}
		r.Intent.Argv = e.Exec.Argv
	}
	return r.ReadCode(ctx, e.Exec.Argv, r)
}

// startedBy are the names of the commands that the call is judged by, where it was
// looked at in detail for a question.
func startedBy(call *Call, asks *policy.Question, argv []string) []string {
	if asks == nil {
		return nil
	}
	var out []string
	for _, words := range question.Starts(&call.Call, argv) {
		if words[0] != "" {
			out = append(out, words[0])
		}
	}
	return out
}

// Variables are those of the call's programs in e: nothing of the caller's but what the
// plan passes on.
func (r *Invocation) Variables(e *environment.Environment) []string {
	term := ""
	if r.Call.TTY != nil {
		term = r.Call.TerminalName()
	}
	return e.Variables(term, r.Plan.Limits, network.LoginEnv(r.Plan.Network, r.Placeholders()), r.Plan.Env, r.Placeholders())
}

func loginFiles(list []network.File) (out []environment.HomeFile) {
	for _, f := range list {
		out = append(out, environment.HomeFile{Path: f.Path, Content: f.Content})
	}
	return out
}

// NewCredentials are those of the call's network, with the placeholders that a sandbox
// that goes on has already.
func (r *Invocation) NewCredentials() *network.Credentials {
	return &network.Credentials{StateDir: r.Session.o.State.Path(), Lookup: r.Call.Lookup, Placeholders: maps.Clone(r.Known)}
}

// Placeholders are what the call's programs have in place of secrets, by name.
func (r *Resources) Placeholders() map[string]string {
	if r.Credentials == nil {
		return r.Known
	}
	return r.Credentials.Placeholders
}
