// SPDX-License-Identifier: Apache-2.0

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

	"github.com/caisson-run/caisson/sandbox"
)

// Prompts and resources of servers: each that is asked for is recorded, bounded like
// a call of a tool, and counts for the server's rate.

// jsonOf is v as plain JSON has it.
func jsonOf(v any) (out any) {
	b, err := json.Marshal(v)
	if err != nil || json.Unmarshal(b, &out) != nil {
		return nil
	}
	return out
}

// other is one thing that is asked of a server beside its tools.
type other struct {
	kind, name string // of the record
	params     any
	again      round
	session    *sdk.ServerSession
	can        *sdk.ClientCapabilities
}

// fetch records it, and does it within the bounds of calls. What do gives has at most
// as many bytes as a result of a call.
func (g *Gateway) fetch(ctx context.Context, u *upstream, o other, do func(context.Context, *sdk.ClientSession) (any, error)) error {
	ctx, stop := within(ctx, g.life)
	defer stop()
	record := u.recorded(o.kind, o.name, o.again)
	record.Params, _ = json.Marshal(o.params) // of JSON's types
	refuse := func(v *verdict) error {
		return errors.Join(&jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: v.Status + ": " + v.Reason}, g.o.Judge.RefuseUpstream(ctx, record, v.outcome()))
	}
	if v := g.count(ctx, u.rates(nil)); v != nil {
		v.Reason += "; " + v.Hint
		return refuse(v)
	}
	if v := u.mayAnswer(o.again); v != nil {
		return refuse(v)
	}
	if size(o.params) > maxState {
		return refuse(&verdict{Status: "invalid", Reason: "it is too long"})
	}
	var failed error
	err := g.o.Judge.DoUpstream(ctx, record, func(ctx context.Context) (*sandbox.Result, error) {
		v, err := u.guarded(ctx, &caller{session: o.session, can: o.can}, do)
		if maximum := u.maxOutput(); err == nil && size(v) > maximum {
			err = fmt.Errorf("server %s: the answer has more than %d bytes", u.o.Name, maximum)
		}
		if err != nil {
			failed = u.refusal(err)
			return nil, errors.New(line(failed.Error(), 2000))
		}
		res := &sandbox.Result{Status: sandbox.StatusSuccess}
		res.Stdout, _ = json.Marshal(v)
		return res, nil
	})
	return errors.Join(failed, err)
}

// refusal is a server's error as a client gets it: its words plain and bounded, and
// nothing beside them that a client would act on, such as an address that it is to
// show its user.
func (u *upstream) refusal(err error) error {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		return err
	}
	if known := protocolError(err, true); known != nil {
		return known
	}
	out := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "server " + u.o.Name + ": " + line(e.Message, 2000)}
	if e.Code == olderNotFound {
		out.Code = e.Code
	}
	return out
}

// olderNotFound is the code of older versions for a resource that is not there.
const olderNotFound = -32002

// guarded does something with a server that runs, within the time and the number of
// its calls.
func (u *upstream) guarded(ctx context.Context, c *caller, do func(context.Context, *sdk.ClientSession) (any, error)) (any, error) {
	timeout := u.timeout()
	late := fmt.Errorf("server %s: it took longer than %v", u.o.Name, timeout)
	ctx, stop := context.WithTimeoutCause(ctx, timeout, late)
	defer stop()
	select {
	case u.slots <- struct{}{}:
		defer func() { <-u.slots }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%d calls of server %s are under way already", cap(u.slots), u.o.Name)
	}
	cs, v := u.running()
	if v != nil {
		return nil, v
	}
	c.ctx = ctx
	defer u.attend(c)()
	res, err := do(ctx, cs)
	if silent := context.Cause(ctx) == late; silent || ctx.Err() == nil {
		u.noteAnswer(cs, !silent)
	}
	return res, err
}

