// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 what is deprecated is what older servers and clients use

// Package mcp speaks the Model Context Protocol: one of the frontends. Gateway runs
// third-party servers in sandboxes and lets callers use what a policy lists of
// them.
//
// Nothing that a server, a client or a model says is trusted. What a server says
// of its tools is shown as plain text, as it was when it was approved, and checked
// before it is used; what it answers is bounded, and no address in it is visited.
// What a client asks for is decided by the policy and recorded before it is done.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/toolcall"
	"github.com/caisson-run/caisson/tool/params"
)

// GatewayOptions are the parts of a Gateway.
type GatewayOptions struct {
	// Servers are those behind it. Required.
	Servers []Upstream
	// Pins keep what was approved of them. Required.
	Pins *Pins
	// Judge decides calls by what the whole policy says of tools and of risk, beside
	// what its servers say, and records them. Required.
	Judge *toolcall.Tools
	// Actor is who calls, for the record.
	Actor string
	// Version is caisson's.
	Version string
	// Notice is told what an operator should know, Complaint each line that a
	// server writes to its standard error. They must not block.
	Notice, Complaint func(string)
	// Backoff is how long a server is left alone after its nth crash in a row: 1 s
	// at first, doubling up to a minute, when nil.
	Backoff func(n int) time.Duration
}

// Gateway stands between one client and third-party servers, each in a sandbox
// of its own that lives as long as the gateway is served.
type Gateway struct {
	o         GatewayOptions
	upstreams []*upstream
	face      *sdk.Server
	progress  relay
	ready     chan struct{} // closed once every server was tried
	life      context.Context

	mu    sync.Mutex
	shown map[string]string // what the tools of face are, by name
	// others is the same of prompts, resources and templates of resources.
	others [3]map[string]string

	subscribed subscriptions

	spoken  chan struct{} // closed when the client has said something
	version string        // then: of the protocol that servers are spoken to in
	first   sync.Once
}

// NewGateway makes a gateway; Serve starts its servers.
func NewGateway(o GatewayOptions) (*Gateway, error) {
	if len(o.Servers) == 0 || o.Pins == nil || o.Judge == nil {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "gateway", "it needs servers, pins and a judge")
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	g := &Gateway{o: o, ready: make(chan struct{}), spoken: make(chan struct{}), shown: map[string]string{}}
	for _, s := range o.Servers {
		if len(s.Server.Tools)+len(s.Server.Prompts)+len(s.Server.Resources) == 0 {
			return nil, &sandbox.Error{Op: "server " + s.Name, Kind: sandbox.ErrInvalid, Problem: "none of its tools may be called",
				Hint: `list them: tools: [read_file, "list_*"], or "*" for all`, Rule: s.place(s.Server.At)}
		}
		g.upstreams = append(g.upstreams, newUpstream(g, s))
	}
	options := &sdk.ServerOptions{Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true}}, Logger: slog.New(slog.DiscardHandler)}
	for _, u := range g.upstreams {
		if len(u.o.Server.Prompts) > 0 {
			options.Capabilities.Prompts, options.CompletionHandler = &sdk.PromptCapabilities{ListChanged: true}, g.complete
		}
		if len(u.o.Server.Resources) > 0 {
			options.Capabilities.Resources, options.CompletionHandler = &sdk.ResourceCapabilities{ListChanged: true, Subscribe: true}, g.complete
			options.SubscribeHandler, options.UnsubscribeHandler = g.subscribe, g.unsubscribe
		}
		if u.uses("logging") {
			options.Capabilities.Logging = &sdk.LoggingCapabilities{}
		}
	}
	if options.CompletionHandler != nil {
		options.Capabilities.Completions = &sdk.CompletionCapabilities{}
	}
	g.face = sdk.NewServer(&sdk.Implementation{Name: "caisson-gateway", Title: "caisson gateway", Version: o.Version}, options)
	g.face.AddReceivingMiddleware(g.outlives, only(options.Capabilities), g.await, recordUnknown(g.offers, func(ctx context.Context, name string) error {
		return g.o.Judge.RefuseTool(ctx, &toolcall.Call{Name: name, Frontend: "mcp", Actor: g.o.Actor, Operator: true})
	}))
	return g, nil
}

