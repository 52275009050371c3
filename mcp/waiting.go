// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/toolcall"
)

// approvalKey is where in _meta programs find what a call waits for, and put its
// token when they make the same call again.
const approvalKey = "run.caisson/approval"

const (
	// askTimeout is how long a call waits for people before its caller is told what
	// it waits for: less than clients wait for an answer.
	askTimeout = 20 * time.Second
	// elicitBound is how long an older client may take to ask its user, while its
	// call waits.
	elicitBound = 2 * time.Minute
	// maxRemembered is how many calls that wait are remembered by what they are.
	maxRemembered = 64
)

// serving is the server of one caller's tools.
type serving struct {
	box            Toolbox
	timeout, bound time.Duration

	mu sync.Mutex
	// waits has the tokens of calls that wait, by what was called: a model that makes
	// the same call again goes on with it, and does not ask a second time.
	waits map[[sha256.Size]byte]waiting
}

type waiting struct {
	token string
	until time.Time
	// asked is how the client was asked, where it has not answered: it is asked the
	// same again.
	asked *sdk.CallToolResult
}

// callOf names a call: the tool and what its arguments mean.
func callOf(name string, args json.RawMessage) [sha256.Size]byte {
	var v any
	if json.Unmarshal(args, &v) == nil {
		if b, err := json.Marshal(v); err == nil {
			args = b
		}
	}
	return sha256.Sum256([]byte(name + "\x00" + string(args)))
}

// take finds a call that waits, for one caller.
func (s *serving) take(call [sha256.Size]byte) (w waiting, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok = s.waits[call]
	delete(s.waits, call)
	return w, ok && time.Now().Before(w.until)
}

// remember keeps what a call waits for, in the place of the oldest where there are
// too many.
func (s *serving) remember(call [sha256.Size]byte, p *question.Pending, asked *sdk.CallToolResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waits) >= maxRemembered {
		first := call
		for k, w := range s.waits {
			if old, ok := s.waits[first]; !ok || w.until.Before(old.until) {
				first = k
			}
		}
		delete(s.waits, first)
	}
	// A yes stands as long as the question could.
	until := p.Request.Expires.Add(p.Request.Expires.Sub(p.Request.Created))
	if asked != nil {
		until = p.Request.Expires
	}
	s.waits[call] = waiting{p.Token, until, asked}
}

// carry carries a call out, and has it approved where the policy asks. It never
// waits longer than timeout, or bound where an older client asks its user.
func (s *serving) carry(ctx context.Context, req *sdk.CallToolRequest, c *toolcall.Call) (*toolcall.Answer, *sdk.CallToolResult, error) {
	e, call := elicitationOf(req), callOf(c.Name, c.Args)
	c.AnswerTimeout, c.Approval = s.timeout, tokenIn(req.Params.Meta)
	var older *elicitor
	w, known := s.take(call)
	switch {
	case req.Params.RequestState != "":
		if err := resume(req, e, c); err != nil {
			return nil, nil, err
		}
	case c.Approval != "":
	case known && w.asked == nil:
		c.Approval = w.token
	case known && e != nil && modern(req):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waits[call] = w
		return nil, w.asked, nil
	case e == nil:
	case modern(req):
		c.Reach, c.Resumable = []approval.Channel{approval.Elicitation}, true
	default:
		older = &elicitor{eliciting: e, session: req.Session, bound: s.bound}
		c.Reach, c.Ask = []approval.Channel{approval.Elicitation}, older
	}
	answer, err := s.box.CallTool(ctx, c)
	var p *question.Pending
	if c.Resumable && errors.As(err, &p) {
		if q := e.question(p.Request); q != nil {
			asked := &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{askedFor: q}, RequestState: q.Mode + ":" + p.Token}
			s.remember(call, p, asked)
			return nil, asked, nil
		}
		again := *c
		if again.Resumable, again.Approval = false, p.Token; !elsewhere(p.Request) {
			again.Reply = &question.Reply{Who: e.who(), Note: "the client cannot show all of it"}
		}
		answer, err = s.box.CallTool(ctx, &again)
	}
	if p = nil; errors.As(err, &p) {
		s.remember(call, p, nil)
		return nil, pending(p), nil
	}
	if older != nil && older.told.Load() != nil {
		_ = req.Session.NotifyElicitationComplete(ctx, &sdk.ElicitationCompleteParams{ElicitationID: *older.told.Load()})
	}
	return answer, nil, err
}

// modern says that a client takes questions as results.
func modern(req *sdk.CallToolRequest) bool { return req.ProtocolVersion() >= firstStateless }

// resume reads what a client answers that was asked in the result before. What it
// sends is its own saying: the token alone says which question it is about, and the
// road compares that with the call.
func resume(req *sdk.CallToolRequest, e *eliciting, c *toolcall.Call) error {
	mode, token, _ := strings.Cut(req.Params.RequestState, ":")
	if e == nil || token == "" || !slices.Contains([]string{"form", "url"}, mode) {
		return errors.New("the state of the request is not one that was given here")
	}
	c.Approval = token
	res, _ := req.Params.InputResponses[askedFor].(*sdk.ElicitResult)
	if mode == "url" && res != nil && res.Action == "accept" {
		return nil // the approver answers there
	}
	c.Reply = e.reply(res)
	if mode == "url" && c.Reply.Yes {
		c.Reply = e.reply(nil)
	}
	return nil
}

// tokenIn is the token of a call that is made again.
func tokenIn(meta sdk.Meta) string {
	switch v := meta[approvalKey].(type) {
	case string:
		return v
	case map[string]any:
		token, _ := v["token"].(string)
		return token
	}
	return ""
}

// pending is the answer to a call that waits.
func pending(p *question.Pending) *sdk.CallToolResult {
	v := &verdict{Status: "pending", Reason: "it has not run: it waits for a person's approval (" + p.Request.ID + ")",
		Hint: "make the same call again, with the same arguments, when an approver has answered; in other words it is another call"}
	res := v.result()
	res.Meta[approvalKey] = map[string]any{"id": p.Request.ID, "token": p.Token, "expires": p.Request.Expires.UTC().Format(time.RFC3339)}
	if u := p.Request.URL; u != "" {
		res.Meta[approvalKey].(map[string]any)["url"] = u
		res.Content[0].(*sdk.TextContent).Text += "\napprovers answer at " + u
	}
	return res
}
