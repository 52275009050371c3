// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"net/http"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
)

// Run is a program, or code, that is to run in a sandbox of its own.
type Run struct {
	Exec
	Code      string   `json:"code,omitempty" doc:"Code instead of a program; at most 4 MiB with all else"`
	Language  string   `json:"language,omitempty" maxLength:"32" doc:"The code's, where its first line does not say: python, javascript, bash, …"`
	Args      []string `json:"args,omitempty" maxItems:"4096" doc:"Of the code"`
	Template  string   `json:"template,omitempty" maxLength:"256" doc:"What the sandbox is made of, a template's NAME[:TAG]; base when it is left out"`
	Network   *Network `json:"network,omitempty" doc:"A part of what the key's policy grants; all of that when it is left out"`
	Limits    *Limits  `json:"limits,omitempty"`
	Isolation string   `json:"isolation,omitempty" maxLength:"64"`
	Changes   *Keeping `json:"changes,omitempty" doc:"What is kept of what it changes in the workspace; what the policy says when it is left out"`
}

// Keeping says whether changes in the workspace are kept as a change set.
type Keeping struct {
	Keep    bool `json:"keep" doc:"Keep them, or refuse the run where that cannot be; false keeps nothing"`
	Ignored bool `json:"ignored,omitempty" doc:"Also what .gitignore files ignore"`
}

func (q *Run) call() (*session.Call, error) {
	e := q.Exec
	if q.Code != "" {
		if len(e.Command) > 0 || e.Shell != "" {
			return nil, &sandbox.Error{Op: "run", Kind: sandbox.ErrInvalid, Problem: "it has code and a program", Hint: "leave one of them out"}
		}
		e.Command = append([]string{"code"}, q.Args...) // which is taken off below
	}
	c, err := e.call()
	if err != nil {
		return nil, err
	}
	if q.Code != "" {
		c.Argv, c.Source = q.Args, &session.Source{Language: q.Language, Code: []byte(q.Code)}
	}
	wall := c.Limits
	if c.Limits = q.Limits.limits(); wall.Explicit != nil {
		if c.Limits.Explicit == nil {
			c.Limits.Explicit = wall.Explicit
		}
		c.Limits.Wall, c.Limits.Explicit[sandbox.LimitWall] = wall.Wall, true
	}
	c.Isolation = q.Isolation
	if k := q.Changes; k != nil {
		c.Changes = policy.ChangesWish{Keep: k.Keep, Required: k.Keep, Discard: !k.Keep, Ignored: k.Ignored}
	}
	if n := q.Network; n != nil {
		c.NoNetwork, c.Network, c.NetworkDeny = n.None, n.Allow, n.Deny
	}
	return c, nil
}

// runs registers what runs once.
func (s *Server) runs() {
	op := operation("POST", "/runs", "run", "Run a program or code in a sandbox of its own, which is taken away at its end", http.StatusOK)
	op.Description = "The program is ended when the caller goes away."
	s.describeResult(&op)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *struct {
		Accept string `header:"Accept" doc:"text/event-stream to be told what it writes as it writes it"`
		Body   Run
	}) (*streamed, error) {
		c, err := in.Body.call()
		if err != nil {
			return nil, err
		}
		return s.carry(ctx, in.Accept, &in.Body.Exec, c, func(ctx context.Context, c *session.Call, io session.IO) (*sandbox.Result, error) {
			return s.o.Sandboxes.Run(ctx, k, in.Body.Template, c, io)
		})
	})
}
