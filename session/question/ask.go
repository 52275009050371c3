// SPDX-License-Identifier: Apache-2.0

package question

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Asking is one call on its way through approval: what it is, and how its frontend
// wants it asked.
type Asking struct {
	Approvals *Approvals // nil: no person can be asked
	Journal   audit.Journal
	Question  *policy.Question
	Intent    audit.Intent // of the call
	Notice    func(string) // hears what it waits for. Required
	// Gone ends when the call can no longer run, whatever is answered; nil is never.
	Gone <-chan struct{}
	Ways
	Described
}

// Settle has a call approved, and says by what, for its record. When it returns
// without an error, an approval for exactly this call was used up.
//
// subject makes everything that decides what the call does: before it is asked,
// and again when it is about to run. release is called in between, where there
// is a time in between. Errors are ErrDenied with the rule that asked, and a
// *Pending where the frontend does not wait.
func (a *Asking) Settle(ctx context.Context, subject func(context.Context) (*approval.Subject, error), release func(context.Context) error) (*audit.Approval, error) {
	if a.Approvals == nil {
		return nil, a.refusal("no approver can be asked here", nil)
	}
	store, err := a.Approvals.Store(ctx)
	if err != nil {
		return nil, err
	}
	token := a.Approval
	if token != "" {
		err = a.again(ctx, store, release)
	} else {
		token, err = a.ask(ctx, store, subject, release)
	}
	if err != nil {
		return nil, err
	}
	now, err := subject(ctx)
	if err != nil {
		return nil, err
	}
	req, err := store.Use(ctx, token, now)
	switch {
	case approval.NotYet(err):
		a.locate(ctx, store, req)
		return nil, &Pending{Request: req, Token: token}
	case err != nil:
		return nil, a.refusal("", err)
	}
	return noteOf(req), nil
}

// ask puts the question, and waits for the answer where the frontend waits. The
// token it returns is of a request that was approved.
func (a *Asking) ask(ctx context.Context, store *approval.Store, subject func(context.Context) (*approval.Subject, error), release func(context.Context) error) (string, error) {
	channels := make([]approval.Channel, len(a.Question.Channels))
	for i, c := range a.Question.Channels {
		channels[i] = approval.Channel(c)
	}
	asker := a.Ways.Ask
	if asker != nil && !slices.Contains(channels, asker.Channel()) {
		asker = nil
	}
	reachable, err := store.Reachable(ctx, channels)
	if err != nil {
		return "", err
	}
	reach := func(c approval.Channel) bool { return slices.Contains(channels, c) }
	if asker == nil && !reachable && !(a.Resumable && slices.ContainsFunc(a.Reach, reach)) {
		no := a.refusal("no approver can be asked: there is no terminal that the policy takes an answer from, and no approver is enrolled", nil)
		no.Hint = "enroll one, and try again: caisson approvals enroll NAME"
		return "", no
	}
	about, err := subject(ctx)
	if err != nil {
		return "", err
	}
	req, token, err := store.Ask(ctx, approval.Wish{
		Subject: about, Channels: channels, Timeout: a.Question.Timeout, Again: asker != nil && asker.Channel() == approval.Terminal,
	})
	if err != nil {
		return "", a.refusal("", err)
	}
	if err := a.recordAsked(ctx, req); err != nil {
		return "", errors.Join(err, store.Cancel(context.WithoutCancel(ctx), req.ID, "it could not be recorded"))
	}
	a.locate(ctx, store, req)
	for _, w := range a.Question.Webhooks {
		a.Approvals.tell(ctx, w, req)
	}
	if a.Resumable {
		return "", &Pending{Request: req, Token: token}
	}
	if err := release(ctx); err != nil {
		return "", errors.Join(err, store.Cancel(context.WithoutCancel(ctx), req.ID, "caisson could not go on"))
	}
	if reachable {
		a.Notice("waiting until " + req.Expires.Local().Format(time.TimeOnly) + " for approval: caisson approvals show " + req.ID)
	}
	err = a.wait(ctx, store, req, asker)
	if errors.Is(err, errNoAnswer) {
		return "", &Pending{Request: req, Token: token}
	}
	return token, err
}

// locate says where a request is answered in a browser, where that is possible.
func (a *Asking) locate(ctx context.Context, store *approval.Store, req *approval.Request) {
	if a.Approvals.o.Link == nil || !slices.Contains(req.Channels, approval.Web) {
		return
	}
	if some, err := store.Reachable(ctx, []approval.Channel{approval.Web}); err == nil && some {
		req.URL = a.Approvals.o.Link(req.ID)
	}
}

