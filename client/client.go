// SPDX-License-Identifier: Apache-2.0

// Package client speaks with a caisson daemon (caisson serve), here or on another
// machine: persistent sandboxes, what runs in them, and their files. It builds
// wherever Go does.
//
//	c, err := client.New(client.Options{URL: "http://127.0.0.1:7420", Key: os.Getenv("CAISSON_API_KEY")})
//	box, err := c.Create(ctx, client.Create{Timeout: client.In(10 * time.Minute)})
//	defer c.Kill(ctx, box.ID)
//	res, err := c.Exec(ctx, box.ID, client.Exec{Command: []string{"python3", "-c", "print(2**100)"}})
//
// Errors of the server are [*Error], whose kind errors.Is finds among those of
// package sandbox: errors.Is(err, sandbox.ErrNotFound). What comes from a sandbox
// (output, names and contents of files) is of its code's making.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Options say which daemon is meant, and who asks.
type Options struct {
	// URL is where it serves: "https://caisson.example.com". Empty is
	// DefaultURL. Plain http is for this machine alone, unless Plain says that
	// something else keeps the key from being read on the way.
	URL   string
	Plain bool
	// Key is one that caisson keys create made. Required. With the credential of an
	// approver in its place, which opens nothing else, a client has Questions,
	// Question, Approve and Deny.
	Key string
	// Transport carries requests; nil is one of the client's own. A clone of it is
	// used for WebSockets.
	Transport *http.Transport
}

// DefaultURL is where caisson serve serves by default.
const DefaultURL = "http://127.0.0.1:7420"

// Client speaks with one daemon. It may be used from many goroutines.
type Client struct {
	base   *url.URL
	key    string
	http   *http.Client
	socket *http.Client // HTTP/1.1 alone
}

// New makes a client. It asks nothing of the daemon yet.
func New(o Options) (*Client, error) {
	invalid := func(problem, hint string) error {
		return &sandbox.Error{Op: "client", Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
	}
	if o.URL == "" {
		o.URL = DefaultURL
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, invalid("the daemon's address is not one", "write it like "+DefaultURL+" or https://caisson.example.com")
	}
	if o.Key == "" || strings.ContainsFunc(o.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, invalid("there is no key, or one that cannot be one", "caisson keys create makes one")
	}
	if u.Scheme == "http" && !o.Plain && !local(u.Hostname()) {
		return nil, &sandbox.Error{Op: "client", Kind: sandbox.ErrDenied, Rule: "built-in: keys travel encrypted",
			Problem: "without TLS the key could be read on the way to " + u.Host, Hint: "use https://"}
	}
	t := o.Transport
	if t == nil {
		t = http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 16
	}
	one := t.Clone()
	one.Protocols = new(http.Protocols)
	one.Protocols.SetHTTP1(true)
	if one.TLSClientConfig != nil {
		one.TLSClientConfig.NextProtos = nil
	}
	return &Client{base: u, key: o.Key, http: keeping(t), socket: keeping(one)}, nil
}

// keeping follows no redirect: the key is for the daemon alone.
func keeping(t *http.Transport) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// local says whether a host is this machine.
func local(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() || host == "localhost"
}

// Close closes connections that are kept for later.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.socket.CloseIdleConnections()
}

// Error is what the daemon answered with. It wraps a *sandbox.Error, whose kind,
// rule and hint are those of the answer.
type Error struct {
	Status int    // HTTP status
	Faults []Flaw // what is wrong with which part of the request
	// Approval is there when people are asked about the call; see Exec.Resumable.
	Approval *Approval
	// Result is there when a tool call of a model's was refused: what its API takes
	// back.
	Result json.RawMessage
	err    *sandbox.Error
}

// Approval is a call that waits for a yes: what approvers call it, where they may
// answer in a browser, and the caller's token.
type Approval struct{ ID, Token, URL string }

// Flaw is what is wrong with a part of a request.
type Flaw struct{ At, Problem string }

// Error is a sentence.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap gives the *sandbox.Error.
func (e *Error) Unwrap() error { return e.err }

var kinds = map[string]error{
	"invalid": sandbox.ErrInvalid, "not_found": sandbox.ErrNotFound, "unsupported": sandbox.ErrUnsupported, "denied": sandbox.ErrDenied,
	"conflict": sandbox.ErrConflict, "unavailable": sandbox.ErrUnavailable, "exhausted": sandbox.ErrExhausted,
}

// problem is an error of the daemon's as it is written.
type problem struct {
	Status                          int
	Title, Kind, Detail, Hint, Rule string
	Faults                          []Flaw
	Approval                        *Approval
	Result                          json.RawMessage
}

func (p *problem) err() *Error {
	e := &sandbox.Error{Kind: kinds[p.Kind], Problem: p.Detail, Hint: p.Hint, Rule: p.Rule}
	switch {
	case e.Kind != nil:
	case p.Status == http.StatusUnauthorized:
		e.Kind = sandbox.ErrDenied
	case p.Status >= 500:
		e.Kind = sandbox.ErrUnavailable
	default:
		e.Kind = sandbox.ErrInvalid
	}
	if e.Problem == "" {
		e.Problem = "the daemon answered with status " + http.StatusText(p.Status)
	}
	return &Error{Status: p.Status, Faults: p.Faults, Approval: p.Approval, Result: p.Result, err: e}
}

// maxAnswer bounds an answer that is no file, in bytes.
const maxAnswer = 64 << 20

// request makes a request below /v1.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + "/v1" + path
	u.RawPath, u.RawQuery = "", query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, &sandbox.Error{Op: "client", Kind: sandbox.ErrInvalid, Problem: "the request cannot be written", Cause: err}
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	return req, nil
}

// send sends a request and returns an answer that is no error.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(req.Context(), err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, answered(resp)
}

// answered is an answer that is an error.
func answered(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var p problem
	if json.Unmarshal(b, &p) != nil || p.Detail == "" {
		p = problem{Detail: "what answers there is no caisson, or something between has answered: status " + resp.Status, Hint: "look at the daemon's address"}
	}
	p.Status = resp.StatusCode
	return p.err()
}

// unreachable is why there is no answer.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e := &sandbox.Error{Op: "caisson at " + c.base.Host, Kind: sandbox.ErrUnavailable, Problem: "it cannot be reached", Hint: "start it (caisson serve), or name another one", Cause: err}
	var op *net.OpError
	if errors.As(err, &op) && op.Op != "dial" {
		e.Problem, e.Hint = "the connection broke", ""
	}
	return e
}

// call sends in as JSON, if it is not nil, and reads the answer into out, if that
// is not nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return &sandbox.Error{Op: "client", Kind: sandbox.ErrInvalid, Problem: "the request cannot be written", Cause: err}
		}
		body = bytes.NewReader(b)
	}
	req, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	return decode(resp.Body, out)
}

// decode reads an answer.
func decode(body io.Reader, out any) error {
	b, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = errors.New("it is too long")
	}
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		return &sandbox.Error{Op: "client", Kind: sandbox.ErrUnavailable, Problem: "the daemon's answer cannot be read", Hint: "is it of another version?", Cause: err}
	}
	return nil
}

// Seconds is a time as the API has it.
type Seconds float64

// In is d in seconds.
func In(d time.Duration) Seconds { return Seconds(d.Seconds()) }

// Duration is s as a time.Duration.
func (s Seconds) Duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }
