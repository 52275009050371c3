// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/tool"
)

// A declared request is made from a sandbox of its own: by a program of ours, which
// reads what was asked and whatever comes back, through a router that lets it reach
// the one host that the declaration names, as far as the policy does. This process
// opens no connection, and reads of the answer what the program tells.

// maxTold is how much of the program's own words is read, in bytes.
const maxTold = 2*tool.MaxResponse + 64<<10

// declaredHTTP carries out a request that the policy declares.
func (t *run) declaredHTTP(ctx context.Context) (*Answer, error) {
	known, _ := t.session.Policy().Tools().Lookup(t.use.Name)
	req, err := known.HTTP.Request(t.args)
	if err != nil {
		return nil, t.refuse(ctx, err)
	}
	spec := known.HTTP.Spec()
	asked := &wire.FetchRequest{Method: req.Method, URL: req.URL, Body: req.Body, Max: spec.Response, Timeout: spec.Timeout.Seconds(), Redirects: spec.Redirects}
	for _, h := range req.Headers {
		one := wire.FetchHeader{Name: h.Name}
		for _, p := range h.Parts {
			one.Parts = append(one.Parts, wire.FetchPart{Text: p.Text, Variable: p.Secret})
		}
		asked.Headers = append(asked.Headers, one)
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	c := &session.Call{Fetches: true}
	c.Kind, c.Network, c.Cwd = policy.CallHTTP, []string{known.HTTP.Endpoint()}, "/"
	c.RecordArgv = []string{req.Method, req.URL}
	if shown, ok := t.session.Policy().ToolRecord(t.use).(map[string]any); ok {
		if r, err := known.HTTP.Request(shown); err == nil {
			c.RecordArgv[1] = r.URL
		} else { // what is redacted no longer fits
			c.RecordArgv[1] = spec.URL
		}
	}
	c.Frontend, c.Actor, c.Operator, c.Tool, c.Account = t.call.Frontend, t.actor, t.call.Operator, t.use, t.account
	t.asked(c)
	out, errs := &told{maximum: maxTold}, &told{maximum: 4 << 10}
	io := session.IO{Stdin: bytes.NewReader(text), Stdout: out, Stderr: errs}
	var res *sandbox.Result
	if t.boxes != nil {
		res, err = t.boxes.Run(ctx, c, io)
	} else {
		res, err = t.session.Do(ctx, c, io)
	}
	switch {
	case err != nil:
		return nil, err
	case res.Status == sandbox.StatusDenied:
		return nil, session.Denied("tool "+t.use.Name, res)
	}
	return t.fetched(res, out, spec)
}

// told keeps the beginning of what the program says.
type told struct {
	maximum int
	buf     bytes.Buffer
}

func (t *told) Write(p []byte) (int, error) {
	t.buf.Write(p[:min(len(p), t.maximum-t.buf.Len())])
	return len(p), nil
}

// fetched is what the program told. It is looked at as what code in a sandbox says.
func (t *run) fetched(res *sandbox.Result, out *told, spec tool.HTTPSpec) (*Answer, error) {
	failed := func(problem, hint string) error {
		return &sandbox.Error{Op: "tool " + t.use.Name, Kind: sandbox.ErrUnavailable, Problem: problem, Hint: hint}
	}
	if res.Status != sandbox.StatusSuccess {
		problem := "the request was not made"
		if res.Reason != "" {
			problem += ": " + res.Reason
		}
		return nil, failed(problem, res.Hint)
	}
	var a wire.FetchAnswer
	if err := json.Unmarshal(out.buf.Bytes(), &a); err != nil || a.Problem == "" && (a.Status < 100 || a.Status > 999) {
		return nil, failed("what came back cannot be read", "raise limits.output where the policy lowers it")
	}
	if a.Problem != "" {
		if n := res.Network; n != nil && n.Denied > 0 {
			return nil, failed("its network let it go no further: "+sandbox.Clip(a.Problem, 500), "caisson audit show has what was refused, and by which rule")
		}
		return nil, failed(sandbox.Clip(a.Problem, 500), "")
	}
	all := a.Body[:min(int64(len(a.Body)), spec.Response)]
	body := all
	if a.Cut {
		body = session.WholeRunes(all)
	}
	o := map[string]any{"status": a.Status, "body": string(body), "encoding": "text"}
	if !utf8.Valid(body) {
		o["body"], o["encoding"] = base64.StdEncoding.EncodeToString(all), "base64"
	}
	if a.Cut {
		o["truncated"] = true
	}
	if len(a.Headers) > 0 && len(a.Headers) <= 32 {
		headers := map[string]any{}
		for name, v := range a.Headers {
			headers[sandbox.Clip(name, 64)] = sandbox.Clip(v, 1<<10)
		}
		o["headers"] = headers
	}
	return &Answer{Output: o, Failed: a.Status >= 400}, nil
}
