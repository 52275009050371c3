// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 what is deprecated is what older servers and clients use

package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/policy"
)

// What a server may use of its client is nothing, unless its entry lists it: the
// client's model (sampling), its user (elicitation), and its log. What it says there
// is bounded and plain, and names the server, so that it is not taken for another
// party's words.
//
// A server of the newer protocol says in the result of a call what it needs, and
// gets it with the same call made again. An older one asks while a call is under way,
// without saying which: it is heard only where there is one.

const (
	maxQuestion = 8 << 10         // bytes of a message to a user
	maxSample   = 1 << 20         // bytes of a request to a model
	maxState    = 64 << 10        // bytes that a server gives for the next round
	maxInputs   = 8               // questions of one result
	userTimeout = 2 * time.Minute // of a user or model that an older server asks
)

// uses says whether the server may use something of its client.
func (u *upstream) uses(what string) bool {
	return slices.ContainsFunc(u.o.Server.Client, func(v policy.Value[string]) bool { return v.V == what })
}

// caller is who called a server, for as long as that takes.
type caller struct {
	ctx     context.Context
	session *sdk.ServerSession
	can     *sdk.ClientCapabilities
	words   *rate.Limiter // of the server's log
}

// attend makes c the caller of one more call.
func (u *upstream) attend(c *caller) (leave func()) {
	c.words = rate.NewLimiter(20, 50)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.callers == nil {
		u.callers = map[*caller]bool{}
	}
	u.callers[c] = true
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.callers, c)
	}
}

// only is the one who calls; nil where there are others, or none.
func (u *upstream) only() *caller {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.callers) != 1 {
		return nil
	}
	for c := range u.callers {
		return c
	}
	return nil
}

var errNotOne = errors.New("caisson passes a question on while one call is under way, so that it is known whose it is")

// heard is on whose behalf an older server asks for something, whatever it was told
// that it may.
func (u *upstream) heard(use string) (*caller, error) {
	if !u.uses(use) {
		return nil, errors.New("the policy does not let it use " + use + " of its client")
	}
	if c := u.only(); c != nil {
		return c, nil
	}
	return nil, errNotOne
}

// elicits passes an older server's question to the user on before the library looks at
// its form, of which it takes less than clients do.
func (u *upstream) elicits(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if r, ok := req.(*sdk.ElicitRequest); ok {
			return u.elicit(ctx, r)
		}
		return next(ctx, method, req)
	}
}

// elicit passes an older server's question to the user on.
func (u *upstream) elicit(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	c, err := u.heard("elicitation")
	if err != nil {
		return nil, err
	}
	p, err := u.question(req.Params, c.can)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(c.ctx, userTimeout)
	defer stop()
	return c.session.Elicit(ctx, p)
}

// sample passes an older server's question to the model on.
func (u *upstream) sample(_ context.Context, req *sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
	c, err := u.heard("sampling")
	if err != nil {
		return nil, err
	}
	p, err := sampled(req.Params, c.can)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(c.ctx, userTimeout)
	defer stop()
	return c.session.CreateMessage(ctx, p.(*sdk.CreateMessageParams))
}

// told passes what a server tells of a call on.
func (u *upstream) told(_ context.Context, req *sdk.LoggingMessageRequest) {
	c := u.only()
	if c == nil || !c.words.Allow() || size(req.Params.Data) > maxQuestion {
		return
	}
	_ = c.session.Log(c.ctx, &sdk.LoggingMessageParams{Level: req.Params.Level, Logger: line(u.o.Name+" "+req.Params.Logger, maxTitle), Data: plainValue(req.Params.Data, maxQuestion)})
}

// question is what a client is asked on behalf of a server: a form, never an
// address.
func (u *upstream) question(p *sdk.ElicitParams, can *sdk.ClientCapabilities) (*sdk.ElicitParams, error) {
	switch {
	case p == nil || p.Mode != "" && p.Mode != "form" || p.URL != "":
		return nil, errors.New("a server may ask the user by a form alone")
	case can == nil || can.Elicitation == nil || can.Elicitation.Form == nil && can.Elicitation.URL != nil:
		return nil, errors.New("the client has no forms")
	case len(p.Message) > maxQuestion || size(p.RequestedSchema) > maxQuestion:
		return nil, fmt.Errorf("a question has at most %d bytes, and so has its form", maxQuestion)
	}
	form := plainValue(jsonOf(p.RequestedSchema), maxQuestion)
	if !plainNames(form) {
		return nil, errors.New("the form has a name with characters that cannot be seen")
	}
	return &sdk.ElicitParams{Mode: p.Mode, Message: "MCP server " + u.o.Name + " asks: " + plain(p.Message, maxQuestion), RequestedSchema: form}, nil
}

// sampled is what a client's model is asked on behalf of a server: what the server says
// itself, and nothing of what the client has had from others. To the client all servers
// behind the gateway are one, so that "thisServer" would be all of them.
func sampled(r sdk.InputRequest, can *sdk.ClientCapabilities) (sdk.InputRequest, error) {
	if can == nil || can.Sampling == nil {
		return nil, errors.New("the client lends its model to no server")
	}
	if size(r) > maxSample {
		return nil, fmt.Errorf("a request to the model has at most %d bytes", maxSample)
	}
	switch p := r.(type) {
	case *sdk.CreateMessageParams:
		if p != nil && !slices.Contains(p.Messages, nil) {
			own := *p
			own.IncludeContext, own.Meta = "", nil
			return &own, nil
		}
	case *sdk.CreateMessageWithToolsParams:
		if p != nil && !slices.Contains(p.Messages, nil) {
			own := *p
			own.IncludeContext, own.Meta = "", nil
			return &own, nil
		}
	}
	return nil, errors.New("the request to the model cannot be read")
}

