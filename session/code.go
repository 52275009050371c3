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
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/policy/code"
	"github.com/caisson-run/caisson/policy/shell"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
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
	c := &codeReader{session: r.Session, call: r.Call, io: &r.IO, source: &r.source, rules: r.Plan.Code, base: base}
	read, err := c.read(ctx, argv)
	if err == nil {
		r.Findings, err = r.Session.o.Policy.JudgeCode(&r.Call.Call, read)
	}
	return err
}

// codeReader reads the texts that a call would run, before it runs.
type codeReader struct {
	session *Session
	call    *Call
	io      *IO
	source  *source
	rules   *policy.PlanCode
	base    *Invocation // whose root and level have what reads them
}

// read reads those that the policy has rules for.
func (c *codeReader) read(ctx context.Context, argv []string) ([]policy.ReadText, error) {
	var read []policy.ReadText
	for _, t := range c.texts(argv) {
		if t.Stdin && !t.Known {
			if err := c.inputText(ctx, &t); err != nil {
				return nil, err
			}
		}
		facts, err := c.factsOf(ctx, &t)
		if err != nil {
			return nil, err
		}
		if facts != nil {
			read = append(read, policy.ReadText{Language: t.Language, Name: t.name, Facts: facts, Hint: t.Hint})
		}
	}
	return read, nil
}

// programText is a text, and what it is called in messages.
type programText struct {
	code.Text
	name string
}

// texts are those of the call that the policy has rules for.
func (c *codeReader) texts(argv []string) []programText {
	if c.source.Program == nil {
		return c.startedTexts(shell.Argv(argv))
	}
	name := SourceName(c.call, *c.source.Program)
	switch l := code.Language(c.source.Program.language); {
	case c.source.Program.direct:
		return nil
	case c.call.Source.Cell && !interpreter.Own(string(l)):
		return c.unread(name, "what a kernel "+sandbox.Quoted(string(l))+" runs is known inside alone", "use a context of python, javascript, typescript or bash")
	case l == "bash":
		return c.startedTexts(shell.Line(string(c.call.Source.Code), shell.Bash))
	case l == "sh":
		return c.startedTexts(shell.Line(string(c.call.Source.Code), shell.POSIX))
	case c.rules.For(l):
		return []programText{{code.Text{Language: l, Source: string(c.call.Source.Code), Known: true, AsFile: true}, name}}
	}
	// A #! line may name an interpreter by way of another program.
	return c.startedTexts(shell.Argv(c.call.Program))
}

// unread is a text that may be of any language, and cannot be read.
func (c *codeReader) unread(name, why, hint string) (out []programText) {
	for _, l := range []code.Language{code.PythonLanguage, code.JavaScriptLanguage} {
		if c.rules.For(l) {
			out = append(out, programText{code.Text{Language: l, Why: why, Hint: hint}, name})
		}
	}
	return out
}

// startedTexts are the texts that commands have interpreters run.
func (c *codeReader) startedTexts(s *shell.Script) []programText {
	var out []programText
	for _, f := range s.Refusals {
		out = c.unread("the shell line", "what would run cannot be told: "+f.Why, f.Hint)
		break
	}
	for i := range s.Commands {
		cmd := &s.Commands[i]
		words := make([]code.Word, len(cmd.Words))
		for j, w := range cmd.Words {
			words[j] = code.Word{Text: w.Text, Known: w.Static}
		}
		t, ok := code.Find(words, code.Input(cmd.Input))
		if !ok || !c.rules.For(t.Language) {
			continue
		}
		if len(out) == maxTexts {
			out = append(out, c.unread("the rest", fmt.Sprintf("the call has more than %d texts", maxTexts), "make several calls")...)
			break
		}
		name := "code of " + path.Base(cmd.Name())
		if t.Stdin {
			name = "input of " + path.Base(cmd.Name())
		}
		out = append(out, programText{t, name})
	}
	return out
}

