// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// passage is what is known of one judged request until its answer has passed.
type passage struct {
	hidden Redaction // what the answer must not show
	body   *bounded  // nil without a bound
	used   used
	router *Router
}

type passageKey struct{}

func passageOf(req *http.Request) *passage {
	p, _ := req.Context().Value(passageKey{}).(*passage)
	return p
}

// Headers by which some servers take another method or path than the request's.
var (
	otherMethod = []string{"x-http-method-override", "x-http-method", "x-method-override", "x-original-method", "x-forwarded-method"}
	otherPath   = []string{"x-original-url", "x-rewrite-url", "x-original-uri", "x-override-url", "x-forwarded-uri", "x-forwarded-path", "x-forwarded-prefix"}
)

// another reports whether a header may be taken for another method or path, where the
// rules are about those.
func another(key string, methods, paths bool) (plain string, yes bool) {
	plain = strings.ReplaceAll(strings.ToLower(key), "_", "-")
	return plain, methods && slices.Contains(otherMethod, plain) || paths && slices.Contains(otherPath, plain)
}

// judge asks the rules about a request whose host is known to be right, puts the
// secrets in that go there, and bounds its body.
func (w *webConn) judge(req *http.Request, asked *rule.Request) (*http.Request, rule.Decision) {
	c := w.c
	no := func(format string, args ...any) (*http.Request, rule.Decision) {
		return req, rule.Decision{Rule: c.rule.Rule, From: c.rule.From, Reason: fmt.Sprintf(format, args...)}
	}
	if len(req.Header["Host"]) > 0 {
		return no("a request that names its host in two ways")
	}
	list, host, port := c.r.rules.Load(), c.t.name, c.t.addr.Port()
	d, bounds := list.Request(host, port, *asked)
	if !d.Allow {
		return req, d
	}
	ends := c.r.ends.Load()
	if ends != nil {
		ends.Headers.Set(host, port, ends.Secrets, req.Header)
	}
	methods, paths := list.Conditional(host, port)
	for key := range req.Header {
		if plain, yes := another(key, methods, paths); yes {
			return no("a header (%s) that may be taken for another method or path", plain)
		}
	}
	p := &passage{router: c.r}
	// Its body is wrapped in a copy: the server knows by the body of its own whether the
	// sandbox still waits to be asked for it.
	req = req.WithContext(context.WithValue(req.Context(), passageKey{}, p))
	if after := req.Trailer; req.Body != nil && (methods || paths) {
		// What comes after the body is known when that has been read; some servers take it
		// for headers.
		req.Body = &ending{req.Body, func() {
			maps.DeleteFunc(after, func(key string, _ []string) bool { _, yes := another(key, methods, paths); return yes })
		}}
	}
	if ends != nil {
		var err error
		if p.used, err = c.r.freshen(req.Context(), ends.Secrets, host, port, w.tls != nil, req.Header); err != nil {
			return no("%v", err)
		}
		p.hidden, err = ends.Secrets.Fill(host, port, w.tls != nil, req.Header)
		var foreign *ErrForeign
		if errors.As(err, &foreign) {
			return no("%v; requests to it have the sandbox's own, whose placeholder is in $%s, or none", err, foreign.Secret)
		}
	}
	if ends != nil && ends.Secrets.Guards(host) {
		req.Trailer = nil // a header that comes after the body, unseen
	}
	if p.hidden != nil {
		req.Header.Set("Accept-Encoding", "identity") // what is compressed cannot be looked through
	}
	if maximum := bounds.Body; maximum > 0 && req.Body != nil {
		p.body = &bounded{ReadCloser: req.Body, after: req.Trailer, left: maximum, why: rule.Decision{Rule: d.Rule, From: d.From, Reason: rule.TooLong(maximum), Open: true}}
		req.Body = p.body
	}
	if spent := c.r.requests.take(bounds.Counts); spent != nil {
		return req, rule.Decision{Rule: spent.Rule, From: spent.From, Reason: rule.Spent(spent.Max), Spent: true}
	}
	return req, rule.Decision{Allow: true}
}

// wirePath is the path as it is written for the server.
func wirePath(req *http.Request) string {
	if p := req.URL.EscapedPath(); p != "" {
		return p
	}
	return "/"
}

