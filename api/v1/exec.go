// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
)

// Exec is a program that is to run in a sandbox: Command, or Shell, a line for sh.
type Exec struct {
	Command     []string          `json:"command,omitempty" maxItems:"4096" doc:"The program, looked up in PATH, and its arguments"`
	Shell       string            `json:"shell,omitempty" doc:"A line for sh instead"`
	Env         map[string]string `json:"env,omitempty" doc:"Variables on top of the sandbox's"`
	Cwd         string            `json:"cwd,omitempty" maxLength:"4096" doc:"Where it begins, absolute; the user's home when it is left out"`
	User        string            `json:"user,omitempty" enum:"root" doc:"Whose rights it has; the sandbox's own user's when it is left out"`
	Stdin       string            `json:"stdin,omitempty" doc:"Its input, as text"`
	StdinBase64 []byte            `json:"stdin_base64,omitempty" doc:"Its input, as base64"`
	Timeout     float64           `json:"timeout,omitempty" minimum:"0" maximum:"31536000" doc:"Seconds until it is ended; 0 is as long as the policy lets it"`
	Terminal    *Terminal         `json:"terminal,omitempty" doc:"Give it a terminal; all its output is stdout then"`
	Resumable   bool              `json:"resumable,omitempty" doc:"Where people are asked about it, answer at once with a problem that has an approval, instead of waiting a minute for them"`
	Approval    string            `json:"approval,omitempty" maxLength:"256" doc:"The token of such a problem: the same request again, to run if an approver has said yes"`
	Keep        int64             `json:"keep,omitempty" minimum:"0" maximum:"16777216" doc:"Bytes of each stream in an answer as a whole; 1 MiB when it is left out"`
}

// Terminal is a terminal's size, and what kind it is.
type Terminal struct {
	Rows uint16 `json:"rows" minimum:"1" maximum:"10000"`
	Cols uint16 `json:"cols" minimum:"1" maximum:"10000"`
	Term string `json:"term,omitempty" maxLength:"64" doc:"xterm-256color when it is left out"`
}

// Result is what came of a program. A figure that was not measured is absent.
type Result struct {
	Status       string           `json:"status" enum:"success,error,timeout,resource_exceeded" doc:"How it ended"`
	ExitCode     *int             `json:"exit_code,omitempty" doc:"Its own; absent when a signal ended it"`
	Signal       string           `json:"signal,omitempty"`
	Reason       string           `json:"reason,omitempty" doc:"Why it ended, for people"`
	Rule         string           `json:"rule,omitempty"`
	Resource     string           `json:"resource,omitempty" doc:"Which limit ended it"`
	LimitsHit    []string         `json:"limits_hit,omitempty" doc:"Limits that failed a call of it"`
	Stdout       *string          `json:"stdout,omitempty" doc:"Where it is UTF-8"`
	StdoutBase64 []byte           `json:"stdout_base64,omitempty" doc:"Where it is not"`
	Stderr       *string          `json:"stderr,omitempty"`
	StderrBase64 []byte           `json:"stderr_base64,omitempty"`
	Truncated    map[string]int64 `json:"truncated,omitempty" doc:"Bytes of each stream that were cut"`
	TruncatedAt  map[string]int64 `json:"truncated_at,omitempty" doc:"After how many bytes of each stream they are missing"`
	WallMS       int64            `json:"wall_ms"`
	CPUMS        *int64           `json:"cpu_ms,omitempty"`
	MemoryPeak   *int64           `json:"memory_peak_bytes,omitempty"`
	Findings     []Finding        `json:"findings,omitempty" doc:"What the policy's rules about code say of its text, which is advice; and what it left in read-write mounts that the host may run"`
	Network      *Traffic         `json:"network,omitempty"`
	Changes      *Changes         `json:"changes,omitempty" doc:"What is kept of what a run changed in its workspace"`
	Posture      *Posture         `json:"posture,omitempty" doc:"What held in its sandbox"`
}

