// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/tool"
)

// maxInput is how much of standard input somebody can be asked about.
const maxInput = 128 << 10

// ReadInput reads all of standard input where somebody is to be asked: what a
// program reads decides what it does. What somebody types is left out, because
// nobody knows it yet.
func (r *Invocation) ReadInput(ctx context.Context) error {
	if r.Question == nil || r.IO.Stdin == nil || r.input != nil {
		return nil
	}
	if r.Call.TypedInput {
		r.IO.Stdin = nil
		if r.Call.OnNotice != nil {
			r.Call.OnNotice("the program gets no standard input: nobody can approve what is typed later")
		}
		return nil
	}
	return r.capture(ctx, &r.IO, r.Question.Timeout, "somebody would have to approve all of it")
}

// capture reads all of standard input within a time; why says what for.
func (s *source) capture(ctx context.Context, in *IO, within time.Duration, why string) error {
	if s.input != nil {
		return nil
	}
	e := &sandbox.Error{Op: "standard input", Kind: sandbox.ErrInvalid, Hint: "leave it out, or put it into a file"}
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	read := make(chan struct{})
	var b []byte
	from := in.Stdin
	go func() {
		defer close(read)
		b, e.Cause = io.ReadAll(io.LimitReader(from, maxInput+1))
	}()
	select {
	case <-ctx.Done(): // whoever reads goes on until there is something
		return &sandbox.Error{Op: e.Op, Kind: sandbox.ErrInvalid, Problem: "it has not ended, and " + why, Hint: e.Hint}
	case <-read:
	}
	switch {
	case e.Cause != nil:
		e.Problem = "it cannot be read"
		return e
	case len(b) > maxInput:
		e.Problem = fmt.Sprintf("it is longer than %d KiB, and %s", maxInput>>10, why)
		return e
	}
	s.input, in.Stdin = b, bytes.NewReader(b)
	return nil
}

// Asking is the question of a call that gets a sandbox of its own.
func (r *Invocation) Asking() *asking {
	return &asking{approvals: r.Session.o.Approvals, journal: r.Session.o.Journal, question: r.Question, call: r.Call, intent: r.Intent}
}

// subject is everything that decides what the call does, out of the environment
// that was made for it.
func (r *Invocation) subject(ctx context.Context, w *environment.Environment) (*approval.Subject, error) {
	s, err := r.About(ctx, w.Exec.Argv, w.Dir, w.Exec.Env)
	if err != nil {
		return nil, err
	}
	for _, m := range w.Mounts {
		info, err := m.Source.Stat()
		if err != nil {
			return nil, sandbox.Errorf(sandbox.ErrUnavailable, "mount "+sandbox.Quoted(m.Name), "it cannot be examined: %v", err)
		}
		access := m.Access.String()
		if m.GitWrite {
			access += ", git rw"
		}
		s.Mounts = append(s.Mounts, approval.Mount{Source: m.Name, Target: m.Target, Access: access, Object: hostpath.Identity(info)})
	}
	s.User, s.Image = w.Spec.User.Name, r.Intent.Image
	inside := &contents{view: w.View(), image: r.Intent.Image}
	s.Files, err = r.Contents(w.Exec.Argv, w.Dir, w.Search, inside.read)
	if err != nil {
		return nil, err
	}
	if r.binary != nil {
		f, err := contentOf(r.binary.File, r.binary.Name, r.binary.Real)
		if err != nil {
			return nil, err
		}
		s.Files = append(s.Files, f)
	}
	return s, nil
}

// About is what a call says of itself: the part that is the same in a sandbox of
// its own and in one that lives on.
func (r *Invocation) About(ctx context.Context, argv []string, dir string, env []string) (*approval.Subject, error) {
	c, p := r.Call, &r.Plan
	s := &approval.Subject{
		Actor: c.Actor, Kind: string(c.Kind), Dir: dir, HasStdin: r.IO.Stdin != nil, Stdin: r.input, Argv: argv,
		Isolation: r.Intent.Isolation, Network: p.Network.String(), Limits: audit.LimitTexts(p.Limits), Policy: r.Session.o.Policy.Digest(),
	}
	if r.Program != nil {
		// The path of source inside is made up for each run.
		s.Argv, s.Program, s.Language = c.Argv, c.Program, c.Call.Language
		if s.Code = c.Source.Code; r.Program.direct {
			s.Code = nil // it is among the files, with all of it
		}
	}
	store, err := r.Session.o.Approvals.Store(ctx)
	if err != nil {
		return nil, err
	}
	key, err := store.SealKey(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.aboutTool(s, key); err != nil {
		return nil, err
	}
	if c.Fetches { // it is made of the arguments and the definition, and may have what is marked
		s.Stdin, s.HasStdin = nil, false
	}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if _, placeholder := r.Placeholders()[name]; placeholder {
			value = "" // it is another each time, and stands for one of Secrets
		}
		s.Env = append(s.Env, approval.Variable{Name: name, Seal: approval.Seal(key, value)})
	}
	if n := p.Network; n != nil {
		for _, secret := range n.Secrets {
			s.Secrets = append(s.Secrets, secret.String())
		}
	}
	line := s.Argv
	if r.Program != nil {
		line = nil // arguments of a program
	}
	s.Options = append(r.options(), r.unread(line)...)
	for _, q := range r.Question.Askings {
		s.Reasons = append(s.Reasons, approval.Reason{Rule: q.Rule, What: q.What})
	}
	for _, f := range r.Findings {
		s.Findings = append(s.Findings, f.Problem+" ("+f.Rule+")")
	}
	return s, nil
}

