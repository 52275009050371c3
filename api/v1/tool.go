// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/toolcall"
	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/tool/params"
)

// ToolCall is a call of a tool: by its name and arguments, or as a model wrote it.
type ToolCall struct {
	Name      string          `json:"name,omitempty" maxLength:"64" doc:"The tool's"`
	Arguments json.RawMessage `json:"arguments,omitempty" doc:"An object"`
	Call      json.RawMessage `json:"call,omitempty" doc:"Instead: what a model's API gave, as it is. A tool_use block (Anthropic), a function_call or shell_call item (OpenAI's Responses), a tool call (Chat Completions)"`
	SandboxID string          `json:"sandbox_id,omitempty" maxLength:"64" doc:"With call: the sandbox that it is about, where the model named none and the tool takes one: so for shell_call, and Anthropic's own bash and text editor"`
	Resumable bool            `json:"resumable,omitempty" doc:"Where people are asked about it, answer at once with a problem that has an approval, instead of waiting a minute for them"`
	Approval  string          `json:"approval,omitempty" maxLength:"256" doc:"The token of such a problem: the same call again, to run if an approver has said yes"`
}

// ToolResult is what came of a tool that was carried out.
type ToolResult struct {
	Output map[string]any `json:"output,omitempty" doc:"Of a call by name: as the tool's output schema says"`
	Failed bool           `json:"failed,omitempty" doc:"It was carried out and did not succeed"`
	Result any            `json:"result,omitempty" doc:"Of a call of a model's: what its API takes back, as it is"`
}

type toolsWish struct {
	Format string `query:"format" enum:"openai,openai-chat,anthropic,mcp" default:"mcp" doc:"As whose API takes them: OpenAI's Responses or Chat Completions, Anthropic's Messages, MCP's tools/list"`
}

type toolsAnswer struct{ Body json.RawMessage }

// tools registers what carries tools out.
func (s *Server) tools() {
	op := operation("GET", "/tools", "listTools", "List the tools that the key may call, as a model's API takes them", http.StatusOK)
	register(s, op, func(_ context.Context, k *persistent.Key, in *toolsWish) (*toolsAnswer, error) {
		list, err := s.o.Sandboxes.Tools(k)
		if err != nil {
			return nil, err
		}
		text, err := tool.Export(list, in.Format)
		return &toolsAnswer{text}, err
	})
	op = operation("POST", "/tools/call", "callTool", "Call a tool, by its name or as a model wrote it", http.StatusOK)
	op.Description = "What it runs is ended when the caller goes away. A problem in answer to a call of a model's has a result, too: what its API takes back."
	register(s, op, func(ctx context.Context, k *persistent.Key, in *struct{ Body ToolCall }) (*struct{ Body *ToolResult }, error) {
		r, err := s.callTool(ctx, k, &in.Body)
		return &struct{ Body *ToolResult }{r}, err
	})
}

