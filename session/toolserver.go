// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
)

// ServerTool is a call of a tool that somebody else's server carries out, behind a
// door that speaks with it.
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

// Admitted is what the record of an admitted call has of it.
type Admitted struct {
	Approval *audit.Approval
}

// ServerToolRecord is the arguments of a call as records have them: without what the
// policy keeps out of them under any of the tool's names. Nil are arguments that
// could not be read; nobody knows what in those is to be kept out.
func (s *Session) ServerToolRecord(server string, names []string, args any) []byte {
	if args == nil {
		return nil
	}
	for _, name := range names {
		args = s.o.Policy.ToolRecord(&policy.ToolCall{Name: name, Server: server, Args: args})
	}
	b, _ := json.Marshal(args) // it was JSON
	return b
}

// AdmitServerTool decides a call by what the policy's tools and risk say of it, which
// is beside what its servers say, counts it against their rates, and has it approved
// where they ask. A call that is refused is recorded; one that is admitted the door
// records, carries out and records again. The caller may not be a program inside.
func (s *Session) AdmitServerTool(ctx context.Context, c *ServerTool) (*Admitted, error) {
	a := &Admitted{}
	for _, name := range c.Names {
		t := &toolRun{
			call: &ToolCall{Name: name, Door: "mcp", Actor: c.Actor, Operator: true}, session: s, actor: c.Actor,
			use: &policy.ToolCall{Name: name, Server: c.Server, Args: c.Args}, definition: c.Definition, answers: c.Answers,
		}
		note, err := t.admit(ctx)
		if err != nil {
			return nil, err
		}
		if note != nil {
			a.Approval = note
		}
	}
	return a, nil
}

// admit decides a call, counts it, and has it approved.
func (t *toolRun) admit(ctx context.Context) (*audit.Approval, error) {
	v := t.session.o.Policy.Decide(t.decided())
	if v.Decision == policy.Deny {
		return nil, t.refuse(ctx, v.Err())
	}
	if err := t.session.takeRates(ctx, t.account(), &v, t.actor, t.call.Approval); err != nil {
		return nil, t.refuse(ctx, err)
	}
	note, err := t.approve(ctx, v)
	if p := (*Pending)(nil); errors.As(err, &p) {
		return nil, p // that it waits is recorded
	} else if err != nil {
		return nil, t.refuse(ctx, err)
	}
	return note, nil
}
