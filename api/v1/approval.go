// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
)

// Who approves is not who asks: below /v1/approvals no key opens anything, and the
// credential of an approver opens nothing else.

// approvalsPath is below what approvers are.
const approvalsPath = "/v1/approvals"

// Question is a call that people are asked about.
type Question struct {
	ID       string         `json:"id"`
	Actor    string         `json:"actor" doc:"Who asks"`
	Digest   string         `json:"digest" doc:"Of everything that decides what the call does: what a yes is for"`
	State    string         `json:"state" enum:"pending,approved,used,denied,expired,cancelled,void"`
	Created  time.Time      `json:"created"`
	Expires  time.Time      `json:"expires" doc:"The question; once it is approved, the answer"`
	Ended    time.Time      `json:"ended,omitzero"`
	Approver string         `json:"approver,omitempty" doc:"Who answered"`
	Channel  string         `json:"channel,omitempty" doc:"By which way"`
	Note     string         `json:"note,omitempty" doc:"Why not"`
	Channels []string       `json:"channels" doc:"By which an answer counts; one over HTTP is web"`
	About    string         `json:"about" doc:"Why it is asked, on one line"`
	View     *approval.View `json:"view,omitempty" doc:"All of it, as an approver must see it: lines of printable characters. Not in lists"`
}

func questionOf(r *approval.Request) *Question {
	q := &Question{
		ID: r.ID, Actor: approval.Text(r.Actor), Digest: r.Digest, State: string(r.State), Created: r.Created, Expires: r.Expires, Ended: r.Ended,
		Approver: approval.Text(r.Approver), Channel: string(r.Channel), Note: approval.Text(r.Note), Channels: []string{}, About: r.About(),
	}
	for _, c := range r.Channels {
		q.Channels = append(q.Channels, string(c))
	}
	if len(r.View.Fields) > 0 {
		q.View = &r.View
	}
	return q
}

type questionAnswer struct{ Body *Question }

type questionsWish struct {
	State  []string `query:"state" enum:"pending,approved,used,denied,expired,cancelled,void" doc:"Those in these states; pending when it is left out"`
	Limit  int      `query:"limit" minimum:"1" maximum:"100" default:"100"`
	Cursor string   `query:"cursor" maxLength:"64" doc:"next of the page before"`
	Wait   float64  `query:"wait" minimum:"0" maximum:"60" doc:"Seconds to wait for one where there is none"`
}

type questionsAnswer struct {
	Body struct {
		Approvals []*Question `json:"approvals" doc:"Newest first"`
		Next      string      `json:"next,omitempty" doc:"The cursor of the next page"`
	}
}

// QuestionID names a question.
type QuestionID struct {
	ID string `path:"id" maxLength:"64" doc:"Of an approval, or the beginning of it where only one has that"`
}

// approver finds whose credential a request has, before anything of it is
// read. A key is not tried: it is refused by its place.
func (s *Server) approver(r *http.Request) (approval.Who, error) {
	credential := api.Bearer(r.Header)
	if !strings.HasPrefix(credential, approval.CredentialPrefix) || len(credential) > 256 {
		return approval.Who{}, &Problem{Status: http.StatusUnauthorized, Detail: "the request has no approver's credential, and a key is none",
			Hint: "caisson approvals enroll makes one; send it as Authorization: Bearer approver_…"}
	}
	if s.o.Approvals == nil {
		return approval.Who{}, sandbox.Errorf(sandbox.ErrUnsupported, "approvals", "no approver is asked here")
	}
	store, err := s.o.Approvals.Store(r.Context())
	if err != nil {
		return approval.Who{}, err
	}
	who, err := store.Authenticate(r.Context(), credential, approval.Web)
	if err != nil && asProblem(err).Status < 500 {
		return approval.Who{}, &Problem{Status: http.StatusUnauthorized, Detail: "it is not the credential of an approver", Hint: "caisson approvals enroll makes one"}
	}
	return who, err
}

// approving registers an operation for approvers.
func approving[I, O any](s *Server, method, p, id, summary string, f func(context.Context, approval.Who, *I) (*O, error)) {
	op := operation(method, strings.TrimPrefix(approvalsPath, "/v1")+p, id, summary, http.StatusOK)
	op.Security = []map[string][]string{{"approver": {}}}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		who := callOf(ctx).who
		if who.Name() == "" {
			return nil, Fault(&Problem{Status: http.StatusUnauthorized, Detail: "the request has no approver's credential"})
		}
		out, err := f(ctx, who, in)
		if err != nil {
			return nil, Fault(err)
		}
		return out, nil
	})
}

// approvals registers what approvers ask for.
func (s *Server) approvals() {
	approving(s, "GET", "", "listApprovals", "List calls that people are asked about, newest first", s.questions)
	approving(s, "GET", "/{id}", "getApproval", "Show everything that such a call would do", func(ctx context.Context, _ approval.Who, in *QuestionID) (*questionAnswer, error) {
		store, err := s.o.Approvals.Store(ctx)
		if err != nil {
			return nil, err
		}
		r, err := store.Get(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &questionAnswer{questionOf(r)}, nil
	})
	approving(s, "POST", "/{id}/approve", "approve", "Say yes to what was shown, once", func(ctx context.Context, who approval.Who, in *struct {
		QuestionID
		Body struct {
			Digest string `json:"digest" minLength:"12" maxLength:"71" doc:"Of what was shown, or 12 digits of it and more: a yes is for that"`
		}
	}) (*questionAnswer, error) {
		return s.answer(ctx, who, in.ID, question.Answer{Yes: true, Digest: in.Body.Digest})
	})
	approving(s, "POST", "/{id}/deny", "deny", "Say no, which is final", func(ctx context.Context, who approval.Who, in *struct {
		QuestionID
		Body struct {
			Note string `json:"note,omitempty" maxLength:"500" doc:"Why; who asked is told"`
		}
	}) (*questionAnswer, error) {
		return s.answer(ctx, who, in.ID, question.Answer{Note: in.Body.Note})
	})
}

// answer is recorded, and counts where the policy takes answers over HTTP.
func (s *Server) answer(ctx context.Context, who approval.Who, id string, a question.Answer) (*questionAnswer, error) {
	r, err := s.o.Approvals.Answer(ctx, who, id, a)
	if err != nil {
		return nil, err
	}
	return &questionAnswer{questionOf(r)}, nil
}

func (s *Server) questions(ctx context.Context, _ approval.Who, in *questionsWish) (*questionsAnswer, error) {
	late, cancel := context.WithTimeout(ctx, seconds(in.Wait))
	defer cancel()
	store, err := s.o.Approvals.Store(ctx)
	if err != nil {
		return nil, err
	}
	f := approval.Filter{Limit: in.Limit, After: in.Cursor}
	for _, state := range in.State {
		f.States = append(f.States, approval.State(state))
	}
	if f.States == nil {
		f.States = []approval.State{approval.Pending}
	}
	a := &questionsAnswer{}
	a.Body.Approvals = []*Question{}
	for {
		list, next, err := store.Page(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			a.Body.Approvals = append(a.Body.Approvals, questionOf(r))
		}
		if a.Body.Next = next; len(list) > 0 || late.Err() != nil {
			return a, nil
		}
		store.Changes(late)
	}
}
