// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"context"
	"encoding/base64"
	"io"
	"maps"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// maxAnswered is how much of each stream an answer holds at most, whatever the
// output limit says: it goes to a model.
const maxAnswered = 1 << 20

// runCode carries out run_code.
func (t *run) runCode(ctx context.Context) (*Answer, error) {
	if t.args.Given("context") {
		return t.cell(ctx)
	}
	return t.program(ctx, t.code())
}

func (t *run) code() *session.Call {
	c := &session.Call{Source: &session.Source{Language: t.args.Text("language"), Code: []byte(t.args.Text("code"))}}
	c.Argv = t.args.Texts("args")
	return c
}

// runCommand carries out run_command.
func (t *run) runCommand(ctx context.Context) (*Answer, error) {
	return t.program(ctx, t.command())
}

func (t *run) command() *session.Call {
	c := &session.Call{}
	c.Argv = []string{"sh", "-c", t.args.Text("command")}
	if t.args.Given("args") {
		c.Argv = append([]string{t.args.Text("command")}, t.args.Texts("args")...)
	}
	return c
}

// declared carries out a command that the policy declares.
func (t *run) declared(ctx context.Context) (*Answer, error) {
	known, _ := t.session.Policy().Tools().Lookup(t.use.Name)
	argv, err := known.Command.Argv(t.args)
	if err != nil {
		return nil, t.refuse(ctx, err)
	}
	c := &session.Call{}
	c.Argv = argv
	if shown, ok := t.session.Policy().ToolRecord(t.use).(map[string]any); ok {
		if c.RecordArgv, err = known.Command.Argv(shown); err != nil { // what is redacted is no longer of its type
			c.RecordArgv = known.Command.Template()
		}
	}
	// Its arguments are its own: none of them is the sandbox's.
	return t.start(ctx, c, "", nil)
}

// around fills in what run_code and run_command have in common.
func (t *run) around(c *session.Call) {
	c.Env, c.Cwd = t.args.Table("env"), t.args.Text("cwd")
	if d := t.args.Seconds("timeout"); d > 0 {
		c.Limits.Wall, c.Limits.Explicit = d, map[sandbox.LimitName]bool{sandbox.LimitWall: true}
	}
}

// program runs c with what both have in common.
func (t *run) program(ctx context.Context, c *session.Call) (*Answer, error) {
	t.around(c)
	var stdin io.Reader
	if t.args.Given("stdin") {
		stdin = strings.NewReader(t.args.Text("stdin"))
	}
	return t.start(ctx, c, t.use.Sandbox, stdin)
}

// start runs c in a sandbox, or in one of its own.
func (t *run) start(ctx context.Context, c *session.Call, id string, stdin io.Reader) (*Answer, error) {
	c.Frontend, c.Actor, c.Operator, c.Tool, c.Account = t.call.Frontend, t.actor, t.call.Operator, t.use, t.account
	t.asked(c)
	stdout, stderr := newTee(t.call.Stdout), newTee(t.call.Stderr)
	io := session.IO{Stdin: stdin, Stdout: stdout, Stderr: stderr}
	var res *sandbox.Result
	var err error
	switch {
	case id == "" && t.boxes != nil:
		res, err = t.boxes.Run(ctx, c, io) // with the limits of a run, and in the key's quota
	case id == "":
		res, err = t.session.Do(ctx, c, io)
	case t.boxes == nil:
		return nil, t.refuse(ctx, &sandbox.Error{Op: "sandbox_id", Kind: sandbox.ErrUnsupported, Problem: "there are no persistent sandboxes here", Hint: "leave sandbox_id out"})
	default:
		res, err = t.boxes.Exec(ctx, id, c, io)
	}
	if err != nil {
		return nil, err
	}
	if res.Status == sandbox.StatusDenied {
		return nil, session.Denied("tool "+t.use.Name, res)
	}
	out := programOutput(res, stdout, stderr)
	if id != "" {
		out["sandbox_id"] = id
	}
	return &Answer{Output: out, Failed: res.Status != sandbox.StatusSuccess, Result: res}, nil
}

// programOutput is a Result in the words of the output schema.
func programOutput(r *sandbox.Result, stdout, stderr *tee) map[string]any {
	out := map[string]any{"status": string(r.Status), "wall_ms": r.WallMS}
	if r.ExitCode != nil {
		out["exit_code"] = *r.ExitCode
	}
	for name, s := range map[string]string{"signal": r.Signal, "reason": r.Reason, "resource": string(r.Resource), "rule": r.Rule, "hint": r.Hint} {
		if s != "" {
			out[name] = s
		}
	}
	if r.Changes != nil {
		out["changes"] = KeptOutput(r.Changes)
	}
	if len(r.Findings) > 0 {
		out["findings"] = r.Findings
	}
	cut, at := maps.Clone(r.Truncated), maps.Clone(r.TruncatedAt)
	for name, s := range map[string]*tee{"stdout": stdout, "stderr": stderr} {
		kept, more, where := s.kept()
		if more > 0 {
			if cut == nil {
				cut = map[string]int64{}
			}
			if at == nil {
				at = map[string]int64{}
			}
			cut[name] += more
			at[name] = where // what the output limit has cut away was behind it
		}
		if utf8.Valid(kept) {
			out[name] = string(kept)
		} else {
			out[name], out[name+"_encoding"] = base64.StdEncoding.EncodeToString(kept), "base64"
		}
	}
	if len(cut) > 0 {
		out["truncated"] = cut
	}
	if len(at) > 0 {
		out["truncated_at"] = at
	}
	return out
}

// tee keeps the beginning and the end of a stream, and passes all of it on.
type tee struct {
	to io.Writer

	mu   sync.Mutex
	ends *session.Ends
}

func newTee(to io.Writer) *tee { return &tee{to: to, ends: session.NewEnds(maxAnswered)} }

func (t *tee) Write(p []byte) (int, error) {
	t.mu.Lock()
	_, _ = t.ends.Write(p)
	t.mu.Unlock()
	if t.to != nil {
		return t.to.Write(p)
	}
	return len(p), nil
}

// kept is what the answer holds, how many bytes it does not, and after how many of what it
// holds they are missing.
func (t *tee) kept() (b []byte, more, at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ends.Bytes()
}