func (u *upstream) timeout() time.Duration {
	if c := u.o.Server.Calls; c.Timeout.Said() {
		return c.Timeout.V
	}
	return callTimeout
}

func (u *upstream) maxOutput() int64 {
	if c := u.o.Server.Calls; c.Output.Said() {
		return c.Output.V
	}
	return callOutput
}

// prompt gets one.
func (g *Gateway) prompt(u *upstream, theirs string) sdk.PromptHandler {
	return func(ctx context.Context, req *sdk.GetPromptRequest) (res *sdk.GetPromptResult, err error) {
		can := req.ClientCapabilities()
		err = g.fetch(ctx, u, other{"get_prompt", theirs, req.Params.Arguments, round{req.Params.InputResponses, req.Params.RequestState}, req.Session, can}, func(ctx context.Context, cs *sdk.ClientSession) (any, error) {
			res, err = cs.GetPrompt(ctx, &sdk.GetPromptParams{Meta: u.meta(cs, can, req.Params.Meta), Name: theirs, Arguments: req.Params.Arguments, InputResponses: req.Params.InputResponses, RequestState: req.Params.RequestState})
			if err != nil {
				return nil, err
			}
			if len(res.Messages) > maxContents {
				return nil, fmt.Errorf("it has more than %d messages", maxContents)
			}
			if res.InputRequests != nil {
				asks, v := u.wants(res.InputRequests, res.RequestState, can)
				if v != nil {
					return nil, v
				}
				res = &sdk.GetPromptResult{InputRequests: asks, RequestState: res.RequestState}
				return res, nil
			}
			res = &sdk.GetPromptResult{Description: plain(res.Description, maxDescription), Messages: present(res.Messages)}
			return res, nil
		})
		if err != nil {
			return nil, err
		}
		return res, nil
	}
}

// resource reads one. What is not allowed is said to be not there.
func (g *Gateway) resource(u *upstream) sdk.ResourceHandler {
	return func(ctx context.Context, req *sdk.ReadResourceRequest) (res *sdk.ReadResourceResult, err error) {
		uri, can := req.Params.URI, req.ClientCapabilities()
		if why := u.readable(uri); why != "" {
			v := &verdict{Status: "denied", Reason: why, Rule: u.o.place(u.o.Server.At)}
			return nil, errors.Join(sdk.ResourceNotFoundError(uri), g.o.Judge.RefuseUpstream(ctx, u.recorded("read_resource", line(uri, maxURI), round{}), v.outcome()))
		}
		err = g.fetch(ctx, u, other{"read_resource", uri, map[string]string{"uri": uri}, round{req.Params.InputResponses, req.Params.RequestState}, req.Session, can}, func(ctx context.Context, cs *sdk.ClientSession) (any, error) {
			res, err = cs.ReadResource(ctx, &sdk.ReadResourceParams{Meta: u.meta(cs, can, req.Params.Meta), URI: uri, InputResponses: req.Params.InputResponses, RequestState: req.Params.RequestState})
			if err != nil {
				return nil, err
			}
			if len(res.Contents) > maxContents {
				return nil, fmt.Errorf("it has more than %d contents", maxContents)
			}
			if res.InputRequests != nil {
				asks, v := u.wants(res.InputRequests, res.RequestState, can)
				if v != nil {
					return nil, v
				}
				res = &sdk.ReadResourceResult{InputRequests: asks, RequestState: res.RequestState}
				return res, nil
			}
			res = &sdk.ReadResourceResult{Contents: present(res.Contents)}
			return res, nil
		})
		if err != nil {
			return nil, err
		}
		return res, nil
	}
}

// present is list without what a server has written null for.
func present[T any](list []*T) []*T {
	return slices.DeleteFunc(list, func(one *T) bool { return one == nil })
}

