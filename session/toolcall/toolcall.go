// SPDX-License-Identifier: Apache-2.0

// Package toolcall carries tools out: decided by the policy, under schema, rates and
// approval, and recorded. A program runs in a sandbox of its own or in a persistent one;
// a declared request is made from a sandbox of its own; a server behind a gateway carries
// out its own.
package toolcall

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"sync"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/tool/params"
)

// Tools carry out the tools that a session's policy has.
type Tools struct{ session *session.Session }

// Of are the tools of s.
func Of(s *session.Session) *Tools { return &Tools{s} }

// Call is one call of a tool, as it came.
type Call struct {
	Name string
	// Args are the arguments, a JSON object; empty is one without any. Read are the files
	// that they were read from: code that the tool runs cannot change them.
	Args []byte
	Read []sandbox.HostFile

	// Frontend is where the request came in: "mcp".
	Frontend string
	// Actor is who asks, where that is no key: the user of the command line.
	// Operator says that it is the owner of this host.
	Actor    string
	Operator bool

	// Ways are those of [session.Call].
	question.Ways

	// Stdout and Stderr, when set, get what a program writes as it comes, besides
	// the answer.
	Stdout, Stderr io.Writer
}

// Answer is what came of a tool that was carried out.
type Answer struct {
	// Output fits the tool's output schema.
	Output map[string]any
	// Failed says that it was carried out and did not succeed: its program ended
	// with another code than 0, or a limit ended it.
	Failed bool
	// Result is the program's, where one ran.
	Result *sandbox.Result
	// Pictures are those that a cell showed.
	Pictures []Picture
}

// Tools are what CallTool may be asked for: those about persistent sandboxes are
// not among them.
func (s *Tools) Tools() []*tool.Tool { return s.tools(false) }

// ToolsIn are the tools that CallToolIn may be asked for.
func (s *Tools) ToolsIn() []*tool.Tool { return s.tools(true) }

func (s *Tools) tools(persistent bool) (out []*tool.Tool) {
	for _, t := range s.session.Policy().Tools().List() {
		if c, ok := carriers()[t.Name]; t.Command != nil || t.HTTP != nil || ok && (persistent || !c.persistent) {
			out = append(out, t)
		}
	}
	return out
}

// CallTool carries a tool out in a sandbox of its own. It is decided, recorded and
// bounded like every call. What the policy refuses, arguments that do not fit and
// what could not be done are errors; what ran is an answer, however it ended.
//
// Errors: ErrDenied with the rule; a *Pending where the caller does not wait for
// approval; ErrInvalid for arguments that cannot be read, and, with all faults, as a
// [policy.Misfit] for those that do not fit;
// ErrUnsupported for a tool about persistent sandboxes.
func (s *Tools) CallTool(ctx context.Context, c *Call) (*Answer, error) {
	return (&run{call: c, session: s.session, actor: c.Actor, account: c.Actor}).do(ctx)
}

// Boxes are the persistent sandboxes of one key, in which tools are carried out.
type Boxes interface {
	// Run runs a call in a sandbox of its own, and Exec in the sandbox id.
	Run(ctx context.Context, call *session.Call, io session.IO) (*sandbox.Result, error)
	Exec(ctx context.Context, id string, call *session.Call, io session.IO) (*sandbox.Result, error)
	// RunCell runs code in the context in of the sandbox id, which is made where it is not
	// there.
	RunCell(ctx context.Context, id string, call *session.Call, in string, on func(interpreter.Event) error) (*sandbox.Result, error)
	// Tool carries out a tool that starts no program. It was decided and recorded; the
	// path of a file is a decision of its own, since only the sandbox says what it means.
	Tool(ctx context.Context, u *Use) (map[string]any, error)
	// Applying looks at what apply_changes would do.
	Applying(u *Use) (*Applying, error)
}

// Use is a tool that starts no program, on its way.
type Use struct {
	Name     string
	Sandbox  string // empty is none
	Frontend string
	Args     Args
	// Judge decides a path of a file inside.
	Judge func(kind policy.Kind, path, dir string) error
}

// CallToolIn is CallTool for a key: in the sandbox of boxes that its argument sandbox_id
// names, or in one of its own. account is whose rates it counts for, and actor who asks.
func (s *Tools) CallToolIn(ctx context.Context, boxes Boxes, account, actor string, c *Call) (*Answer, error) {
	c.Operator = false
	return (&run{call: c, session: s.session, boxes: boxes, account: account, actor: actor}).do(ctx)
}

// RefuseToolFor is RefuseTool for a key.
func (s *Tools) RefuseToolFor(ctx context.Context, account, actor string, c *Call) error {
	return (&run{call: c, session: s.session, account: account, actor: actor}).notOffered(ctx)
}

