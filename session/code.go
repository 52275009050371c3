// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/policy/code"
	"github.com/caisson-run/caisson/policy/shell"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/operation"
)

// KindReadCode is the kind of a record about a sandbox in which the text of a
// program was read, before the call that would run it.
const KindReadCode = "read_code"

// maxTexts is how many texts of one call are read.
const maxTexts = 8

// ReadCode has the texts that the call would run read, where the policy has rules
// for them, and notes what it has to say. argv is what is started where the call
// has no source; base is the run whose root is the sandbox's. The error is an
// ErrDenied where the policy refuses the call for what its texts say.
func (r *Invocation) ReadCode(ctx context.Context, argv []string, base *Invocation) error {
	if r.Plan.Code == nil || r.Ahead {
		return nil
	}
	var read []policy.ReadText
	for _, t := range r.texts(argv) {
		if t.Stdin && !t.Known {
			if err := r.inputText(ctx, &t); err != nil {
				return err
			}
		}
		facts, err := r.factsOf(ctx, &t, base)
		if err != nil {
			return err
		}
		if facts != nil {
			read = append(read, policy.ReadText{Language: t.Language, Name: t.name, Facts: facts, Hint: t.Hint})
		}
	}
	var err error
	r.Findings, err = r.Session.o.Policy.JudgeCode(&r.Call.Call, read)
	return err
}

// programText is a text, and what it is called in messages.
type programText struct {
	code.Text
	name string
}

// texts are those of the call that the policy has rules for.
func (r *Invocation) texts(argv []string) []programText {
	if r.Program == nil {
		return r.startedTexts(shell.Argv(argv))
	}
	name := SourceName(r.Call, *r.Program)
	switch l := code.Language(r.Program.language); {
	case r.Program.direct:
		return nil
	case l == "bash":
		return r.startedTexts(shell.Line(string(r.Call.Source.Code), shell.Bash))
	case l == "sh":
		return r.startedTexts(shell.Line(string(r.Call.Source.Code), shell.POSIX))
	case r.Plan.Code.For(l):
		return []programText{{code.Text{Language: l, Source: string(r.Call.Source.Code), Known: true, AsFile: true}, name}}
	}
	// A #! line may name an interpreter by way of another program.
	return r.startedTexts(shell.Argv(r.Call.Program))
}

// startedTexts are the texts that commands have interpreters run.
func (r *Invocation) startedTexts(s *shell.Script) []programText {
	var out []programText
	unread := func(name, why, hint string) {
		for _, l := range []code.Language{code.PythonLanguage, code.JavaScriptLanguage} {
			if r.Plan.Code.For(l) {
				out = append(out, programText{code.Text{Language: l, Why: why, Hint: hint}, name})
			}
		}
	}
	for _, f := range s.Refusals {
		unread("the shell line", "what would run cannot be told: "+f.Why, f.Hint)
		break
	}
	for i := range s.Commands {
		c := &s.Commands[i]
		words := make([]code.Word, len(c.Words))
		for j, w := range c.Words {
			words[j] = code.Word{Text: w.Text, Known: w.Static}
		}
		t, ok := code.Find(words, code.Input(c.Input))
		if !ok || !r.Plan.Code.For(t.Language) {
			continue
		}
		if len(out) == maxTexts {
			unread("the rest", fmt.Sprintf("the call has more than %d texts", maxTexts), "make several calls")
			break
		}
		name := "code of " + path.Base(c.Name())
		if t.Stdin {
			name = "input of " + path.Base(c.Name())
		}
		out = append(out, programText{t, name})
	}
	return out
}

// inputText reads the text that comes on standard input.
func (r *Invocation) inputText(ctx context.Context, t *programText) error {
	switch {
	case r.Call.TTY != nil, r.Call.TypedInput && r.IO.Stdin != nil, r.Call.WritesInput:
		t.Why, t.Hint = "what is typed is not known beforehand", "hand the source over with the call"
		return nil
	case r.IO.Stdin == nil:
		t.Known = true // and empty
		return nil
	}
	if err := r.captureInput(ctx, captureTime, "its source is read before it runs"); err != nil {
		return err
	}
	t.Source, t.Known = string(r.input), true
	return nil
}

// captureTime is how long standard input may take that holds a program.
const captureTime = 30 * time.Second

// factsOf reads one text; nil is nothing to say.
func (r *Invocation) factsOf(ctx context.Context, t *programText, base *Invocation) (f *code.Facts, err error) {
	switch {
	case t.Why != "":
		f = code.Unreadable(t.Why)
	case len(t.Source) > code.MaxText:
		f = code.Unreadable(fmt.Sprintf("it is longer than the %s that are read", Size(code.MaxText)))
	case t.Source == "":
		f = &code.Facts{}
	case t.Language == code.PythonLanguage:
		f, err = r.readInside(ctx, code.Python(t.AsFile), t, code.ReadPython, base)
	case t.Language == code.TypeScriptLanguage:
		f, err = r.readInside(ctx, code.TypeScript(), t, code.ReadTypeScript, base)
	default:
		f = code.JavaScript([]byte(t.Source))
	}
	if err != nil {
		return nil, err
	}
	for _, m := range t.Imports {
		f.Imports = append(f.Imports, code.Fact{Name: m, Line: 1, Column: 1, How: "the command line"})
	}
	return f, nil
}