// again is a call that is made again with a token. A person may have answered the
// frontend meanwhile, and the call may wait for others.
func (a *Asking) again(ctx context.Context, store *approval.Store, release func(context.Context) error) error {
	req, err := store.Presented(ctx, a.Call.Actor, a.Approval)
	if err != nil {
		return a.refusal("", err)
	}
	if r := a.Reply; r != nil {
		_, err := a.Approvals.Answer(ctx, r.Who, req.ID, Answer{Yes: r.Yes, Digest: req.Digest, Note: r.Note})
		if err != nil && !errors.Is(err, sandbox.ErrConflict) { // another answer was faster
			return a.refusal("", err)
		}
		return nil
	}
	if req.State != approval.Pending || a.AnswerTimeout <= 0 || a.Resumable {
		return nil
	}
	if err := release(ctx); err != nil {
		return err
	}
	late, stop := context.WithTimeout(ctx, a.AnswerTimeout)
	defer stop()
	if _, err = store.Wait(late, req.ID); late.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// recordAsked records that the question was put, before any person sees it.
func (a *Asking) recordAsked(ctx context.Context, req *approval.Request) error {
	in := a.Intent
	in.Kind, in.Approval = KindAsk, noteOf(req)
	for _, q := range a.Question.Askings {
		in.Approval.Rules = append(in.Approval.Rules, q.Rule)
	}
	op, err := audit.Begin(ctx, a.Journal, in)
	if err != nil {
		return err
	}
	return op.End(ctx, audit.Outcome{Status: audit.Allowed})
}

// wait waits until the request has an answer, by whatever way it comes first.
// Who asked and went away takes the question along.
func (a *Asking) wait(parent context.Context, store *approval.Store, req *approval.Request, asker Asker) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	if a.Gone != nil {
		go func() {
			select {
			case <-a.Gone:
				cancel(errors.New("the sandbox is gone"))
			case <-ctx.Done():
			}
		}()
	}
	limit := func() {
		if a.AnswerTimeout > 0 {
			stop := time.AfterFunc(a.AnswerTimeout, func() { cancel(errNoAnswer) })
			context.AfterFunc(ctx, func() { stop.Stop() })
		}
	}
	asked := make(chan error, 1)
	if asker == nil {
		limit()
		asked <- nil
	} else {
		go func() {
			err := a.askThere(ctx, asker, req)
			if errors.Is(err, ErrElsewhere) {
				limit()
				err = nil
			}
			asked <- err
		}()
	}
	r, err := store.Wait(ctx, req.ID)
	why := context.Cause(ctx)
	cancel(nil)
	aerr := <-asked
	if err != nil && errors.Is(why, errNoAnswer) {
		return errNoAnswer // the question stands
	}
	if err != nil {
		if why == nil {
			why = err
		}
		cerr := store.Cancel(context.WithoutCancel(parent), req.ID, why.Error())
		return a.refusal("no approver had answered when the call was given up", errors.Join(why, cerr))
	}
	if err := r.Refusal(); err != nil {
		return a.refusal("", errors.Join(err, aerr))
	}
	return nil
}

// errNoAnswer is the end of a call's AnswerTimeout.
var errNoAnswer = errors.New("no approver has answered yet")

// askThere asks by the frontend's own way. What goes wrong there ends the question:
// there is no yes.
func (a *Asking) askThere(ctx context.Context, asker Asker, req *approval.Request) error {
	who, answer, err := asker.Ask(ctx, req)
	if ctx.Err() != nil {
		return nil // another person has answered, or none will
	}
	if errors.Is(err, ErrElsewhere) {
		return err
	}
	if err == nil {
		_, err = a.Approvals.Answer(context.WithoutCancel(ctx), who, req.ID, answer)
	}
	if err == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	store, serr := a.Approvals.Store(ctx)
	if serr != nil {
		return errors.Join(err, serr)
	}
	if now, serr := store.Get(ctx, req.ID); serr == nil && now.State != approval.Pending {
		return nil // another answer was faster
	}
	return errors.Join(err, store.Cancel(ctx, req.ID, err.Error()))
}

// refusal is a no, by the rule that asked.
func (a *Asking) refusal(problem string, cause error) *sandbox.Error {
	first := a.Question.Askings[0]
	e := &sandbox.Error{Op: "policy", Kind: sandbox.ErrDenied, Rule: first.Rule, Problem: first.What,
		Hint: "let an approver answer: caisson approvals ls; see caisson approvals --help"}
	if cause != nil && problem == "" {
		problem = causeOf(cause)
		if hint := sandbox.Hint(cause); hint != "" {
			e.Hint = hint
		}
	}
	if errors.Is(cause, sandbox.ErrUnavailable) {
		e.Cause = cause
	}
	e.Problem += ", and " + problem
	return e
}

// causeOf is an error without what it was about.
func causeOf(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) && e.Problem != "" {
		return e.Problem
	}
	return err.Error()
}

// Merge adds what an image turned out to ask about.
func Merge(q, more *policy.Question) *policy.Question {
	if q == nil {
		return more
	}
	out := *q
	out.Askings = slices.Concat(q.Askings, more.Askings)
	out.Channels = slices.DeleteFunc(slices.Clone(q.Channels), func(c string) bool { return !slices.Contains(more.Channels, c) })
	out.Timeout = min(q.Timeout, more.Timeout)
	return &out
}