// RefuseTool records a call of a tool that its frontend does not offer: a search for
// tools leaves a trace, too. Its arguments are not recorded: no policy says which of
// them are to be kept out of records.
func (s *Tools) RefuseTool(ctx context.Context, c *Call) error {
	return (&run{call: c, session: s.session, actor: c.Actor, account: c.Actor}).notOffered(ctx)
}

func (t *run) notOffered(ctx context.Context) error {
	t.use = &policy.ToolCall{Name: t.call.Name}
	why := sandbox.Errorf(sandbox.ErrNotFound, "tool "+t.call.Name, "it is not offered")
	return audit.Refuse(ctx, t.session.Journal(), t.intent(), audit.RefusedOutcome(why))
}

// run is a tool's call on its way.
type run struct {
	call    *Call
	session *session.Session
	boxes   Boxes  // nil: there are no persistent ones
	account string // whose rates it counts for, and whose records
	actor   string

	use        *policy.ToolCall
	verdict    policy.Verdict
	args       Args
	definition string // of a server's tool
	answers    string // with a call of one
	// about adds to what people are shown; nil is nothing.
	about func() ([]string, error)
}

// do decides the tool, and hands what it does to the pipeline.
func (t *run) do(ctx context.Context) (*Answer, error) {
	carry, err := t.read()
	if err != nil {
		return nil, t.refuse(ctx, err)
	}
	// What starts a program is decided twice: arguments mean nothing before the tool has
	// been, and the program that they make is another call. So is what is looked at first.
	decide := t.session.Policy().DecideTool
	if carry.persistent && !carry.looks {
		decide = t.session.Policy().Decide
	}
	if t.verdict = decide(t.decided()); t.verdict.Decision == policy.Deny {
		return nil, t.refuse(ctx, t.verdict.Err())
	}
	if carry.do == nil { // the policy knows no such tool, and has refused it
		return nil, t.refuse(ctx, &sandbox.Error{Op: "tool " + t.use.Name, Kind: sandbox.ErrUnsupported, Problem: "nothing here carries it out",
			Hint: "give it a command or http in the policy; policy explain --call gives the verdict alone"})
	}
	if carry.persistent && t.boxes == nil {
		return nil, t.refuse(ctx, &sandbox.Error{Op: "tool " + t.use.Name, Kind: sandbox.ErrUnsupported, Problem: "there are no persistent sandboxes here", Hint: "ask caisson serve, or caisson mcp"})
	}
	return carry.do(t, ctx)
}

// read finds the tool and reads its arguments.
func (t *run) read() (carrier, error) {
	t.use = &policy.ToolCall{Name: t.call.Name}
	text := t.call.Args
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}")
	}
	v, err := params.Read(text)
	if err != nil {
		return carrier{}, err
	}
	t.use.Args = v
	t.args, _ = v.(map[string]any) // the schema wants one
	known, ok := t.session.Policy().Tools().Lookup(t.call.Name)
	switch {
	case !ok:
		return carrier{}, nil // the policy says so, and by which rule
	case known.Command != nil:
		return carrier{do: (*run).declared}, nil
	case known.HTTP != nil:
		return carrier{do: (*run).declaredHTTP}, nil
	}
	// Of what is built in; a declared command may have an argument of that name.
	t.use.Sandbox = t.args.Text("sandbox_id")
	return carriers()[known.Name], nil // none for what others carry out
}

// decided is the call as the policy sees it, before what it does is known.
func (t *run) decided() *policy.Call {
	return &policy.Call{Kind: policy.CallTool, Actor: t.actor, Operator: t.call.Operator, Tool: t.use}
}

// intent is the record's beginning.
func (t *run) intent() audit.Intent {
	in := audit.Intent{
		Actor: t.actor, Account: t.account, Kind: string(policy.CallTool), Sandbox: t.use.Sandbox,
		Policy: t.session.PolicyName(), PolicySHA: t.session.Policy().Digest(),
	}
	session.ToolIntent(&in, t.session.Policy(), t.use)
	return in
}

// refuse records a call that goes no further, and is why.
func (t *run) refuse(ctx context.Context, why error) error {
	err := audit.Refuse(ctx, t.session.Journal(), t.intent(), audit.RefusedOutcome(why))
	if errors.Is(err, sandbox.ErrExhausted) {
		return err // a caller is told only what is recorded
	}
	return errors.Join(why, err)
}