func (s *Server) callTool(ctx context.Context, k *persistent.Key, q *ToolCall) (*ToolResult, error) {
	x := &toolExchange{boxes: s.o.Sandboxes, key: k, wish: q, held: callOf(ctx).held}
	invalid := func(problem, hint string) error {
		return &sandbox.Error{Op: "call", Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
	}
	switch {
	case q.Name != "" && q.Call != nil:
		return nil, invalid("it has a name and a call of a model's", "leave one of them out")
	case q.Name != "" && q.SandboxID != "":
		return nil, invalid("sandbox_id stands beside the arguments", "which sandbox is meant is one of the tool's arguments")
	case q.Name != "":
		a, err := x.last(ctx, q.Name, q.Arguments)
		if err != nil {
			return nil, err
		}
		return &ToolResult{Output: a.Output, Failed: a.Failed}, nil
	case q.Call == nil:
		return nil, invalid("it names no tool", `give name and arguments, or a call`)
	case q.Arguments != nil:
		return nil, invalid("it has arguments beside a call of a model's", "leave one of them out")
	}
	c, err := tool.ReadCall(q.Call)
	if err != nil {
		return nil, err
	}
	r, err := x.model(ctx, c)
	if err != nil {
		p := asProblem(err)
		text := p.Detail
		if p.Hint != "" {
			text += "\nhint: " + p.Hint
		}
		if p.Rule != "" {
			text += "\nrule: " + p.Rule
		}
		p.Result = c.Result(tool.Answer{Text: text, Failed: true})
		return nil, p
	}
	return r, nil
}

// toolExchange carries one request out, which may be several calls of tools.
type toolExchange struct {
	boxes *persistent.Sandboxes
	key   *persistent.Key
	wish  *ToolCall
	held  *api.Held
}

// one calls a tool. It waits a while for people that are asked about it.
func (x *toolExchange) one(ctx context.Context, name string, args any) (*toolcall.Answer, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	return x.call(ctx, &toolcall.Call{Name: name, Args: text})
}

// last calls the tool that the request comes to: what it says of approval is about
// this call.
func (x *toolExchange) last(ctx context.Context, name string, args any) (*toolcall.Answer, error) {
	text, err := json.Marshal(args)
	if raw, ok := args.(json.RawMessage); ok {
		text, err = raw, nil // every byte of it, for who reads it
	}
	if err != nil {
		return nil, err
	}
	return x.call(ctx, &toolcall.Call{Name: name, Args: text, Ways: question.Ways{Resumable: x.wish.Resumable, Approval: x.wish.Approval}})
}

func (x *toolExchange) call(ctx context.Context, c *toolcall.Call) (*toolcall.Answer, error) {
	c.Frontend, c.AnswerTimeout = "api", askTimeout
	out, errs := &toll{held: x.held}, &toll{held: x.held}
	c.Stdout, c.Stderr = out, errs
	a, err := x.boxes.CallTool(ctx, x.key, c)
	if err == nil {
		err = firstOf(out.full(), errs.full())
	}
	return a, err
}

// model carries out a call of a model's.
func (x *toolExchange) model(ctx context.Context, c *tool.Call) (*ToolResult, error) {
	if c.Shell != nil {
		return x.shell(ctx, c)
	}
	known, err := x.boxes.Tools(x.key)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(known, func(t *tool.Tool) bool { return t.Name == c.Name })
	switch {
	case at >= 0 || !c.Anthropic:
	case c.Name == "bash":
		return x.bash(ctx, c)
	case slices.Contains(tool.EditorNames(), c.Name):
		return x.edit(ctx, c)
	}
	args := c.Args
	if at >= 0 {
		if args, err = x.placed(known[at], args); err != nil {
			return nil, err
		}
	}
	a, err := x.last(ctx, c.Name, args)
	if err != nil {
		return nil, err
	}
	return shownTo(c, a), nil
}

// placed are a tool's arguments with the sandbox that stands beside the call, where
// the tool takes one and the model named none.
func (x *toolExchange) placed(t *tool.Tool, text json.RawMessage) (json.RawMessage, error) {
	var schema struct{ Properties map[string]json.RawMessage }
	if x.wish.SandboxID == "" || json.Unmarshal(t.Params, &schema) != nil || schema.Properties["sandbox_id"] == nil {
		return text, nil
	}
	v, err := params.Read(text)
	if err != nil {
		return nil, err
	}
	args, ok := v.(map[string]any)
	if !ok || args["sandbox_id"] != nil {
		return text, nil
	}
	args["sandbox_id"] = x.wish.SandboxID
	return json.Marshal(args)
}

// shownTo is an answer as the model's API takes it.
func shownTo(c *tool.Call, a *toolcall.Answer) *ToolResult {
	text, pictures := a.Shown()
	d := tool.Answer{Text: text, Failed: a.Failed}
	for _, p := range pictures {
		d.Pictures = append(d.Pictures, tool.Picture(p))
	}
	return &ToolResult{Result: c.Result(d), Failed: a.Failed}
}

// line is a call of run_command for a line of bash.
func (x *toolExchange) line(text string) map[string]any {
	args := map[string]any{"command": "bash", "args": []string{"-c", text}}
	if x.wish.SandboxID != "" {
		args["sandbox_id"] = x.wish.SandboxID
	}
	return args
}

// bashContext is the context of the shell that Anthropic's bash tool has in a sandbox.
const bashContext = "bash-tool"

// bash carries out Anthropic's bash tool. In a persistent sandbox it is one shell, as models
// expect; without one, or where the policy has no run_code, each call is a shell of its own, and
// a restart has nothing to do.
func (x *toolExchange) bash(ctx context.Context, c *tool.Call) (*ToolResult, error) {
	var in tool.Bash
	if err := tool.DecodeCall(c.Args, &in); err != nil {
		return nil, err
	}
	known, err := x.boxes.Tools(x.key)
	if err != nil {
		return nil, err
	}
	living := x.wish.SandboxID != "" && slices.ContainsFunc(known, func(t *tool.Tool) bool { return t.Name == "run_code" })
	switch {
	case living && in.Restart:
		err := x.boxes.Handle(x.key, x.wish.SandboxID).RestartContext(ctx, "", bashContext)
		if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			return nil, err
		}
		if in.Command == "" {
			return &ToolResult{Result: c.Result(tool.Answer{Text: "the shell was restarted"})}, nil
		}
	case in.Restart && in.Command == "":
		return &ToolResult{Result: c.Result(tool.Answer{Text: "each command has a shell of its own: there is nothing to restart"})}, nil
	case in.Command == "":
		return nil, &sandbox.Error{Op: "call", Kind: sandbox.ErrInvalid, Problem: "it has no command"}
	}
	name, args := "run_command", x.line(in.Command)
	if living {
		name, args = "run_code", map[string]any{"language": "bash", "code": in.Command, "sandbox_id": x.wish.SandboxID, "context": bashContext}
	}
	a, err := x.last(ctx, name, args)
	if living && errors.Is(err, sandbox.ErrUnsupported) { // it has no bash that could stay
		a, err = x.last(ctx, "run_command", x.line(in.Command))
	}
	if err != nil {
		return nil, err
	}
	return shownTo(c, a), nil
}