// outlives has what the library panics over, in what a server or the client has said,
// end that one request, and not all servers and their clients.
func (g *Gateway) outlives(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (res sdk.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				why := line(fmt.Sprint(p), 300)
				g.o.Notice(fmt.Sprintf("%s could not be dealt with: %s", line(method, 64), why))
				res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "it could not be dealt with: " + why}
			}
		}()
		return next(ctx, method, req)
	}
}

func (g *Gateway) backoff(n int) time.Duration {
	if g.o.Backoff != nil {
		return g.o.Backoff(n)
	}
	return backoff(n)
}

// await holds requests for anything of a server's until every server was tried
// once, and has them started in the era of the client's first words.
func (g *Gateway) await(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		g.first.Do(func() {
			if method == "initialize" {
				g.version = lastWithSessions
			}
			close(g.spoken)
		})
		switch method {
		case "initialize", "server/discover", "ping", "subscriptions/listen":
			return next(ctx, method, req)
		}
		if strings.HasPrefix(method, "notifications/") {
			return next(ctx, method, req)
		}
		select {
		case <-g.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if err := g.nothing(); err != nil && strings.HasSuffix(method, "/list") {
			return nil, err
		}
		if p, ok := req.GetParams().(*sdk.SetLoggingLevelParams); ok && method == "logging/setLevel" {
			g.setLevel(ctx, p.Level)
		}
		return next(ctx, method, req)
	}
}

// nothing says why there is nothing to list, where no server ever became ready: an empty
// list would look as if all were well. When one becomes ready clients are told.
func (g *Gateway) nothing() error {
	var why []string
	for _, u := range g.upstreams {
		u.mu.Lock()
		listed, down := u.listed, u.down
		u.mu.Unlock()
		if listed {
			return nil
		}
		why = append(why, "server "+u.o.Name+" does not run: "+down)
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: strings.Join(why, "; ")}
}

// lastWithSessions is the last version of the protocol with a handshake.
const lastWithSessions = "2025-11-25"

// era says in which version servers are spoken to: the client's, since what a server
// may ask, and how, is another thing in each.
func (g *Gateway) era() *sdk.ClientSessionOptions {
	select {
	case <-g.spoken:
		return &sdk.ClientSessionOptions{ProtocolVersion: g.version}
	default: // not asked yet: they are looked at
		return nil
	}
}

// setLevel passes on how much the client wants to be told.
func (g *Gateway) setLevel(ctx context.Context, level sdk.LoggingLevel) {
	for _, u := range g.upstreams {
		if cs, v := u.running(); v == nil && u.uses("logging") {
			_ = cs.SetLoggingLevel(ctx, &sdk.SetLoggingLevelParams{Level: level}) // one that has no levels says what it likes
		}
	}
}

// Serve starts the servers and serves one client on a stream of lines until it
// leaves or ctx ends. No sandbox is left when it returns.
func (g *Gateway) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return g.run(ctx, func(ctx context.Context, leave func()) error { return serveLines(ctx, g.face, in, out, leave) })
}

// run keeps the servers running while serve serves their tools.
func (g *Gateway) run(ctx context.Context, serve func(ctx context.Context, leave func()) error) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	g.life = ctx
	var over, first sync.WaitGroup
	for _, u := range g.upstreams {
		first.Add(1)
		over.Go(func() {
			tried := sync.OnceFunc(first.Done)
			select {
			case <-g.spoken:
				u.keep(ctx, tried)
			case <-ctx.Done():
				tried()
			}
		})
	}
	over.Go(func() { first.Wait(); close(g.ready) })
	err := serve(ctx, leave)
	leave()
	over.Wait()
	return err
}

// offers says whether a tool is offered now.
func (g *Gateway) offers(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.shown[name]
	return ok
}

