// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
)

// desk is where questions are: a state directory, or a daemon.
type desk interface {
	// enter finds out who answers, where that is not known yet.
	enter(ctx context.Context) error
	list(ctx context.Context, f *approvalFlags) ([]*approval.Request, error)
	get(ctx context.Context, id string) (*approval.Request, error)
	answer(ctx context.Context, id string, answer question.Answer) (*approval.Request, error)
}

// withDesk opens what the flags name.
func (a *app) withDesk(ctx context.Context, f *approvalFlags, p purpose, do func(desk) error) error {
	if f.url == "" {
		return a.withApprovals(ctx, f, p, func(approvals *question.Approvals, s *approval.Store) error {
			return do(&localDesk{a: a, f: f, approvals: approvals, store: s})
		})
	}
	if a.state != "" {
		return &sandbox.Error{Op: "--url", Kind: sandbox.ErrInvalid, Problem: "--state names another place to look in", Hint: "leave one of them out"}
	}
	credential, err := a.credential(f)
	if err != nil {
		return err
	}
	c, err := client.New(client.Options{URL: f.url, Key: credential})
	if err != nil {
		return err
	}
	defer c.Close()
	return do(remoteDesk{c})
}

// localDesk is a state directory.
type localDesk struct {
	a         *app
	f         *approvalFlags
	approvals *question.Approvals
	store     *approval.Store
	who       approval.Who
}

func (d *localDesk) enter(ctx context.Context) (err error) {
	d.who, err = d.a.approver(ctx, d.f, d.store)
	return err
}

func (d *localDesk) list(ctx context.Context, f *approvalFlags) ([]*approval.Request, error) {
	states := []approval.State{approval.Pending}
	if f.all {
		states = nil
	}
	list, err := d.store.List(ctx, states...)
	for f.wait && err == nil && len(list) == 0 {
		if d.store.Changes(ctx); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		list, err = d.store.List(ctx, states...)
	}
	return list, err
}

func (d *localDesk) get(ctx context.Context, id string) (*approval.Request, error) {
	return d.store.Get(ctx, id)
}

func (d *localDesk) answer(ctx context.Context, id string, answer question.Answer) (*approval.Request, error) {
	return d.approvals.Answer(ctx, d.who, id, answer)
}

// remoteDesk is a daemon, whose requests all have the approver's credential.
type remoteDesk struct{ c *client.Client }

func (remoteDesk) enter(context.Context) error { return nil }

func (d remoteDesk) list(ctx context.Context, f *approvalFlags) ([]*approval.Request, error) {
	var filter client.QuestionFilter
	if f.all {
		for _, s := range approval.States() {
			filter.States = append(filter.States, string(s))
		}
	}
	if f.wait {
		filter.Wait = time.Minute
	}
	var all []*approval.Request
	for {
		list, next, err := d.c.Questions(ctx, filter)
		if err != nil {
			return nil, err
		}
		for i := range list {
			all = append(all, requestOf(&list[i]))
		}
		if filter.Cursor = next; next == "" && (!f.wait || len(all) > 0) {
			return all, nil
		}
	}
}

func (d remoteDesk) get(ctx context.Context, id string) (*approval.Request, error) {
	q, err := d.c.Question(ctx, id)
	if err != nil {
		return nil, err
	}
	return requestOf(q), nil
}

func (d remoteDesk) answer(ctx context.Context, id string, answer question.Answer) (*approval.Request, error) {
	say := func() (*client.Question, error) { return d.c.Deny(ctx, id, answer.Note) }
	if answer.Yes {
		say = func() (*client.Question, error) { return d.c.Approve(ctx, id, answer.Digest) }
	}
	q, err := say()
	if err != nil {
		return nil, err
	}
	return requestOf(q), nil
}

// requestOf is what a daemon says of a question. What it says goes to a terminal:
// it is made printable once more.
func requestOf(q *client.Question) *approval.Request {
	r := &approval.Request{
		ID: printable(q.ID), Actor: printable(q.Actor), Digest: printable(q.Digest), State: approval.State(printable(q.State)),
		Created: q.Created, Expires: q.Expires, Ended: q.Ended, Approver: printable(q.Approver), Channel: approval.Channel(printable(q.Channel)), Note: printable(q.Note),
	}
	for _, c := range q.Channels {
		r.Channels = append(r.Channels, approval.Channel(printable(c)))
	}
	if q.View == nil {
		// A list has no more of it than this line.
		r.View.Fields = []approval.Field{{Name: "asked because", Lines: []string{printable(q.About)}}}
		return r
	}
	for _, w := range q.View.Warnings {
		r.View.Warnings = append(r.View.Warnings, printable(w))
	}
	for _, f := range q.View.Fields {
		shown := approval.Field{Name: printable(f.Name)}
		for _, l := range f.Lines {
			shown.Lines = append(shown.Lines, printable(l))
		}
		r.View.Fields = append(r.View.Fields, shown)
	}
	return r
}