// recorded carries out what starts no program: intent first, then do, then what
// came of it.
func (t *run) recorded(ctx context.Context, do func(ctx context.Context) (map[string]any, error)) (*Answer, error) {
	note, err := t.admit(ctx, t.verdict)
	if err != nil {
		return nil, err
	}
	in := t.intent()
	in.Approval = note
	op, err := audit.Begin(ctx, t.session.Journal(), in)
	if err != nil {
		return nil, err
	}
	out, err := do(ctx)
	o := audit.Outcome{Status: audit.Allowed}
	if err != nil {
		o = audit.OutcomeOf(nil, err)
	}
	if jerr := op.End(ctx, o); jerr != nil {
		return nil, errors.Join(jerr, err)
	}
	if err != nil {
		return nil, err
	}
	return &Answer{Output: out}, nil
}

// approve has a tool that starts no program approved where the policy asks.
func (t *run) approve(ctx context.Context, v policy.Verdict) (*audit.Approval, error) {
	if v.Decision != policy.Ask {
		return nil, nil
	}
	r := &session.Invocation{Session: t.session, Call: t.asked(&session.Call{Call: *t.decided()}), Decision: session.Decision{Plan: v.Plan, Question: v.Question, Intent: t.intent()}}
	asking := r.Asking()
	return asking.Settle(ctx, func(ctx context.Context) (*approval.Subject, error) {
		s, err := asking.About(ctx, nil, "", nil)
		if err == nil {
			s.Sandbox = t.use.Sandbox
		}
		if err == nil && t.about != nil {
			var more []string
			more, err = t.about()
			s.Options = append(s.Options, more...)
		}
		if err == nil && t.use.Server != "" {
			s.Tool, s.Definition = t.use.Server+"/"+t.use.Name, t.definition
			if t.answers != "" {
				s.Options = append(s.Options, "answers what the server has asked: "+t.answers)
			}
		}
		return s, err
	}, func(context.Context) error { return nil })
}

// asked gives c the frontend's ways to ask, and what was read to make the call.
func (t *run) asked(c *session.Call) *session.Call {
	c.Read = t.call.Read
	c.Ways = t.call.Ways
	return c
}

// carrier is how a tool is carried out.
type carrier struct {
	persistent bool // it is about persistent sandboxes
	looks      bool // what it would do has to be looked at before it is decided
	do         func(*run, context.Context) (*Answer, error)
}

// carriers are how those that are built in are carried out.
var carriers = sync.OnceValue(func() map[string]carrier {
	return map[string]carrier{
		"run_code":       {do: (*run).runCode},
		"run_command":    {do: (*run).runCommand},
		"read_file":      {persistent: true, do: (*run).inBoxes},
		"write_file":     {persistent: true, do: (*run).inBoxes},
		"list_files":     {persistent: true, do: (*run).inBoxes},
		"create_sandbox": {persistent: true, do: (*run).inBoxes},
		"kill_sandbox":   {persistent: true, do: (*run).inBoxes},
		"list_sandboxes": {persistent: true, do: (*run).inBoxes},
		"keep_changes":   {persistent: true, do: (*run).inBoxes},
		"list_changes":   {persistent: true, do: (*run).inBoxes},
		"show_changes":   {persistent: true, do: (*run).inBoxes},
		"apply_changes":  {persistent: true, looks: true, do: (*run).applyChanges},
	}
})

// inBoxes carries out a tool about persistent sandboxes.
func (t *run) inBoxes(ctx context.Context) (*Answer, error) {
	if err := t.readContent(); err != nil {
		return nil, t.refuse(ctx, err)
	}
	return t.recorded(ctx, func(ctx context.Context) (map[string]any, error) {
		return t.boxes.Tool(ctx, t.inside())
	})
}

func (t *run) inside() *Use {
	return &Use{Name: t.use.Name, Sandbox: t.use.Sandbox, Frontend: t.call.Frontend, Args: t.args, Judge: t.judge}
}

// readContent refuses a file's content that is not what it says.
func (t *run) readContent() error {
	if t.use.Name != string(policy.WriteFile) || t.args.Text("encoding") != "base64" {
		return nil
	}
	if _, err := base64.StdEncoding.DecodeString(t.args.Text("content")); err != nil {
		return &sandbox.Error{Op: "argument /content", Kind: sandbox.ErrInvalid, Problem: "it is not base64", Cause: err}
	}
	return nil
}

// judge decides the path of a file. What else the policy says of the tool was decided.
func (t *run) judge(kind policy.Kind, path, dir string) error {
	if v := t.session.Policy().DecideTool(&policy.Call{Kind: kind, Actor: t.actor, Path: path, Cwd: dir}); v.Decision == policy.Deny {
		return v.Err()
	}
	return nil
}
