// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"reflect"
	"slices"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
)

// Shape is all that decides how a call's sandbox is made: two calls of one shape
// can have sandboxes made alike, and only they. It is the whole of the call and
// of what the policy made of it, without what is known to come later: a field
// that is new counts.
type Shape struct {
	call    Call
	plan    policy.Plan
	program program
	caps    sandbox.Capabilities
}

func shapeOf(call *Call, d *Decision, p *program) Shape {
	s := Shape{call: withoutHooks(*call), plan: d.Plan, caps: d.Caps}
	s.call.ID, s.call.Argv, s.call.Env, s.call.Stdin, s.call.Code, s.call.Script = "", nil, nil, false, "", ""
	s.call.Account = "" // whom it is counted for
	s.call.Read = nil   // it shows nothing that could be one of them
	s.call.Source, s.call.Lookup, s.call.Term, s.call.Watch = nil, nil, "", nil
	s.plan.Env, s.plan.From = nil, nil // where clauses come from, for people
	if p != nil {
		s.program = *p
	} else {
		s.call.Cwd = "" // the program's alone
	}
	return s
}

// late are the limits that a sandbox made ahead takes when it is given away: the
// level sets some of them anew, and the others are ours to hold.
func late() []sandbox.LimitName {
	return append(sandbox.Bound(), sandbox.LimitWall, sandbox.LimitCPUTime, sandbox.LimitOutput)
}

// serves reports whether a sandbox that was made for calls of shape s can be that
// of a call of another, and whether it has to be bounded more tightly then.
func (s Shape) serves(other Shape) (yes, tighten bool) {
	mine, asked := s.plan.Limits, other.plan.Limits
	if asked.Check(nil) != nil { // the level says what is wrong
		return false, false
	}
	if !asked.Within(&mine) || !reflect.DeepEqual(s.boundless(), other.boundless()) {
		return false, false
	}
	return true, !mine.Within(&asked)
}

// boundless leaves out the limits that come late, and what was asked for: what
// became of that is in the plan.
func (s Shape) boundless() Shape {
	s.call.Limits = sandbox.Limits{}
	l := &s.plan.Limits
	for _, name := range late() {
		l.Clear(name)
	}
	if len(l.Explicit) == 0 {
		l.Explicit = nil
	}
	return s
}

// withoutHooks leaves out what is a call's own for as long as it runs.
func withoutHooks(c Call) Call {
	c.Signals, c.OnUsage, c.OnReport, c.OnPull, c.OnPack, c.OnRefused, c.OnNotice, c.OnLacking = nil, nil, nil, nil, nil, nil, nil, nil
	return c
}

// CheckLasting refuses what a sandbox made ahead could not show as it is when the
// call comes: what is looked at then, by name, and judged.
func (s Shape) CheckLasting() error {
	if s.plan.Image != nil {
		return &sandbox.Error{Op: "pool", Kind: sandbox.ErrUnsupported, Problem: "no sandbox is made ahead with a container image",
			Hint: "its name may mean another one when the call comes; use the host's toolchain"}
	}
	return s.CheckPristine()
}

// CheckPristine is CheckLasting for who compares the image itself when the call comes.
func (s Shape) CheckPristine() error {
	refuse := func(what, hint string) error {
		return &sandbox.Error{Op: "pool", Kind: sandbox.ErrUnsupported, Problem: "no sandbox is made ahead with " + what, Hint: hint}
	}
	p := &s.plan
	switch {
	case p.Workspace != nil || len(p.Mounts)+len(p.Volumes)+len(p.Toolchains) > 0 || p.PathTools != nil || p.Rootfs != nil || s.call.File != "":
		return refuse("files of the host's", "they may change until the call comes; leave them out, or hand the program its data as input")
	case p.Image != nil && p.Image.Path != nil:
		return refuse("an image in a file of the host's", "it may change until the call comes; pull it, or build a template of it")
	case p.Network != nil && s.call.Kind != policy.StartSandbox:
		return refuse("a network", "leave it out")
	case p.Network != nil && len(p.Network.Secrets)+len(p.Network.Ended()) > 0:
		return refuse("secrets, or hosts whose TLS is ended", "what is read for them may change until the call comes")
	case s.call.TTY != nil || len(p.Collect) > 0 || p.Root:
		return refuse("a terminal, files to take out, or code that is root", "those need the agent inside; leave them out")
	case s.program.direct:
		return refuse("a compiled program", "name a language")
	}
	return nil
}