// complete passes a completion on, of what is offered.
func (g *Gateway) complete(ctx context.Context, req *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
	p := *req.Params
	var of *upstream
	if p.Ref != nil && p.Ref.Type == "ref/prompt" {
		if u, theirs := g.promptOf(p.Ref.Name); u != nil {
			of, p.Ref = u, &sdk.CompleteReference{Type: p.Ref.Type, Name: theirs}
		}
	} else if p.Ref != nil {
		if of = g.resourceOf(p.Ref.URI); of != nil && of.readable(p.Ref.URI) != "" {
			of = nil
		}
	}
	if of == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is nothing of this name to complete"}
	}
	p.Meta = nil
	var res *sdk.CompleteResult
	err := g.fetch(ctx, of, other{"complete", line(p.Ref.Name+p.Ref.URI, maxURI), p, round{}, req.Session, nil}, func(ctx context.Context, cs *sdk.ClientSession) (_ any, err error) {
		res, err = cs.Complete(ctx, &p)
		return res, err
	})
	if err != nil {
		return nil, err
	}
	out := &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{}, Total: res.Completion.Total, HasMore: res.Completion.HasMore}}
	for _, s := range res.Completion.Values[:min(len(res.Completion.Values), 100)] {
		out.Completion.Values = append(out.Completion.Values, line(s, 1024))
	}
	return out, nil
}

// updated passes on that a resource has changed, no more often than it is read.
func (u *upstream) updated(ctx context.Context, req *sdk.ResourceUpdatedNotificationRequest) {
	if req.Params != nil && u.readable(req.Params.URI) == "" && u.news.Allow() {
		_ = u.g.face.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: req.Params.URI})
	}
}

// promptOf finds whose prompt it is, and its server's name for it.
func (g *Gateway) promptOf(name string) (*upstream, string) {
	for _, u := range g.upstreams {
		u.mu.Lock()
		theirs := u.prompts[name]
		u.mu.Unlock()
		if theirs != "" {
			return u, theirs
		}
	}
	return nil, ""
}

// resourceOf finds whose resource a URI, or a template's text, is: of the first
// server that may be asked.
func (g *Gateway) resourceOf(uri string) *upstream {
	for _, u := range g.upstreams {
		if len(u.o.Server.Resources) > 0 && matches(u.o.Server.Resources, uri) {
			return u
		}
	}
	return nil
}

// publishOthers shows what all servers have beside tools. again says that one of them
// said that it changed.
func (g *Gateway) publishOthers() {
	prompts, resources, templates := map[string]string{}, map[string]string{}, map[string]string{}
	show := func(u *upstream, now, was map[string]string, key string, def any, add func()) {
		if _, taken := now[key]; taken {
			g.o.Notice(fmt.Sprintf("server %s: %s is not offered: another server has one of that name", u.o.Name, line(key, 128)))
			return
		}
		if now[key] = u.offers(def); was[key] == now[key] {
			return
		}
		defer func() {
			if recover() != nil { // the library panics over what it cannot take
				delete(now, key)
			}
		}()
		add()
	}
	for _, u := range g.upstreams {
		u.mu.Lock()
		has, theirs := u.has, u.prompts
		u.mu.Unlock()
		for _, p := range has.prompts {
			show(u, prompts, g.others[0], p.Name, p, func() { g.face.AddPrompt(p, g.prompt(u, theirs[p.Name])) })
		}
		for _, r := range has.resources {
			show(u, resources, g.others[1], r.URI, r, func() { g.face.AddResource(r, g.resource(u)) })
		}
		for _, r := range has.templates {
			show(u, templates, g.others[2], r.URITemplate, r, func() { g.face.AddResourceTemplate(r, g.resource(u)) })
		}
	}
	for i, remove := range []func(...string){g.face.RemovePrompts, g.face.RemoveResources, g.face.RemoveResourceTemplates} {
		now := []map[string]string{prompts, resources, templates}[i]
		for key := range g.others[i] {
			if _, ok := now[key]; !ok {
				remove(key)
			}
		}
		g.others[i] = now
	}
}
