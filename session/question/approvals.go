// SPDX-License-Identifier: Apache-2.0

// Package question asks people about calls, where the policy says so: what they are
// shown, by which ways, and what their answers do.
//
// Which calls are asked about is settled by the pipeline of package session; frontends put questions
// before people, and bring answers to [Approvals].
package question

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Approvals is where people are asked about calls, and answer. What is asked
// about is settled by the pipeline; frontends put the questions before
// people, and bring answers here. It may be used from many
// goroutines.
type Approvals struct {
	o Options

	telling sync.WaitGroup // webhooks

	mu    sync.Mutex
	store *approval.Store
}

// Options are the parts of Approvals.
type Options struct {
	// Dir is the state directory. Required; nothing in it is opened before a
	// question is put.
	Dir string
	// Journal takes the records. Required, unless questions and approvers are only read.
	Journal audit.Journal
	// Link, when set, is where an approver answers a request in a browser: an
	// address without anything that would open it.
	Link func(id string) string
	// Complain, when set, hears that a webhook could not be told. It must not block.
	Complain func(error)
	// Look says that no question will be put: where none ever was, nothing is
	// made.
	Look bool
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// New makes Approvals.
func New(o Options) *Approvals { return &Approvals{o: o} }

// Store is where requests and approvers are kept. It is closed by Close.
func (a *Approvals) Store(ctx context.Context) (*approval.Store, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.store == nil {
		s, err := approval.Open(ctx, approval.Options{Dir: a.o.Dir, Now: a.o.Now, Look: a.o.Look})
		if err != nil {
			return nil, err
		}
		a.store = s
	}
	return a.store, nil
}

// Open says whether a token is of a question of actor's that may still be answered, or
// whose yes was not used yet. Where no person can be asked there is none.
func (a *Approvals) Open(ctx context.Context, actor, token string) (bool, error) {
	if a == nil {
		return false, nil
	}
	store, err := a.Store(ctx)
	if err != nil {
		return false, err
	}
	req, err := store.Presented(ctx, actor, token)
	if errors.Is(err, sandbox.ErrDenied) {
		return false, nil // a token of nothing
	}
	return err == nil && (req.State == approval.Pending || req.State == approval.Approved), err
}

// tell tells a webhook of a question, beside the caller. What becomes of it
// changes nothing: it answers nothing.
func (a *Approvals) tell(ctx context.Context, w policy.Webhook, r *approval.Request) {
	a.telling.Go(func() {
		err := tellWebhook(context.WithoutCancel(ctx), w, r, time.Now())
		if err != nil && a.o.Complain != nil {
			a.o.Complain(err)
		}
	})
}

// Close closes what was opened, when all webhooks have been told.
func (a *Approvals) Close() error {
	a.telling.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.store == nil {
		return nil
	}
	s := a.store
	a.store = nil
	return s.Close()
}

// Answer is what a person said.
type Answer struct {
	Yes bool
	// Digest is of a yes: what was shown, or the first 12 digits of it and more.
	Digest string
	Note   string // of a no: why
}

// The kinds of records about approvals.
const (
	KindAsk    = "ask_approval"    // a question was put
	KindAnswer = "answer_approval" // a person answered; the actor is the approver
)

// Answer records an answer and gives it to the request with an ID. A yes counts
// only when it is recorded.
func (a *Approvals) Answer(ctx context.Context, who approval.Who, id string, answer Answer) (*approval.Request, error) {
	s, err := a.Store(ctx)
	if err != nil {
		return nil, err
	}
	req, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	said := approval.Denied
	if answer.Yes {
		said = approval.Approved
	}
	note := noteOf(req)
	note.State, note.Approver, note.Channel, note.Note = string(said), who.Name(), string(who.Channel()), answer.Note
	op, err := audit.Begin(ctx, a.o.Journal, audit.Intent{Actor: who.Name(), Kind: KindAnswer, Approval: note})
	if err != nil {
		return nil, err
	}
	if answer.Yes {
		req, err = s.Approve(ctx, who, req.ID, answer.Digest)
	} else {
		req, err = s.Deny(ctx, who, req.ID, answer.Note)
	}
	out := audit.Outcome{Status: audit.Allowed}
	if err != nil {
		out.Status, out.Error = audit.Failed, err.Error()
		if errors.Is(err, sandbox.ErrDenied) {
			out.Status = audit.Refused
		}
	}
	if jerr := op.End(ctx, out); jerr != nil {
		return req, errors.Join(jerr, err)
	}
	return req, err
}

// noteOf is a request in a record.
func noteOf(r *approval.Request) *audit.Approval {
	return &audit.Approval{ID: r.ID, Digest: r.Digest, State: string(r.State), Approver: r.Approver, Channel: string(r.Channel), Note: r.Note}
}

// Asker puts a question to a person by a way that a frontend has: its terminal,
// or its client.
type Asker interface {
	// Ask shows the request and returns what was said, and by whom. When ctx ends,
	// it returns at once: another person has answered, or none will. ErrElsewhere
	// says that the person answers by another channel.
	Ask(ctx context.Context, r *approval.Request) (approval.Who, Answer, error)
	// Channel is the way that it is.
	Channel() approval.Channel
}

// Reply is an answer to a request with whose token a call is made again. It is
// of a person whom the frontend has asked meanwhile.
type Reply struct {
	Who  approval.Who
	Yes  bool
	Note string // of a no: why
}

// Ways are how a frontend has a call asked about.
type Ways struct {
	// Ask puts a question of the policy's to a person, besides the other channels;
	// nil is not at all. Reach are channels by which the frontend itself asks when
	// it gets a *Pending.
	Ask   Asker
	Reach []approval.Channel
	// Resumable has a call that has to be asked about end with a *Pending in place
	// of waiting. Made again with its Token as Approval, it runs if it was
	// approved and nothing about it has changed.
	Resumable bool
	Approval  string
	// Reply is, with an Approval, the answer of a person whom the frontend asked.
	Reply *Reply
	// AnswerTimeout is how long such a call waits for an answer before it ends with a
	// *Pending, too; 0 is as long as the question stands. A person whom Ask asks is
	// given their own time.
	AnswerTimeout time.Duration
}

// ErrElsewhere is what an Asker returns that has only told a person where to
// answer.
var ErrElsewhere = errors.New("the answer comes by another channel")

// Pending is the error of a call that waits for a yes, where the frontend does not:
// it makes the same call again, with the token, when there is an answer. Its
// Request has the URL where an approver answers, where there is one.
type Pending struct {
	Request *approval.Request
	// Token is the caller's, and for this call alone.
	Token string
}

// Error is a sentence.
func (p *Pending) Error() string { return p.Unwrap().Error() }

// Unwrap is an ErrDenied: the call has not run.
func (p *Pending) Unwrap() error {
	return &sandbox.Error{Op: "policy", Kind: sandbox.ErrDenied, Problem: "it waits for approval: " + p.Request.ID,
		Hint: "an approver answers with caisson approvals approve " + p.Request.ID, Rule: "built-in: approvals"}
}