// inputText reads the text that comes on standard input.
func (c *codeReader) inputText(ctx context.Context, t *programText) error {
	switch {
	case c.call.TTY != nil, c.call.TypedInput && c.io.Stdin != nil, c.call.WritesInput:
		t.Why, t.Hint = "what is typed is not known beforehand", "hand the source over with the call"
		return nil
	case c.io.Stdin == nil:
		t.Known = true // and empty
		return nil
	}
	if err := c.source.capture(ctx, c.io, captureTime, "its source is read before it runs"); err != nil {
		return err
	}
	t.Source, t.Known = string(c.source.input), true
	return nil
}

// captureTime is how long standard input may take that holds a program.
const captureTime = 30 * time.Second

// factsOf reads one text; nil is nothing to say.
func (c *codeReader) factsOf(ctx context.Context, t *programText) (f *code.Facts, err error) {
	switch {
	case t.Why != "":
		f = code.Unreadable(t.Why)
	case len(t.Source) > code.MaxText:
		f = code.Unreadable(fmt.Sprintf("it is longer than the %s that are read", Size(code.MaxText)))
	case t.Source == "":
		f = &code.Facts{}
	case t.Language == code.PythonLanguage:
		f, err = c.readInside(ctx, code.Python(t.AsFile), t, code.ReadPython)
	case t.Language == code.TypeScriptLanguage:
		f, err = c.readInside(ctx, code.TypeScript(), t, code.ReadTypeScript)
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
func (c *codeReader) readInside(ctx context.Context, s code.Script, t *programText, facts func([]byte) *code.Facts) (*code.Facts, error) {
	a := newReader(c.call, c.base, s, []byte(t.Source))
	res, err := readOut(ctx, a)
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

// newReader is the run of a script for a call: the root of base and its level, and
// nothing else.
func newReader(of *Call, base *Invocation, s code.Script, text []byte) *Invocation {
	from := &base.Plan
	l := from.Limits
	l.Explicit, l.Output, l.OutputKill = nil, code.MaxAnswer, true
	l.Wall, l.CPUTime = least(l.Wall, readWall), least(l.CPUTime, readWall)
	l.Memory, l.Disk, l.Tmp = least(l.Memory, readMemory), least(l.Disk, readFiles), least(l.Tmp, readFiles)
	l.Processes = least(l.Processes, readTasks)
	call := &Call{Frontend: of.Frontend, Account: of.Account}
	call.Kind, call.Actor, call.Argv, call.InsecureRegistry = policy.RunCommand, of.Actor, s.Argv, base.Call.InsecureRegistry
	a := &Invocation{Session: base.Session, Call: call, IO: IO{Stdin: bytes.NewReader(text)}, ID: NewID(), source: source{own: true}}
	a.Plan = policy.Plan{
		Isolation: from.Isolation, Image: from.Image, Rootfs: from.Rootfs, Toolchains: from.Toolchains,
		Limits: l, Writable: []string{"/tmp"}, Env: map[string]string{}, From: map[string]string{},
	}
	a.Intent = audit.Intent{
		Actor: of.Actor, Account: of.Account, Kind: KindReadCode, Sandbox: a.ID, Argv: []string{s.Name}, Policy: base.Session.o.PolicyName, PolicySHA: base.Session.o.Policy.Digest(),
		Isolation: from.Isolation, Network: "none", Limits: l,
	}
	if from.Image != nil {
		a.Intent.Image = from.Image.Ref
	}
	return a
}

// readOut runs a reader: it is recorded like any sandbox.
func readOut(ctx context.Context, r *Invocation) (*sandbox.Result, error) {
	d, posture, err := r.Level(ctx, r.Session, r.Call)
	if err != nil {
		return nil, err
	}
	var w *environment.Environment
	if m := r.takeReady(ctx); m != nil {
		w, err = m.adopt(r)
	} else {
		w, err = r.Prepare(ctx)
	}
	if err != nil {
		return nil, err
	}
	op, err := audit.Begin(ctx, r.Session.o.Journal, r.Intent)
	if err != nil {
		return nil, err
	}
	res, err := r.CarryOut(ctx, w.Exec, (&oneshot{Invocation: r, driver: d, env: w}).start)
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
