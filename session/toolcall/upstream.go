// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
)

// ServerTool is a call of a tool that an upstream server carries out. The frontend
// speaks with that server.
type ServerTool struct {
	Server string
	// Names are what the tool is called: by its server, and as it is offered. What
	// the policy says of any of them holds.
	Names []string
	// Definition is the digest of what the server says of it.
	Definition string
	Args       any // as params.Read gave them
	// Answers are what the caller says beside them, to what the server has asked, as
	// people are to see it; empty is nothing.
	Answers string
	Actor   string
}

// Admitted is what the record of an admitted call has of it: a person's yes, where one was needed.
type Admitted struct {
	approval *audit.Approval
}

// UpstreamCall is what the record says of a call that a server behind a gateway carries out.
type UpstreamCall struct {
	Actor, Kind string
	Server      string
	Name        string   // what is called, in the server's own words
	Options     []string // what else the call says, for people
	Params      []byte   // JSON; nil is nothing that may be kept
	Policy      string   // name and digest of the policy of the server's sandbox
	PolicySHA   string
	Admitted    *Admitted // nil: no yes was needed
}

func (c *UpstreamCall) intent() audit.Intent {
	in := audit.Intent{Actor: c.Actor, Kind: c.Kind, Argv: append([]string{c.Server, c.Name}, c.Options...), Tool: c.Server + "/" + c.Name,
		Params: c.Params, Policy: c.Policy, PolicySHA: c.PolicySHA}
	if c.Admitted != nil {
		in.Approval = c.Admitted.approval
	}
	return in
}

// DoUpstream records the call, has do carry it out, and records what came of it: the Result
// with the time that it took, or do's error. Its own error is that of the record alone; do is
// not called where the intent cannot be recorded.
func (s *Tools) DoUpstream(ctx context.Context, c *UpstreamCall, do func(context.Context) (*sandbox.Result, error)) error {
	op, err := audit.Begin(ctx, s.session.Journal(), c.intent())
	if err != nil {
		return err
	}
	began := time.Now()
	res, err := do(ctx)
	if res != nil {
		res.WallMS = time.Since(began).Milliseconds()
	}
	return op.End(ctx, audit.OutcomeOf(res, err))
}

// RefuseUpstream records a call that was refused, and why.
func (s *Tools) RefuseUpstream(ctx context.Context, c *UpstreamCall, why *sandbox.Result) error {
	return audit.Refuse(ctx, s.session.Journal(), c.intent(), audit.Outcome{Status: audit.Refused, Result: why, Error: why.Reason})
}

// ServerToolRecord is the arguments of a call as records have them: without what the
// policy keeps out of them under any of the tool's names. Nil are arguments that
// could not be read: it is not known what in those is to be kept out.
func (s *Tools) ServerToolRecord(server string, names []string, args any) []byte {
	if args == nil {
		return nil
	}
	for _, name := range names {
		args = s.session.Policy().ToolRecord(&policy.ToolCall{Name: name, Server: server, Args: args})
	}
	b, _ := json.Marshal(args) // it was JSON
	return b
}

// AdmitServerTool decides a call by what the policy's tools and risk say of it, which
// is beside what its servers say, counts it against their rates, and has it approved
// where they ask. A call that is refused is recorded; one that is admitted goes to
// DoUpstream. The caller may not be a program inside.
func (s *Tools) AdmitServerTool(ctx context.Context, c *ServerTool) (*Admitted, error) {
	a := &Admitted{}
	for _, name := range c.Names {
		t := &run{
			call: &Call{Name: name, Frontend: "mcp", Actor: c.Actor, Operator: true}, session: s.session, actor: c.Actor, account: c.Actor,
			use: &policy.ToolCall{Name: name, Server: c.Server, Args: c.Args}, definition: c.Definition, answers: c.Answers,
		}
		note, err := t.admit(ctx, s.session.Policy().Decide(t.decided()))
		if err != nil {
			return nil, err
		}
		if note != nil {
			a.approval = note
		}
	}
	return a, nil
}

// admit counts a call that was decided, and has it approved.
func (t *run) admit(ctx context.Context, v policy.Verdict) (*audit.Approval, error) {
	if v.Decision == policy.Deny {
		return nil, t.refuse(ctx, v.Err())
	}
	if err := t.session.ChargeRates(ctx, t.account, &v, t.actor, t.call.Approval); err != nil {
		return nil, t.refuse(ctx, err)
	}
	note, err := t.approve(ctx, v)
	if p := (*question.Pending)(nil); errors.As(err, &p) {
		return nil, p // that it waits is recorded
	} else if err != nil {
		return nil, t.refuse(ctx, err)
	}
	return note, nil
}
