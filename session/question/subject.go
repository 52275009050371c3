// SPDX-License-Identifier: Apache-2.0

package question

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/tool"
)

// Described is a call as the people who are asked see it.
type Described struct {
	Call   *policy.Call
	Plan   *policy.Plan
	Policy *policy.Policy
	// Argv is what records have of the call's, where that is not the same.
	RecordArgv []string
	// Fetches says that it is a declared request; DangerousMounts that the operator let
	// them through.
	Fetches, DangerousMounts bool
	Watch                    []policy.WatchRule
	// HasSource says that code is run: Source, or Binary, which is a compiled program.
	HasSource bool
	Source    []byte
	Binary    *hostpath.Source
	// HasStdin says that there is standard input, Stdin is all of it.
	HasStdin     bool
	Stdin        []byte
	Placeholders map[string]string // of secrets, by variable
	Findings     []sandbox.Finding
}

// Subject is everything that decides what the call does, out of the environment
// that was made for it.
func (a *Asking) Subject(ctx context.Context, w *environment.Environment, image string) (*approval.Subject, error) {
	s, err := a.About(ctx, w.Exec.Argv, w.Dir, w.Exec.Env)
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
		if m.Shared {
			access += ", shared"
		}
		s.Mounts = append(s.Mounts, approval.Mount{Source: m.Name, Target: m.Target, Access: access, Object: hostpath.Identity(info)})
	}
	s.User, s.Image = w.Spec.User.Name, image
	inside := &contents{view: w.View(), image: image}
	s.Files, err = Contents(a.Call, w.Exec.Argv, w.Dir, w.Search, inside.read)
	if err != nil {
		return nil, err
	}
	if b := a.Binary; b != nil {
		f, err := contentOf(b.File, b.Name, b.Real)
		if err != nil {
			return nil, err
		}
		s.Files = append(s.Files, f)
	}
	return s, nil
}

// About is what a call says of itself: the part that is the same in a sandbox of
// its own and in a persistent one.
func (a *Asking) About(ctx context.Context, argv []string, dir string, env []string) (*approval.Subject, error) {
	c, p := a.Call, a.Plan
	s := &approval.Subject{
		Actor: c.Actor, Kind: string(c.Kind), Dir: dir, HasStdin: a.HasStdin, Stdin: a.Stdin, Argv: argv,
		Isolation: a.Intent.Isolation, Network: p.Network.String(), Limits: audit.LimitTexts(p.Limits), Policy: a.Policy.Digest(),
	}
	if a.HasSource {
		// The path of source inside is made up for each run.
		s.Argv, s.Program, s.Language = c.Argv, c.Program, c.Language
		if s.Code = a.Source; a.Binary != nil {
			s.Code = nil // it is among the files, with all of it
		}
	}
	store, err := a.Approvals.Store(ctx)
	if err != nil {
		return nil, err
	}
	key, err := store.SealKey(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.aboutTool(s, key); err != nil {
		return nil, err
	}
	if a.Fetches { // it is made of the arguments and the definition, and may have what is marked
		s.Stdin, s.HasStdin = nil, false
	}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if _, placeholder := a.Placeholders[name]; placeholder {
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
	if a.HasSource {
		line = nil // arguments of a program
	}
	s.Options = append(a.options(), unread(c, line)...)
	for _, q := range a.Question.Askings {
		s.Reasons = append(s.Reasons, approval.Reason{Rule: q.Rule, What: q.What})
	}
	for _, f := range a.Findings {
		s.Findings = append(s.Findings, f.Problem+" ("+f.Rule+")")
	}
	return s, nil
}

// aboutTool says which tool was called, and what that says of itself. A question is kept, shown and sent to webhooks: what no
// record has is sealed, as variables are.
func (a *Asking) aboutTool(s *approval.Subject, key []byte) error {
	t := a.Call.Tool
	if t == nil {
		return nil
	}
	args, err := json.Marshal(t.Args) // keys sorted: one text for one meaning
	shown, serr := json.Marshal(a.Policy.ToolRecord(t))
	all, aerr := json.Marshal([]any{string(args), s.Argv})
	if err := errors.Join(err, serr, aerr); err != nil {
		return sandbox.Errorf(sandbox.ErrInvalid, "tool "+sandbox.Quoted(t.Name), "its arguments cannot be written: %v", err)
	}
	s.Tool, s.Params = t.Name, string(shown)
	differs := a.RecordArgv != nil && !slices.Equal(a.RecordArgv, a.Call.Argv)
	if differs {
		s.Argv = a.RecordArgv
	}
	if differs || s.Params != string(args) {
		s.Marked = approval.Seal(key, string(all))
	}
	if known, ok := a.Policy.Tools().Lookup(t.Name); ok {
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
func (a *Described) options() []string {
	c, p := a.Call, a.Plan
	var out []string
	add := func(on bool, format string, args ...any) {
		if on {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(p.Root, "runs as the sandbox's root")
	add(p.BestEffort, "best effort")
	add(a.DangerousMounts, "dangerous mounts allowed")
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
	for _, rule := range slices.Concat(p.Watch, a.Watch) {
		add(true, "watch: %s for %v, %s", rule.When, rule.For, rule.Do)
	}
	if p.Rootfs != nil {
		add(true, "root: %s", p.Rootfs.Source)
	}
	for _, t := range p.Toolchains {
		add(true, "toolchain: %s", t.Source)
	}
	if c := p.Changes; c != nil {
		add(c.From != "", "begins with change set %s", c.From)
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
