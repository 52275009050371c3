// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/session/question"
)

// Elicitation asks the client's user. It is the weakest channel: the client,
// which is the agent's side, shows the question and says what was answered. So
// it is used only where a policy names it.
//
// Where the policy names web, too, and the client can open addresses, it is only
// shown where to answer: there an approver's credential is asked for.

// maxElicited is how much of a request a client is asked to show, in bytes. What is
// longer would be scrolled past, or cut by the client.
const maxElicited = 16 << 10

// askedFor is the name of the one question, and of the field in its form.
const askedFor = "approve"

// eliciting is how one call's client can be asked.
type eliciting struct {
	name      string // what the client calls itself, of a few plain characters
	form, url bool
}

// elicitationOf says how the client of a call can be asked; nil is not at all.
func elicitationOf(req *sdk.CallToolRequest) *eliciting {
	caps := req.ClientCapabilities()
	if caps == nil || caps.Elicitation == nil {
		return nil
	}
	e := &eliciting{name: "unknown", form: caps.Elicitation.Form != nil, url: caps.Elicitation.URL != nil}
	if !e.url {
		e.form = true // what a client means that says neither
	}
	if info := req.ClientInfo(); info != nil {
		if name := strings.Map(plainNameRune, info.Name); name != "" {
			e.name = name[:min(len(name), 40)]
		}
	}
	return e
}

func plainNameRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_' {
		return r
	}
	return -1
}

// who is the person who answers there.
func (e *eliciting) who() approval.Who { return approval.ByElicitation(e.name) }

// question is what the client is asked to show; nil where it cannot, or where all
// of it would be too long to be looked at.
func (e *eliciting) question(r *approval.Request) *sdk.ElicitParams {
	if !slices.Contains(r.Channels, approval.Elicitation) {
		return nil
	}
	if e.url && r.URL != "" {
		return &sdk.ElicitParams{Mode: "url", URL: r.URL, ElicitationID: r.ID,
			Message: "A tool call waits for approval (" + r.ID + "). An approver looks at it there, and answers with their credential."}
	}
	if !e.form {
		return nil
	}
	// Every line of the view is of printable characters and behind a gutter, so that
	// none of them ends the fence: clients that render Markdown show it as it is.
	text := "A tool call needs approval. This is all that it would do:\n\n```text\n" + r.View.String() + "digest: " + r.Seal() + "\n```\n\nLet it run, once?"
	if len(text) > maxElicited {
		return nil
	}
	return &sdk.ElicitParams{Mode: "form", Message: text, RequestedSchema: map[string]any{
		"type": "object", "required": []string{askedFor},
		"properties": map[string]any{askedFor: map[string]any{
			"type": "boolean", "title": "Let it run, once", "description": "Yes lets exactly this call run, once. Anything else is a final no.", "default": false,
		}},
	}}
}

// reply is what a client's answer means: yes is one thing only.
func (e *eliciting) reply(res *sdk.ElicitResult) *question.Reply {
	r := &question.Reply{Who: e.who()}
	switch {
	case res == nil:
		r.Note = "the client gave no answer"
	case res.Action != "accept":
		r.Note = "the client answered " + line(res.Action, 20)
	case res.Content[askedFor] != true:
		r.Note = "the client's user did not say yes"
	default:
		r.Yes = true
	}
	return r
}

// elsewhere says that a request may be answered by another channel.
func elsewhere(r *approval.Request) bool {
	return slices.Contains(r.Channels, approval.CLI) || slices.Contains(r.Channels, approval.Web)
}

// elicitor asks an older client, which takes requests while it waits for an answer.
type elicitor struct {
	*eliciting
	session *sdk.ServerSession
	bound   time.Duration
	told    atomic.Pointer[string] // what it was sent somewhere else for
}

func (*elicitor) Channel() approval.Channel { return approval.Elicitation }

// Ask implements question.Asker. No answer in time, an error and anything but a yes
// are a no.
func (e *elicitor) Ask(ctx context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
	q := e.question(r)
	if q == nil && elsewhere(r) {
		return approval.Who{}, question.Answer{}, question.ErrElsewhere
	}
	if q == nil {
		return e.who(), question.Answer{Note: "the client cannot show all of it"}, nil
	}
	late, stop := context.WithTimeout(ctx, e.bound)
	defer stop()
	res, err := e.session.Elicit(late, q)
	if err != nil {
		res = nil
	}
	if q.Mode == "url" && res != nil && res.Action == "accept" {
		e.told.Store(&r.ID)
		return approval.Who{}, question.Answer{}, question.ErrElsewhere
	}
	said := e.reply(res)
	return said.Who, question.Answer{Yes: said.Yes, Digest: r.Digest, Note: said.Note}, nil
}
