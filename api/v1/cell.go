// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"net/http"
	"path"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
)

// Cell is code that is to run in a context of a sandbox, which keeps its state.
type Cell struct {
	Code      string            `json:"code" doc:"What is run"`
	Language  string            `json:"language,omitempty" maxLength:"64" doc:"python, javascript, typescript, bash, or the name of a Jupyter kernel that the sandbox has; python when it is left out"`
	Context   string            `json:"context,omitempty" maxLength:"64" doc:"The ID of a context; the default one of the language when it is left out"`
	Env       map[string]string `json:"env,omitempty" doc:"Variables while it runs"`
	Cwd       string            `json:"cwd,omitempty" maxLength:"4096" doc:"Where it runs, absolute; where the context is when it is left out"`
	Timeout   float64           `json:"timeout,omitempty" minimum:"0" maximum:"31536000" doc:"Seconds until it is interrupted, with the state kept; 0 is as long as the policy lets it"`
	Resumable bool              `json:"resumable,omitempty" doc:"As of a program"`
	Approval  string            `json:"approval,omitempty" maxLength:"256" doc:"As of a program"`
}

// Execution is what came of a cell.
type Execution struct {
	Execution int          `json:"execution" doc:"Which cell of its context it was, from 1"`
	Status    string       `json:"status" enum:"ok,error,timeout,interrupted,lost" doc:"How it ended; lost is that its kernel ended, and the state with it"`
	Reason    string       `json:"reason,omitempty" doc:"Why it is not ok, for people"`
	Stdout    string       `json:"stdout"`
	Stderr    string       `json:"stderr"`
	Results   []CellResult `json:"results" doc:"What it showed, in its order"`
	Error     *CellError   `json:"error,omitempty" doc:"The exception that it did not catch"`
	Cut       int64        `json:"cut,omitempty" doc:"Bytes of output and results that were not handed on"`
	Files     []CellFile   `json:"files,omitempty" doc:"Files below its directory that it made or changed"`
	More      bool         `json:"more,omitempty" doc:"There are more such files"`
	Findings  []Finding    `json:"findings,omitempty" doc:"What the policy's rules about code say of its text, which is advice"`
	WallMS    int64        `json:"wall_ms"`
}

// CellResult is something that a cell showed.
type CellResult struct {
	Main bool           `json:"main,omitempty" doc:"It is the value of its last expression"`
	Data map[string]any `json:"data" doc:"Each form that it has, by MIME type: text as it is, bytes as base64, JSON types as JSON"`
}

// CellError is an exception.
type CellError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// CellFile is a file that a cell made or changed.
type CellFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	Type string `json:"type,omitempty"`
}

// cellEvent is an event of a cell as a stream has it.
type cellEvent struct {
	interpreter.Event
	Type struct{} `json:"-"` // it is the event's name
}

type cellWish struct {
	SandboxID
	Accept string `header:"Accept" doc:"text/event-stream to be told what it does as it does it"`
	Body   Cell
}

// cells registers what runs cells.
func (s *Server) cells() {
	op := operation("POST", "/sandboxes/{id}/cells", "runCell", "Run code in a context of a sandbox", http.StatusOK)
	op.Description = "It is interrupted when the caller goes away, with the state of the context kept."
	schemas := s.api.OpenAPI().Components.Schemas
	op.Responses = map[string]*huma.Response{"200": {Description: "It ran, however it ended", Content: map[string]*huma.MediaType{
		"application/json":  {Schema: schemas.Schema(typeOf[Execution](), true, "Execution")},
		"text/event-stream": {Schema: &huma.Schema{Type: "string", Description: "Events: started, stdout, stderr, display, error; then end, or problem, with Problem"}},
	}}}
	register(s, op, func(ctx context.Context, k *persistent.Key, in *cellWish) (*streamed, error) {
		c, err := in.Body.call()
		if err != nil {
			return nil, err
		}
		h := s.o.Sandboxes.Handle(k, in.ID)
		if strings.Contains(in.Accept, "text/event-stream") {
			return &streamed{func(ctx huma.Context) { streamCell(ctx, h, c, in.Body.Context) }}, nil
		}
		return s.wholeCell(ctx, h, c, in.Body.Context)
	})
}