// wants is what a server of the newer protocol needs before it can answer, as its
// client is asked; v says why it is not.
func (u *upstream) wants(requests sdk.InputRequestMap, state string, can *sdk.ClientCapabilities) (sdk.InputRequestMap, *verdict) {
	refused := func(why string) *verdict {
		return &verdict{Status: "unavailable", Reason: "server " + u.o.Name + " wants to ask its client something: " + why}
	}
	if len(requests) > maxInputs || len(state) > maxState {
		return nil, refused("it is too much at once")
	}
	out := sdk.InputRequestMap{}
	for id, r := range requests {
		use, err := "", error(nil)
		switch p := r.(type) {
		case *sdk.ElicitParams:
			use = "elicitation"
			out[id], err = u.question(p, can)
		case *sdk.CreateMessageParams, *sdk.CreateMessageWithToolsParams:
			use = "sampling"
			out[id], err = sampled(r, can)
		case *sdk.ListRootsParams:
			use = "roots"
			if out[id] = (*sdk.ListRootsParams)(&sdk.ListRootsParams{}); can == nil || can.RootsV2 == nil {
				err = errors.New("the client has no roots")
			}
		default:
			return nil, refused("that is not passed on")
		}
		if !u.uses(use) {
			return nil, &verdict{Status: "denied", Reason: "server " + u.o.Name + " wants to ask its client something, which it may not", Rule: u.o.place(u.o.Server.At),
				Hint: "client: [" + use + "] in its entry lets it"}
		}
		if err != nil {
			return nil, refused(err.Error())
		}
	}
	return out, nil
}

// round is what a client answers with a call, where it has been asked before: a call
// made again, as the newer protocol has it. It decides what the call does as much as the
// arguments do.
type round struct {
	Answers sdk.InputResponseMap `json:"answers,omitempty"`
	State   string               `json:"state,omitempty"`
}

// text is the round as people and records see it; empty is none.
func (r round) text() string {
	if len(r.Answers) == 0 && r.State == "" {
		return ""
	}
	b, err := json.Marshal(r)
	if err != nil {
		return "?" // it is refused
	}
	return string(b)
}

// record is the round for a record, behind what is asked for. What is too long is refused,
// and not kept as a whole.
func (r round) record() []string {
	text := r.text()
	if text == "" {
		return nil
	}
	return []string{textCut(text, min(maxSample, int64(len(text))))}
}

// mayAnswer says why a client may not answer a server that its entry lets ask for
// nothing of the kind: the client was not asked.
func (u *upstream) mayAnswer(r round) *verdict {
	text := r.text()
	if text == "" {
		return nil
	}
	invalid := func(why string) *verdict { return &verdict{Status: "invalid", Reason: why} }
	if len(r.Answers) > maxInputs || len(text) > maxSample {
		return invalid("what it answers the server is too much at once")
	}
	uses := map[string]bool{}
	for _, a := range r.Answers {
		switch a.(type) {
		case *sdk.ElicitResult:
			uses["elicitation"] = true
		case *sdk.ListRootsResult:
			uses["roots"] = true
		case *sdk.CreateMessageResult, *sdk.CreateMessageWithToolsResult:
			uses["sampling"] = true
		default:
			return invalid("what it answers the server cannot be read")
		}
	}
	may := slices.ContainsFunc([]string{"elicitation", "roots", "sampling"}, u.uses)
	for use := range uses {
		may = may && u.uses(use)
	}
	if !may {
		return &verdict{Status: "denied", Reason: "it answers a question that server " + u.o.Name + " may not ask", Rule: u.o.place(u.o.Server.At),
			Hint: "leave the answers out; what the tool is to do is in its arguments"}
	}
	return nil
}

// meta is what a server is told of its caller with a call: what of the client it may
// use, and how much the client wants to be told. An older server knows from the
// handshake.
func (u *upstream) meta(cs *sdk.ClientSession, can *sdk.ClientCapabilities, theirs sdk.Meta) sdk.Meta {
	r := cs.InitializeResult()
	if r == nil || r.ProtocolVersion < firstStateless {
		return nil
	}
	has := map[string]any{}
	if can == nil {
		can = &sdk.ClientCapabilities{}
	}
	if u.uses("elicitation") && can.Elicitation != nil {
		has["elicitation"] = map[string]any{"form": map[string]any{}}
	}
	if u.uses("sampling") && can.Sampling != nil {
		has["sampling"] = map[string]any{}
	}
	if u.uses("roots") && can.RootsV2 != nil {
		has["roots"] = map[string]any{}
	}
	m := sdk.Meta{sdk.MetaKeyClientCapabilities: has}
	if level, ok := theirs[sdk.MetaKeyLogLevel].(string); ok && u.uses("logging") {
		m[sdk.MetaKeyLogLevel] = line(level, 32)
	}
	return m
}

// protocolError is an error that tells the client what to do: that it lacks what the
// server needs, and, where round says that it has answered something, that its answer
// is not one.
func protocolError(err error, round bool) error {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		return nil
	}
	switch {
	case e.Code == sdk.CodeMissingRequiredClientCapabilities:
		return &jsonrpc.Error{Code: e.Code, Message: line(e.Message, 1000), Data: plainData(e.Data)}
	case round && e.Code == jsonrpc.CodeInvalidParams:
		return &jsonrpc.Error{Code: e.Code, Message: line(e.Message, 1000)}
	}
	return nil
}

// plainData is what an error has beside its words, with plain texts; what is too long is
// left out as a whole, since a part of it is no JSON.
func plainData(data json.RawMessage) json.RawMessage {
	var v any
	if len(data) > maxState || json.Unmarshal(data, &v) != nil {
		return nil
	}
	b, _ := json.Marshal(plainValue(v, maxQuestion)) // it was JSON
	return b
}