// publish shows what all servers offer now.
func (g *Gateway) publish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := map[string]string{}
	for _, u := range g.upstreams {
		u.mu.Lock()
		tools := u.tools
		u.mu.Unlock()
		for _, t := range tools {
			name := t.def.Name
			if _, taken := now[name]; taken {
				g.o.Notice(fmt.Sprintf("server %s: the tool %s is not offered: another server has one of that name; give one of them a prefix", u.o.Name, name))
				continue
			}
			is := u.shows(t)
			if g.shown[name] != is {
				if err := g.show(u, t); err != nil {
					g.o.Notice(fmt.Sprintf("server %s: the tool %s is not offered: %v", u.o.Name, name, err))
					continue
				}
			}
			now[name] = is
		}
	}
	for name := range g.shown {
		if _, ok := now[name]; !ok {
			g.face.RemoveTools(name)
		}
	}
	g.shown = now
	g.publishOthers()
}

// stir tells clients that lists may have changed, because a server said so of its own:
// what it has that is not approved does not show, and they may have asked in between.
func (g *Gateway) stir(u *upstream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u.mu.Lock()
	tools, has, theirs := u.tools, u.has, u.prompts
	u.mu.Unlock()
	// One that shows is shown again. One that does not is another server's by its name,
	// or the library does not take it.
	if i := slices.IndexFunc(tools, func(t *offered) bool { return g.shown[t.def.Name] == u.shows(t) }); i >= 0 {
		_ = g.show(u, tools[i])
	}
	if i := slices.IndexFunc(has.prompts, func(p *sdk.Prompt) bool { return g.others[0][p.Name] == u.offers(p) }); i >= 0 {
		p := has.prompts[i]
		g.face.AddPrompt(p, g.prompt(u, theirs[p.Name]))
	}
	if i := slices.IndexFunc(has.resources, func(r *sdk.Resource) bool { return g.others[1][r.URI] == u.offers(r) }); i >= 0 {
		g.face.AddResource(has.resources[i], g.resource(u))
	}
}

// shows is a tool of u's as shown has it.
func (u *upstream) shows(t *offered) string { return u.o.Name + " " + t.digest + " " + t.theirs }

// offers is a prompt, a resource or a template of u's as others has it.
func (u *upstream) offers(definition any) string {
	b, _ := json.Marshal(definition)
	return u.o.Name + " " + string(b)
}

// show offers one tool. The library panics over definitions that it cannot take.
func (g *Gateway) show(u *upstream, t *offered) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New(line(fmt.Sprint(p), 300))
		}
	}()
	g.face.AddTool(t.def, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return g.call(ctx, u, t, req)
	})
	return nil
}

// recorded is what the record says of a call of a server's.
func (u *upstream) recorded(kind, name string, again round) *toolcall.UpstreamCall {
	return &toolcall.UpstreamCall{Actor: u.g.o.Actor, Kind: kind, Server: u.o.Name, Name: name, Options: again.record(), Policy: u.o.Policy, PolicySHA: u.o.PolicySHA}
}