// call is c as the road has it.
func (c *Cell) call() (*session.Call, error) {
	if c.Cwd != "" && (!path.IsAbs(c.Cwd) || path.Clean(c.Cwd) != c.Cwd) {
		return nil, &sandbox.Error{Op: "cell", Kind: sandbox.ErrInvalid, Problem: "cwd is not an absolute path", Hint: "begin it at /, without . and .."}
	}
	call := &session.Call{Frontend: "api", Source: &session.Source{Language: c.Language, Code: []byte(c.Code)}}
	call.Env, call.Cwd = c.Env, c.Cwd
	call.Resumable, call.Approval, call.AnswerTimeout = c.Resumable, c.Approval, askTimeout
	if c.Timeout > 0 {
		call.Limits.Wall, call.Limits.Explicit = seconds(c.Timeout), map[sandbox.LimitName]bool{sandbox.LimitWall: true}
	}
	return call, nil
}

// wholeCell runs a cell and answers with all that came of it.
func (s *Server) wholeCell(ctx context.Context, h *persistent.Handle, c *session.Call, in string) (*streamed, error) {
	held, x := callOf(ctx).held, interpreter.Execution{}
	r, err := h.RunCell(ctx, c, in, func(e interpreter.Event) error {
		if err := held.Add(2 * int64(e.Size())); err != nil { // as it is, and as the answer has it
			return err
		}
		x.Add(e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	v := execution(&x, r)
	return &streamed{func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", "application/json")
		s.api.Marshal(ctx.BodyWriter(), "application/json", v)
	}}, nil
}

// execution is what came of a cell.
func execution(x *interpreter.Execution, r *sandbox.Result) *Execution {
	v := &Execution{
		Execution: x.Count, Status: x.Status, Reason: x.Reason, Stdout: x.Stdout, Stderr: x.Stderr, Results: []CellResult{}, Cut: x.Cut, More: x.More, WallMS: r.WallMS,
	}
	if v.Status == "" { // a limit has ended it, and no event says so
		v.Status, v.Reason = interpreter.Interrupted, r.Reason
	}
	for _, one := range x.Results {
		data := map[string]any{}
		for kind, form := range one.Data {
			data[kind] = form
		}
		v.Results = append(v.Results, CellResult{one.Main, data})
	}
	if e := x.Error; e != nil {
		v.Error = (*CellError)(e)
	}
	for _, f := range x.Files {
		v.Files = append(v.Files, CellFile(f))
	}
	for _, f := range r.Findings {
		v.Findings = append(v.Findings, Finding(f))
	}
	return v
}

// streamCell runs a cell and tells its events as they come.
func streamCell(ctx huma.Context, h *persistent.Handle, c *session.Call, in string) {
	r, w := humago.Unwrap(ctx)
	out := &events{w: w, control: http.NewResponseController(w), left: map[string][]byte{}}
	defer out.keepAlive()()
	ended := false
	res, err := h.RunCell(r.Context(), c, in, func(e interpreter.Event) error {
		if e.Type == interpreter.Alive { // which keepAlive tells
			return nil
		}
		ended = ended || e.Type == interpreter.End
		return out.send(string(e.Type), cellEvent{Event: e})
	})
	out.end(func() {
		switch {
		case err != nil && !out.begun:
			writeProblem(w, err)
		case err != nil:
			out.event("problem", asProblem(err))
		case !ended:
			out.event(string(interpreter.End), cellEvent{Event: interpreter.Event{End: &interpreter.Ending{Status: interpreter.Interrupted, Reason: res.Reason}}})
		}
	})
}
