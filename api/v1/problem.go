// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
)

// Problem is an error as RFC 9457 writes it, with the rule that refused and what
// would help.
type Problem struct {
	Status int    `json:"status" doc:"HTTP status"`
	Title  string `json:"title" doc:"The status in words"`
	Kind   string `json:"kind,omitempty" enum:"invalid,not_found,unsupported,denied,conflict,unavailable,exhausted" doc:"What sort of error it is; absent for those of HTTP itself"`
	Detail string `json:"detail,omitempty" doc:"What was tried and what is wrong, for people"`
	Hint   string `json:"hint,omitempty" doc:"What would help"`
	Rule   string `json:"rule,omitempty" doc:"Which rule refused it: file and line of a policy, or built-in"`
	// Approval is there when the call waits for a yes.
	Approval *Waiting `json:"approval,omitempty"`
	Faults   []Flaw   `json:"faults,omitempty" doc:"What is wrong with which part of the request"`
	Result   any      `json:"result,omitempty" doc:"In answer to a tool call of a model's: what its API takes back"`
}

// Waiting is a call that people are asked about.
type Waiting struct {
	ID    string `json:"id" doc:"What approvers call it"`
	Token string `json:"token" doc:"The caller's, for this call alone: the approval of the same request"`
	URL   string `json:"url,omitempty" doc:"Where an approver answers in a browser"`
}

// Flaw is what is wrong with a part of a request.
type Flaw struct {
	At      string `json:"at" doc:"body.limits.memory, query.limit, …; of a tool's arguments arguments/to/0, a JSON pointer"`
	Problem string `json:"problem"`
}

// Error is the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus is what huma asks for.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is RFC 9457's.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// setUp sets huma's two package variables, once. One is the function that makes errors of
// requests that do not fit their description; the description of errors comes of what it
// returns. The other makes huma refuse fields that are written in another case.
var setUp = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		for _, err := range errs { // a body that could not be read
			var e *sandbox.Error
			var many *api.TooMany
			if errors.As(err, &e) || errors.As(err, &many) {
				return asProblem(err)
			}
		}
		p := &Problem{Status: status, Title: http.StatusText(status), Detail: message}
		if status >= 500 {
			p.Detail = "internal error" // it may name things of the host
			return p
		}
		for _, err := range errs {
			var d huma.ErrorDetailer
			if errors.As(err, &d) && len(p.Faults) < maxFlaws {
				// What was sent is not sent back.
				p.Faults = append(p.Faults, Flaw{At: d.ErrorDetail().Location, Problem: sandbox.Clip(d.ErrorDetail().Message, 300)})
			}
		}
		if len(p.Faults) > 0 {
			p.Kind, p.Detail = "invalid", fmt.Sprintf("the request is not one that is taken here: %s: %s", p.Faults[0].At, p.Faults[0].Problem)
			p.Hint = "/openapi.json says what is"
		}
		return p
	}
})

const maxFlaws = 20

// kinds says what each kind of error is called here, and its status.
var kinds = []struct {
	kind   error
	name   string
	status int
}{
	{sandbox.ErrInvalid, "invalid", http.StatusBadRequest},
	{sandbox.ErrNotFound, "not_found", http.StatusNotFound},
	{sandbox.ErrConflict, "conflict", http.StatusConflict},
	{sandbox.ErrDenied, "denied", http.StatusForbidden},
	{sandbox.ErrUnsupported, "unsupported", http.StatusNotImplemented},
	{sandbox.ErrExhausted, "exhausted", http.StatusTooManyRequests},
	{sandbox.ErrUnavailable, "unavailable", http.StatusServiceUnavailable},
}

// kindOf is the kind that goes with a status which is known; what only HTTP has a word
// for, a range that is none, is of no kind.
func kindOf(status int, otherwise string) string {
	for _, k := range kinds {
		if k.status == status {
			return k.name
		}
	}
	if status == http.StatusRequestedRangeNotSatisfiable {
		return ""
	}
	return otherwise
}

// Fault is err as this API says it: what a handler below /v1 returns. What is no
// error for people is not shown, since it may name things of the host.
func Fault(err error) error { return asProblem(err) }

func asProblem(err error) *Problem {
	var own *Problem
	if errors.As(err, &own) {
		if own.Title == "" {
			own.Title = http.StatusText(own.Status)
		}
		return own
	}
	p := &Problem{Status: http.StatusInternalServerError, Detail: "internal error"}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			p.Status, p.Kind = k.status, k.name
			break
		}
	}
	var waits *question.Pending
	if errors.As(err, &waits) {
		p.Approval = &Waiting{ID: waits.Request.ID, Token: waits.Token, URL: waits.Request.URL}
	}
	var e *sandbox.Error
	var inside *sandbox.AgentError
	var big *http.MaxBytesError
	var many *api.TooMany
	switch {
	case errors.As(err, &inside):
		p.Detail = inside.Message
		if inside.Status != http.StatusInternalServerError { // else its kind says more
			p.Status, p.Kind = inside.Status, kindOf(inside.Status, p.Kind)
		}
		if p.Detail == "" {
			p.Detail = strings.ToLower(http.StatusText(p.Status))
		}
	case errors.As(err, &big):
		p.Status, p.Detail = http.StatusRequestEntityTooLarge, "the request is too long"
	case errors.As(err, &many):
		p.Status, p.Detail = http.StatusRequestEntityTooLarge, many.Error()
	case p.Kind == "":
	case errors.As(err, &e): // its cause stays here
		p.Detail, p.Hint, p.Rule = e.Problem, sandbox.Hint(err), e.Rule
		if e.Op != "" {
			p.Detail = e.Op + ": " + e.Problem
		}
	default:
		p.Detail = err.Error()
	}
	var m *policy.Misfit
	if errors.As(err, &m) { // the rule is that they fit: nothing that they ask for was judged
		p.Status, p.Kind = http.StatusBadRequest, "invalid"
		for _, f := range m.Faults {
			p.Faults = append(p.Faults, Flaw{At: "arguments" + f.Path, Problem: f.Problem})
		}
	}
	p.Title = http.StatusText(p.Status)
	return p
}

// writeProblem answers with err, if the client takes it.
func writeProblem(w http.ResponseWriter, err error) {
	p := asProblem(err)
	b, merr := json.Marshal(p)
	if merr != nil {
		b = []byte(`{"status":500}`)
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	w.Write(append(b, '\n'))
}