// call decides one call, records it, and carries it out.
func (g *Gateway) call(ctx context.Context, u *upstream, t *offered, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	ctx, stop := within(ctx, g.life)
	defer stop()
	args := req.Params.Arguments
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	names := []string{t.theirs}
	if t.def.Name != t.theirs {
		names = append(names, t.def.Name)
	}
	again := round{req.Params.InputResponses, req.Params.RequestState}
	value, v := t.judge(ctx, u, args)
	if v == nil {
		v = u.mayAnswer(again)
	}
	record := u.recorded(string(policy.CallTool), t.theirs, again)
	record.Params = g.o.Judge.ServerToolRecord(u.o.Name, names, value)
	if v != nil {
		return v.result(), g.o.Judge.RefuseUpstream(ctx, record, v.outcome())
	}
	var err error
	record.Admitted, err = g.o.Judge.AdmitServerTool(ctx, &toolcall.ServerTool{Server: u.o.Name, Names: names, Definition: t.digest, Args: value, Answers: again.text(), Actor: g.o.Actor})
	if err != nil { // it is recorded
		return refusal(err).result(), nil
	}
	var res *sdk.CallToolResult
	var failed *verdict
	err = g.o.Judge.DoUpstream(ctx, record, func(ctx context.Context) (*sandbox.Result, error) {
		if failed = u.still(t); failed == nil {
			res, failed = u.carryOut(ctx, t, req, args)
		}
		if failed != nil {
			res = failed.result()
			return nil, failed
		}
		out := &sandbox.Result{Status: sandbox.StatusSuccess}
		if res.IsError {
			out.Status = sandbox.StatusError
		}
		out.Stdout, _ = json.Marshal(res.Content)
		return out, nil
	})
	if err == nil && failed != nil {
		err = failed.protocol
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// still says whether t is what its server offers now: a person may have thought for
// minutes about a call of it.
func (u *upstream) still(t *offered) *verdict {
	u.mu.Lock()
	defer u.mu.Unlock()
	if slices.ContainsFunc(u.tools, func(now *offered) bool { return now.theirs == t.theirs && now.digest == t.digest }) {
		return nil
	}
	return &verdict{Status: "denied", Reason: "what server " + u.o.Name + " says of this tool has changed since it was called", Hint: "list the tools again"}
}

// judge reads the arguments, and says why a call is refused by what its server's
// entry says; a nil verdict allows it, and counts it.
func (t *offered) judge(ctx context.Context, u *upstream, args json.RawMessage) (value any, _ *verdict) {
	value, err := params.Read(args)
	if err != nil {
		return nil, &verdict{Status: "invalid", Reason: line(err.Error(), 1000)}
	}
	if faults := t.schema.Check(value); len(faults) > 0 {
		return nil, &verdict{Status: "invalid", Reason: "the arguments do not fit the tool's schema", Faults: faults}
	}
	if t.narrow != nil {
		if faults := t.narrow.Check(value); len(faults) > 0 {
			return nil, &verdict{Status: "invalid", Reason: "the arguments do not fit the policy's schema", Rule: t.rule, Faults: faults}
		}
	}
	return value, u.g.count(ctx, t.rates)
}

// carryOut has the server do it.
func (u *upstream) carryOut(ctx context.Context, t *offered, req *sdk.CallToolRequest, args json.RawMessage) (*sdk.CallToolResult, *verdict) {
	timeout, maximum := u.timeout(), u.maxOutput()
	late := fmt.Errorf("it took longer than %v", timeout)
	ctx, stop := context.WithTimeoutCause(ctx, timeout, late)
	defer stop()
	select {
	case u.slots <- struct{}{}:
		defer func() { <-u.slots }()
	case <-ctx.Done():
		return nil, &verdict{Status: "exhausted", Reason: fmt.Sprintf("%d calls of server %s are under way already", cap(u.slots), u.o.Name), Hint: "try again later"}
	}
	cs, v := u.running()
	if v != nil {
		return nil, v
	}
	can := req.ClientCapabilities()
	defer u.attend(&caller{ctx: ctx, session: req.Session, can: can})()
	p := &sdk.CallToolParams{Name: t.theirs, Arguments: args, InputResponses: req.Params.InputResponses, RequestState: req.Params.RequestState}
	p.Meta = u.meta(cs, can, req.Params.Meta)
	if callers := req.Params.GetProgressToken(); callers != nil {
		token, done := u.g.progress.open(ctx, req.Session, callers)
		defer done()
		p.SetProgressToken(token)
	}
	res, err := cs.CallTool(ctx, p)
	if silent := context.Cause(ctx) == late; silent || ctx.Err() == nil {
		u.noteAnswer(cs, !silent)
	}
	switch {
	case err == nil && res.InputRequests != nil:
		asks, v := u.wants(res.InputRequests, res.RequestState, can)
		if v != nil {
			return nil, v
		}
		return &sdk.CallToolResult{InputRequests: asks, RequestState: res.RequestState}, nil
	case protocolError(err, req.Params.RequestState != "" || req.Params.InputResponses != nil) != nil:
		return nil, &verdict{Status: "invalid", Reason: "server " + u.o.Name + ": " + line(err.Error(), 2000), protocol: protocolError(err, true)}
	case err == nil:
		bounded(res, maximum)
		return res, nil
	case context.Cause(ctx) == late:
		return nil, &verdict{Status: "unavailable", Reason: "server " + u.o.Name + ": " + late.Error()}
	case errors.Is(err, sdk.ErrConnectionClosed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe):
		return nil, &verdict{Status: "unavailable", Reason: "server " + u.o.Name + " ended during the call", Hint: "it is started again; whether the call was carried out is not known"}
	}
	return nil, &verdict{Status: "unavailable", Reason: "server " + u.o.Name + ": " + line(err.Error(), 2000)}
}