// shell carries out OpenAI's shell tool. When one of its commands is refused, or is
// asked about, the rest is not run.
func (x *toolExchange) shell(ctx context.Context, c *tool.Call) (*ToolResult, error) {
	carry := x.last
	if len(c.Shell.Commands) > 1 {
		if x.wish.Approval != "" || x.wish.Resumable {
			return nil, &sandbox.Error{Op: "call", Kind: sandbox.ErrInvalid, Problem: "it has several commands, and an approval is for one", Hint: "make a call of each"}
		}
		carry = x.one
	}
	list, failed := []tool.Ended{}, false
	for i, command := range c.Shell.Commands {
		args := x.line(command)
		if t := c.Shell.TimeoutMS; t != nil && *t > 0 {
			args["timeout"] = *t / 1000
		}
		a, err := carry(ctx, "run_command", args)
		if err != nil && i == 0 {
			return nil, err
		}
		if err != nil {
			list = append(list, tool.Ended{Stderr: asProblem(err).Detail + "; nothing behind it was run", ExitCode: 126})
			failed = true
			break
		}
		e := tool.Ended{Timeout: a.Result != nil && a.Result.Status == sandbox.StatusTimeout}
		e.Stdout, _ = a.Output["stdout"].(string)
		e.Stderr, _ = a.Output["stderr"].(string)
		switch r := a.Result; {
		case r == nil || r.ExitCode == nil && r.Signal == "" && a.Failed:
			e.ExitCode = 1
		case r.ExitCode != nil:
			e.ExitCode = *r.ExitCode
		default:
			e.ExitCode = 137
		}
		if reason, _ := a.Output["reason"].(string); reason != "" && a.Failed {
			e.Stderr += "[" + reason + "]\n"
		}
		failed = failed || a.Failed
		list = append(list, e)
	}
	return &ToolResult{Result: c.ShellResult(list), Failed: failed}, nil
}

// maxEdited is how long a file may be that is edited here, in bytes.
const maxEdited = 1 << 20

// edit carries out Anthropic's text editor, by reading and writing files as the
// tools read_file and write_file do, each of which is decided and recorded.
func (x *toolExchange) edit(ctx context.Context, c *tool.Call) (*ToolResult, error) {
	e, err := tool.ReadEdit(c.Args)
	if err != nil {
		return nil, err
	}
	id := x.wish.SandboxID
	if id == "" {
		return nil, &sandbox.Error{Op: "call", Kind: sandbox.ErrInvalid, Problem: "it says in no sandbox", Hint: "give the sandbox_id of a persistent sandbox beside the call"}
	}
	if e.Command == "view" {
		return x.view(ctx, c, e)
	}
	old := ""
	if e.Command != "create" {
		a, err := x.one(ctx, "read_file", map[string]any{"sandbox_id": id, "path": e.Path, "limit": maxEdited})
		if err != nil {
			return nil, err
		}
		if a.Output["encoding"] != "text" || a.Output["truncated"] == true {
			return nil, &sandbox.Error{Op: "call", Kind: sandbox.ErrInvalid, Problem: "the file is no text, or longer than 1 MiB"}
		}
		old, _ = a.Output["content"].(string)
	}
	text, err := e.Apply(old)
	if err != nil {
		return nil, err
	}
	a, err := x.last(ctx, "write_file", map[string]any{"sandbox_id": id, "path": e.Path, "content": text})
	if err != nil {
		return nil, err
	}
	if a.Failed {
		return shownTo(c, a), nil
	}
	return &ToolResult{Result: c.Result(tool.Answer{Text: e.Path + " is written"})}, nil
}

// view shows a file, or what is in a directory, two levels down.
func (x *toolExchange) view(ctx context.Context, c *tool.Call, e *tool.Edit) (*ToolResult, error) {
	args := map[string]any{"sandbox_id": x.wish.SandboxID, "path": e.Path}
	a, err := x.last(ctx, "read_file", args)
	if errors.Is(err, sandbox.ErrDenied) {
		return nil, err
	}
	if err != nil {
		// It may be a directory; if not, what was wrong with the file is the answer.
		args["depth"] = 2
		if list, lerr := x.one(ctx, "list_files", args); lerr == nil {
			return shownTo(c, list), nil
		}
		return nil, err
	}
	if a.Output["encoding"] != "text" {
		return shownTo(c, a), nil
	}
	content, _ := a.Output["content"].(string)
	text, err := e.View(content)
	if err != nil {
		return nil, err
	}
	if a.Output["truncated"] == true {
		text += "[the file goes on]\n"
	}
	return &ToolResult{Result: c.Result(tool.Answer{Text: text})}, nil
}

// toll counts the beginning of a stream, which an answer holds, as far as the key's
// messages have room. What there is no room for ends the program.
type toll struct {
	held *api.Held

	mu   sync.Mutex
	n    int64
	fail error
}

// maxShown is how much of a stream a tool's answer holds.
const maxShown = 1 << 20

func (t *toll) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(int64(len(p)), maxShown-t.n)
	// As it is, as text, and as the answer has it.
	if t.fail = t.held.Add(3 * n); t.fail != nil {
		return 0, t.fail
	}
	t.n += n
	return len(p), nil
}

func (t *toll) full() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fail
}