// readInside has a script of package code read a text in a sandbox of its own, on
// the root that the call's program would have. What the script says is as good as
// that root.
func (r *Invocation) readInside(ctx context.Context, s code.Script, t *programText, facts func([]byte) *code.Facts, base *Invocation) (*code.Facts, error) {
	a := r.reader(s, []byte(t.Source), base)
	res, err := a.readOut(ctx)
	if err := errors.Join(err, a.left, a.Undo.Run(ctx)); err != nil {
		return nil, err
	}
	switch {
	case res.Status == sandbox.StatusSuccess:
		return facts(res.Stdout), nil
	case res.Status == sandbox.StatusError && res.ExitCode != nil && (*res.ExitCode == 127 || *res.ExitCode == 126):
		t.Hint = "use a root that has " + s.Argv[0]
		return code.Unreadable("there is no " + s.Argv[0] + " inside that would read it"), nil
	case res.Reason != "":
		return code.Unreadable("its reader was ended: " + res.Reason), nil
	}
	return code.Unreadable("its reader failed"), nil
}

// Bounds of a sandbox in which a text is read.
const (
	readWall   = 15 * time.Second
	readMemory = 256 << 20
	readFiles  = 16 << 20
	readTasks  = 64 // node has a dozen threads
)

// reader is the run of a script: the root of base and its level, and nothing else.
func (r *Invocation) reader(s code.Script, text []byte, base *Invocation) *Invocation {
	from := &base.Plan
	l := from.Limits
	l.Explicit, l.Output, l.OutputKill = nil, code.MaxAnswer, true
	l.Wall, l.CPUTime = least(l.Wall, readWall), least(l.CPUTime, readWall)
	l.Memory, l.Disk, l.Tmp = least(l.Memory, readMemory), least(l.Disk, readFiles), least(l.Tmp, readFiles)
	l.Processes = least(l.Processes, readTasks)
	call := &Call{Frontend: r.Call.Frontend, Account: r.Call.Account}
	call.Kind, call.Actor, call.Argv, call.InsecureRegistry = policy.RunCommand, r.Call.Actor, s.Argv, base.Call.InsecureRegistry
	a := &Invocation{Session: r.Session, Call: call, IO: IO{Stdin: bytes.NewReader(text)}, ID: NewID(), source: source{own: true}}
	a.Plan = policy.Plan{
		Isolation: from.Isolation, Image: from.Image, Rootfs: from.Rootfs, Toolchains: from.Toolchains,
		Limits: l, Writable: []string{"/tmp"}, Env: map[string]string{}, From: map[string]string{},
	}
	a.Intent = audit.Intent{
		Actor: r.Call.Actor, Account: r.Call.Account, Kind: KindReadCode, Sandbox: a.ID, Argv: []string{s.Name}, Policy: r.Session.o.PolicyName, PolicySHA: r.Session.o.Policy.Digest(),
		Isolation: from.Isolation, Network: "none", Limits: l,
	}
	if from.Image != nil {
		a.Intent.Image = from.Image.Ref
	}
	return a
}

// readOut runs a reader: it is recorded like any sandbox.
func (r *Invocation) readOut(ctx context.Context) (*sandbox.Result, error) {
	d, posture, err := r.Level(ctx)
	if err != nil {
		return nil, err
	}
	var w *environment.Environment
	if m := r.Session.takeReady(shapeOf(r.Call, &r.Decision, r.Program)); m != nil {
		w, err = m.adopt(r)
	} else {
		w, err = r.Prepare(ctx)
	}
	if err != nil {
		return nil, err
	}
	op, err := operation.Begin(ctx, r.Session.o.Journal, r.Intent)
	if err != nil {
		return nil, err
	}
	res, err := r.CarryOut(ctx, w.Exec, func(ctx context.Context, ex *sandbox.Exec) (*sandbox.Result, error) { return r.start(ctx, d, w, ex) })
	if res != nil {
		r.Finish(res, posture)
	}
	out := r.Outcome(res, err)
	out.Stdout, out.Stderr = nil, nil // the call's record has what came of it
	out.Result = withoutStreams(out.Result)
	return res, errors.Join(err, op.End(ctx, out))
}

// withoutStreams is a Result that a record keeps no output of.
func withoutStreams(res *sandbox.Result) *sandbox.Result {
	if res == nil {
		return nil
	}
	c := *res
	c.Stdout, c.Stderr = nil, nil
	return &c
}

// least is the smaller of two bounds, of which 0 is none.
func least[T int | int64 | time.Duration](a, b T) T {
	if a == 0 {
		return b
	}
	return min(a, b)
}