// Finding is something that a program's text says and a rule speaks against.
type Finding struct {
	Kind     string `json:"kind" enum:"import,call,dynamic_code,dynamic_import,endless_loop,unread,host_file"`
	Name     string `json:"name,omitempty" doc:"The module, or what is called"`
	Language string `json:"language"`
	Text     string `json:"text" doc:"Which text"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Problem  string `json:"problem"`
	Rule     string `json:"rule,omitempty"`
	Hint     string `json:"hint,omitempty" doc:"What would allow it"`
	Action   string `json:"action" enum:"deny,warn,inspect"`
}

func result(r *sandbox.Result) *Result {
	v := &Result{
		Status: string(r.Status), ExitCode: r.ExitCode, Signal: r.Signal, Reason: r.Reason, Rule: r.Rule, Resource: string(r.Resource),
		Truncated: r.Truncated, TruncatedAt: r.TruncatedAt, WallMS: r.WallMS, CPUMS: r.CPUMS, MemoryPeak: r.MemoryPeakBytes, Changes: changesOf(r.Changes),
	}
	for _, f := range r.Findings {
		v.Findings = append(v.Findings, Finding(f))
	}
	for _, l := range r.LimitsHit {
		v.LimitsHit = append(v.LimitsHit, string(l))
	}
	if n := r.Network; n != nil {
		v.Network = &Traffic{Connected: n.Connected, Denied: n.Denied, Queries: n.Queries, Sent: n.Sent, Received: n.Received}
	}
	if r.Posture.Isolation != "" {
		p := posture(r.Posture)
		v.Posture = &p
	}
	return v
}

// askTimeout is how long a request waits for people before it is answered with
// what it waits for.
const askTimeout = time.Minute

// call is what e asks of the road.
func (e *Exec) call() (*session.Call, error) {
	invalid := func(problem, hint string) error {
		return &sandbox.Error{Op: "exec", Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
	}
	c := &session.Call{Frontend: "api"}
	switch {
	case len(e.Command) > 0 && e.Shell != "":
		return nil, invalid("it has a command and a shell line", "leave one of them out")
	case e.Shell != "":
		c.Argv = []string{"sh", "-c", e.Shell}
	case len(e.Command) > 0 && e.Command[0] != "":
		c.Argv = e.Command
	default:
		return nil, invalid("there is no program", `give a command, ["python3", "-c", "print(1)"], or a shell line`)
	}
	if e.Cwd != "" && (!path.IsAbs(e.Cwd) || path.Clean(e.Cwd) != e.Cwd) {
		return nil, invalid("cwd is not an absolute path", "begin it at /, without . and ..")
	}
	if e.Stdin != "" && e.StdinBase64 != nil {
		return nil, invalid("it has stdin twice", "leave one of them out")
	}
	c.Env, c.Cwd, c.Root = e.Env, e.Cwd, e.User == "root"
	c.Resumable, c.Approval, c.AnswerTimeout = e.Resumable, e.Approval, askTimeout
	if e.Timeout > 0 {
		c.Limits.Wall, c.Limits.Explicit = seconds(e.Timeout), map[sandbox.LimitName]bool{sandbox.LimitWall: true}
	}
	if t := e.Terminal; t != nil {
		c.TTY, c.Term = &sandbox.Terminal{Size: sandbox.WindowSize{Rows: t.Rows, Cols: t.Cols}}, t.Term
	}
	return c, nil
}

func (e *Exec) stdin() io.Reader {
	switch {
	case e.Stdin != "":
		return strings.NewReader(e.Stdin)
	case e.StdinBase64 != nil:
		return bytes.NewReader(e.StdinBase64)
	}
	return nil
}

// carrier carries a call out: in a persistent sandbox, or in one of its own.
type carrier func(ctx context.Context, c *session.Call, io session.IO) (*sandbox.Result, error)

func (s *Server) in(k *persistent.Key, id string) carrier {
	return func(ctx context.Context, c *session.Call, io session.IO) (*sandbox.Result, error) {
		return s.o.Sandboxes.Handle(k, id).Exec(ctx, c, io)
	}
}

type execWish struct {
	SandboxID
	Accept string `header:"Accept" doc:"text/event-stream to be told what it writes as it writes it"`
	Body   Exec
}

// streamed answers by a body of its own making.
type streamed struct {
	Body func(huma.Context)
}

// programs registers what runs programs.
func (s *Server) programs() {
	op := operation("POST", "/sandboxes/{id}/exec", "exec", "Run a program in a sandbox", http.StatusOK)
	op.Description = "The program is ended when the caller goes away."
	s.describeResult(&op)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *execWish) (*streamed, error) {
		c, err := in.Body.call()
		if err != nil {
			return nil, err
		}
		return s.carry(ctx, in.Accept, &in.Body, c, s.in(k, in.ID))
	})
}

// taken reads an Exec that does not come as a body. What is refused of a body is
// refused of it, in the same words: both are held to the document.
func (s *Server) taken(b []byte) (*Exec, error) {
	const failed = "validation failed"
	var said any
	if err := s.api.Unmarshal("application/json", b, &said); err != nil {
		return nil, huma.NewError(http.StatusBadRequest, failed, &huma.ErrorDetail{Location: "body", Message: err.Error()})
	}
	at, all := huma.NewPathBuffer(nil, 0), huma.ValidateResult{}
	at.Push("body")
	schemas := s.api.OpenAPI().Components.Schemas
	huma.Validate(schemas, schemas.Map()["Exec"], at, huma.ModeWriteToServer, said, &all)
	if len(all.Errors) > 0 {
		return nil, huma.NewError(http.StatusUnprocessableEntity, failed, all.Errors...)
	}
	e := new(Exec)
	if err := s.api.Unmarshal("application/json", b, e); err != nil {
		return nil, huma.NewError(http.StatusUnprocessableEntity, failed, &huma.ErrorDetail{Location: "body", Message: err.Error()})
	}
	return e, nil
}

// describeResult documents both forms of the answer.
func (s *Server) describeResult(op *huma.Operation) {
	schemas := s.api.OpenAPI().Components.Schemas
	op.Responses = map[string]*huma.Response{"200": {Description: "The program ran, however it ended", Content: map[string]*huma.MediaType{
		"application/json":  {Schema: schemas.Schema(typeOf[Result](), true, "Result")},
		"text/event-stream": {Schema: &huma.Schema{Type: "string", Description: "Events: output, with Output as its data; then end, with Result, or problem, with Problem"}},
	}}}
	schemas.Schema(typeOf[Output](), true, "Output")
}

// carry carries a program out and answers as its caller wishes.
func (s *Server) carry(ctx context.Context, accept string, e *Exec, c *session.Call, do carrier) (*streamed, error) {
	if strings.Contains(accept, "text/event-stream") {
		return &streamed{func(ctx huma.Context) { s.stream(ctx, e, c, do) }}, nil
	}
	held := callOf(ctx).held
	maximum := e.Keep
	if maximum == 0 {
		maximum = 1 << 20
	}
	out, errs := &capture{ends: session.NewEnds(maximum), held: held}, &capture{ends: session.NewEnds(maximum), held: held}
	r, err := do(ctx, c, session.IO{Stdin: e.stdin(), Stdout: out, Stderr: errs})
	if err == nil {
		err = denied(r)
	}
	if err == nil {
		err = firstOf(out.full(), errs.full())
	}
	if err != nil {
		return nil, err
	}
	v := result(r)
	v.Stdout, v.StdoutBase64 = out.text(v, "stdout")
	v.Stderr, v.StderrBase64 = errs.text(v, "stderr")
	return &streamed{func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", "application/json")
		s.api.Marshal(ctx.BodyWriter(), "application/json", v)
	}}, nil
}

// denied is a refusal as an error; one-shots answer with a Result.
func denied(r *sandbox.Result) error {
	if r.Status != sandbox.StatusDenied {
		return nil
	}
	return &sandbox.Error{Kind: sandbox.ErrDenied, Problem: r.Reason, Hint: r.Hint, Rule: r.Rule}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// capture keeps the beginning and the end of a stream, as far as the key's messages have
// room.
type capture struct {
	held *api.Held

	mu   sync.Mutex
	ends *session.Ends
	err  error
}

// Write implements io.Writer. What there is no room for ends the program.
func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// As it is, and as the answer has it.
	if c.err = c.held.Add(2 * min(int64(len(p)), c.ends.Room())); c.err != nil {
		return 0, c.err
	}
	return c.ends.Write(p)
}

func (c *capture) full() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// text is the stream as an answer has it.
func (c *capture) text(r *Result, name string) (*string, []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, cut, at := c.ends.Bytes()
	if cut > 0 {
		if r.Truncated == nil {
			r.Truncated, r.TruncatedAt = map[string]int64{}, map[string]int64{}
		}
		r.Truncated[name] += cut
		r.TruncatedAt[name] = at
	}
	return textOrBytes(b)
}

// textOrBytes is b as text where it is UTF-8.
func textOrBytes(b []byte) (*string, []byte) {
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	return nil, b
}