// takeReady finds a sandbox that was made ahead for calls of a shape, of what the name of
// their image means now, and has it hold their limits; nil when there is none.
func (r *Invocation) takeReady(ctx context.Context) *made {
	s, mine := r.Session, shapeOf(r.Call, &r.Decision, r.Program)
	s.mu.Lock()
	pools := s.pools
	s.mu.Unlock()
	for _, p := range pools {
		yes, tighten := p.shape.serves(mine)
		if !yes || tighten && !p.tightens.Load() {
			continue
		}
		was := r.Decision
		digest, ok := r.imageNow(ctx)
		var m *made
		if ok {
			m, ok = p.warm.Take(func(_ struct{}, m *made) bool { return m.digest() == digest })
		}
		if !ok {
			r.Decision = was
			continue
		}
		if !tighten || m.tighten(mine.plan.Limits) {
			return m
		}
		r.Decision = was
		p.tightens.Store(false) // nor will another take it
		p.warm.Retire(m)
	}
	return nil
}

// imageNow is the digest of what the name of the call's image means now, empty without one,
// and judges what it starts. It is not ok where there is a question, or an error: what is
// made for the call tells them.
func (r *Invocation) imageNow(ctx context.Context) (digest string, ok bool) {
	p := r.Plan.Image
	if p == nil {
		return "", true
	}
	ref, err := reference.Parse(p.Ref)
	if err != nil {
		return "", false
	}
	images, err := image.OpenStore(r.Session.Images())
	if err != nil {
		return "", false
	}
	info, err := images.Get(ctx, ref, image.PullOptions{Insecure: r.Call.InsecureRegistry, Owner: owner(r.Call), Progress: r.Call.OnPull})
	if err != nil {
		return "", false
	}
	e := &environment.Environment{Image: info, Exec: &sandbox.Exec{Argv: r.Call.Argv}}
	if r.Program == nil && !r.own {
		if e.Exec.Argv = info.Command(r.Call.Entrypoint, r.Call.Argv); len(e.Exec.Argv) == 0 {
			return "", false
		}
	}
	err = r.judgeImage(ctx, e)
	return info.Digest, err == nil && r.Question == nil
}

// digest is that of the image that it is made of; empty without one.
func (m *made) digest() string {
	if m.env.Image == nil {
		return ""
	}
	return m.env.Image.Digest
}

// tighten has the level hold the sandbox to l, where it can.
func (m *made) tighten(l sandbox.Limits) bool {
	t := m.box.tightener()
	return t != nil && t.Tighten(l) == nil
}

// adopt makes the sandbox a call's own: its name, its run
// directory, its environment. Only what is the call's alone is filled in.
func (m *made) adopt(r *Invocation) (*environment.Environment, error) {
	r.Undo.Add(func(context.Context) error { m.pool.warm.Retire(m); return nil })
	r.ready = m
	r.ID, r.Call.ID, r.Intent.Sandbox = m.run.ID, m.run.ID, m.run.ID
	w := *m.env
	spec := *w.Spec
	spec.Limits = r.Plan.Limits
	w.Spec = &spec
	w.Exec = &sandbox.Exec{Dir: r.Call.Cwd, Env: r.Variables(&w)}
	if w.Exec.Dir == "" {
		w.Exec.Dir = w.Dir
	}
	if r.Program == nil {
		w.Exec.Argv = r.Call.Argv
		if w.Image != nil && !r.own {
			w.Exec.Argv = w.Image.Command(r.Call.Entrypoint, r.Call.Argv)
		}
		return &w, nil
	}
	w.Exec.Argv = append(slices.Clone(m.env.Exec.Argv[:len(r.Program.Argv)+1]), r.Call.Argv...)
	return &w, m.env.Fill(r.Call.Source.Name, r.Call.Source.Code)
}