// bounded ends a body that is longer than it may be, with the trailers that come after
// it. What has passed until then is the beginning of a request that never ends.
type bounded struct {
	io.ReadCloser
	after http.Header // filled in when the body is read to its end
	left  int64
	why   rule.Decision
	over  atomic.Bool
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.over.Load() {
		return 0, &refusal{Decision: b.why}
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if err == io.EOF {
		b.left -= size(b.after)
		b.after = nil
	}
	if b.left < 0 {
		b.over.Store(true)
		return 0, &refusal{Decision: b.why}
	}
	return n, err
}

// size is how long headers are as HTTP/1.1 writes them, in bytes.
func size(h http.Header) (n int64) {
	for key, values := range h {
		for _, v := range values {
			n += int64(len(key) + len(": \r\n") + len(v))
		}
	}
	return n
}

// careful is a way to a host on which what comes before an answer shows no
// secret that its request got.
type careful struct{ http.RoundTripper }

func (c careful) RoundTrip(req *http.Request) (*http.Response, error) {
	if p := passageOf(req); p != nil && p.hidden != nil {
		// It is asked before the proxy, which passes the headers on.
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { p.hidden.Header(http.Header(h)); return nil },
		}))
	}
	return c.RoundTripper.RoundTrip(req)
}

// ending is a body at whose end something is done.
type ending struct {
	io.ReadCloser
	do func()
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.ReadCloser.Read(b)
	if err == io.EOF {
		e.do()
	}
	return n, err
}

// hideSecrets covers, in an answer, the secrets that its request got.
func hideSecrets(res *http.Response) error {
	p := passageOf(res.Request)
	if p == nil || p.hidden == nil || p.router.renewed(res, p.used) {
		return nil
	}
	p.hidden.Header(res.Header)
	p.hidden.Header(res.Trailer)                         // their names are told before the body
	if res.StatusCode != http.StatusSwitchingProtocols { // a stream both ways is no answer
		// What comes after the body is known when it has been read.
		res.Body = p.hidden.Body(&ending{res.Body, func() { p.hidden.Header(res.Trailer) }}, isLive(res))
	}
	return nil
}

// isLive says that a client may wait for the parts of an answer as they come. Where its
// length is known it is taken for one thing: a host that is far away sends the first few
// packets and then waits, and a secret that lies on that edge is covered.
func isLive(res *http.Response) bool {
	return res.ContentLength < 0 || strings.HasPrefix(strings.ToLower(strings.TrimSpace(res.Header.Get("Content-Type"))), "text/event-stream")
}

// Refusal is the body of a 403, of a 426 to who wants a WebSocket, of a 429 when a budget
// is used up, or of a 502 when the host did not answer: the same for people and agents.
type Refusal struct {
	Error  string `json:"error"` // "egress_denied", "egress_failed"
	Host   string `json:"host"`
	Port   int    `json:"port"`
	Method string `json:"method,omitempty"` // of a request that was judged
	Path   string `json:"path,omitempty"`
	Reason string `json:"reason"`
	Rule   string `json:"rule,omitempty"` // what refused it
	From   string `json:"from,omitempty"` // where the rule stands
	Hint   string `json:"hint,omitempty"` // the entry that would allow it
}

// maxShown bounds the path in records and answers, in bytes.
const maxShown = 256

func refuseRequest(rw http.ResponseWriter, req *http.Request, c *conn, d rule.Decision, other string) {
	port := int(c.t.addr.Port())
	rec := wire.Record{Protocol: wire.TCP, Host: c.t.name.String(), Port: port, Rule: d.Rule, From: d.From, Reason: d.Reason}
	body := Refusal{Error: "egress_denied", Host: other, Port: port, Reason: d.Reason, Rule: d.Rule, From: d.From}
	if rec.Host == "" {
		rec.Address = c.t.addr.Addr().String()
	}
	if c.judged {
		rec.Open, rec.Method, rec.Path = d.Open, sandbox.Clip(req.Method, 32), sandbox.Clip(wirePath(req), maxShown)
		body.Method, body.Path = rec.Method, rec.Path
		if d.Open {
			body.Hint = "network: {allow: [" + rec.Entry() + "]}"
		}
	}
	c.r.record.refuse(rec)
	switch {
	case d.Spent: // clients of models ask again at 429, unless they are told not to
		rw.Header().Set("X-Should-Retry", "false")
		answer(rw, http.StatusTooManyRequests, body)
	case c.judged && req.Header.Get("Upgrade") != "":
		// At this Codex does at once without a WebSocket; at a 403 it asks on for eight seconds.
		rw.Header().Set("Upgrade", "HTTP/1.1")
		answer(rw, http.StatusUpgradeRequired, body)
	default:
		answer(rw, http.StatusForbidden, body)
	}
}

func answer(rw http.ResponseWriter, status int, r Refusal) {
	body, err := json.Marshal(r)
	if err != nil {
		body = []byte(`{"error":"` + r.Error + `"}`)
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
	rw.WriteHeader(status)
	_, _ = rw.Write(body)
}