// aboutTool says which tool was called, and what that says of itself. A question is kept, shown and sent to webhooks: what no
// record has is sealed, as variables are.
func (r *Invocation) aboutTool(s *approval.Subject, key []byte) error {
	t := r.Call.Tool
	if t == nil {
		return nil
	}
	args, err := json.Marshal(t.Args) // keys sorted: one text for one meaning
	shown, serr := json.Marshal(r.Session.o.Policy.ToolRecord(t))
	all, aerr := json.Marshal([]any{string(args), s.Argv})
	if err := errors.Join(err, serr, aerr); err != nil {
		return sandbox.Errorf(sandbox.ErrInvalid, "tool "+sandbox.Quoted(t.Name), "its arguments cannot be written: %v", err)
	}
	s.Tool, s.Params = t.Name, string(shown)
	differs := r.Call.RecordArgv != nil && !slices.Equal(r.Call.RecordArgv, r.Call.Argv)
	if differs {
		s.Argv = r.Call.RecordArgv
	}
	if differs || s.Params != string(args) {
		s.Marked = approval.Seal(key, string(all))
	}
	if known, ok := r.Session.o.Policy.Tools().Lookup(t.Name); ok {
		s.Definition = definitionOf(known)
	}
	return nil
}

// definitionOf names all that a tool says of itself: one that says something else
// is another tool.
func definitionOf(t *tool.Tool) string {
	var template []string
	if t.Command != nil {
		template = t.Command.Template()
	}
	var spec *tool.HTTPSpec
	if t.HTTP != nil {
		s := t.HTTP.Spec()
		spec = &s
	}
	b, err := json.Marshal(struct {
		tool.Definition
		Template []string
		HTTP     *tool.HTTPSpec `json:",omitempty"`
	}{t.Definition, template, spec})
	if err != nil {
		return "?" // as good as any other text: no definition has it
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// options are what else a call asks for, and was allowed.
func (r *Invocation) options() []string {
	c, p := r.Call, &r.Plan
	var out []string
	add := func(on bool, format string, args ...any) {
		if on {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(p.Root, "runs as the sandbox's root")
	add(p.BestEffort, "best effort")
	add(c.AllowDangerousMounts, "dangerous mounts allowed")
	add(c.InsecureRegistry, "the image's registry is asked without TLS")
	for _, o := range p.Overridden {
		add(true, "override: %s", o)
	}
	for _, w := range p.Writable {
		add(true, "may write to %s", w)
	}
	for _, g := range p.Deny {
		add(true, "does not see %s", g)
	}
	for _, w := range p.Collect {
		add(true, "files come out: %s to %s", w.Pattern, w.Dest)
		add(p.CollectOverwrite, "files in %s are replaced", w.Dest)
	}
	for _, rule := range slices.Concat(p.Watch, c.Watch) {
		add(true, "watch: %s for %v, %s", rule.When, rule.For, rule.Do)
	}
	if p.Rootfs != nil {
		add(true, "root: %s", p.Rootfs.Source)
	}
	for _, t := range p.Toolchains {
		add(true, "toolchain: %s", t.Source)
	}
	if n := p.Network; n != nil {
		for _, d := range n.Deny {
			add(true, "not reached: %s", d.Text)
		}
		add(n.UpstreamCA != nil, "more authorities are trusted")
		b, _ := json.Marshal(struct {
			Web    [][]policy.PlanWeb
			Budget policy.PlanBudget
		}{n.Web, n.Budget})
		add(len(n.Web) > 0 || n.Budget != policy.PlanBudget{}, "network: %s", b)
	}
	return out
}
