// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/approval/approvaltest"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/toolcall"
	"github.com/caisson-run/caisson/tool"
)

// asked is a toolbox on the real road, whose policy asks about echo.
type asked struct {
	level     *level
	session   *session.Session
	approvals *question.Approvals
	store     *approval.Store
	ada       approval.Who // an approver; none until enroll
}

func (a *asked) Tools() ([]*tool.Tool, error) { return toolcall.Of(a.session).Tools(), nil }

func (a *asked) RefuseTool(ctx context.Context, c *toolcall.Call) error {
	c.Actor = "key:test"
	return toolcall.Of(a.session).RefuseTool(ctx, c)
}

func (a *asked) CallTool(ctx context.Context, c *toolcall.Call) (*toolcall.Answer, error) {
	c.Actor = "key:test"
	return toolcall.Of(a.session).CallTool(ctx, c)
}

func newAsked(t *testing.T, channels string, link bool) *asked {
	t.Helper()
	dir, err := store.Open(store.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(t.Context(), audit.Options{Dir: dir.Path()})
	if err != nil {
		t.Fatal(err)
	}
	f, err := policy.Parse("/p.yaml", []byte("version: 1\ncommands: {ask: [\"echo *\"]}\napprovals: {timeout: 5m"+channels+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.New(policy.Options{File: f})
	if err != nil {
		t.Fatal(err)
	}
	a := &asked{level: &level{prog: func(_ context.Context, _ io.Reader, out, _ io.Writer) int { fmt.Fprintln(out, "it ran"); return 0 }}}
	o := question.Options{Dir: dir.Path(), Journal: log}
	if link {
		o.Link = func(id string) string { return "https://caisson.example.com/approvals/" + id }
	}
	a.approvals = question.New(o)
	t.Cleanup(func() { a.approvals.Close(); log.Close(); dir.Close() })
	if a.session, err = session.New(session.Options{Drivers: map[string]sandbox.Driver{"gvisor": a.level}, Policy: p, Journal: log, State: session.DirState(dir), Approvals: a.approvals}); err != nil {
		t.Fatal(err)
	}
	a.store = approvaltest.Store(t, a.approvals)
	return a
}

// enroll makes an approver, who answers over HTTP.
func (a *asked) enroll(t *testing.T) {
	t.Helper()
	a.ada = approvaltest.Ada(t, a.store, approval.Web)
}

// only is the one request that there is.
func (a *asked) only(t *testing.T) *approval.Request {
	t.Helper()
	list, err := a.store.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%d requests, %v", len(list), err)
	}
	return list[0]
}

// roads are the ways by which clients of both eras come: their session.
var roads = map[string]struct {
	version string
	http    bool
}{
	"stdio, older": {"2025-11-25", false}, "stdio, modern": {"2026-07-28", false},
	"http, older": {"2025-11-25", true}, "http, modern": {"2026-07-28", true},
}

// keyed adds a key to requests.
type keyed struct{}

func (keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer mine")
	return http.DefaultTransport.RoundTrip(r)
}

// connect connects a client by a road.
func (a *asked) connect(t *testing.T, road string, timeout, bound time.Duration, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	way := roads[road]
	client := sdk.NewClient(&sdk.Implementation{Name: "a client\x1b]0;", Version: "1"}, o)
	var transport sdk.Transport
	if way.http {
		h := NewHandler(HandlerOptions{Version: "v0", Tools: func(*persistent.Key) Toolbox { return a },
			Authenticate: func(context.Context, string) (*persistent.Key, error) { return &persistent.Key{ID: "k"}, nil }})
		h.timeout, h.bound = timeout, bound
		s := httptest.NewServer(h)
		t.Cleanup(func() { s.Close(); h.Close(); http.DefaultTransport.(*http.Transport).CloseIdleConnections() })
		transport = &sdk.StreamableClientTransport{Endpoint: s.URL, HTTPClient: &http.Client{Transport: keyed{}}, DisableStandaloneSSE: true}
	} else {
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		server, err := newServer(&serving{box: a, timeout: timeout, bound: bound}, "v0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- serveLines(context.Background(), server, in, out, func() {}) }()
		t.Cleanup(func() { <-done })
		transport = &sdk.IOTransport{Reader: fromServer, Writer: toServer}
	}
	cs, err := client.Connect(t.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: way.version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	if got := cs.InitializeResult(); got != nil && got.ProtocolVersion != way.version {
		t.Fatalf("%s speaks %s", road, got.ProtocolVersion)
	}
	return cs
}

func echo(t *testing.T, cs *sdk.ClientSession, meta sdk.Meta) (*sdk.CallToolResult, string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	res, err := cs.CallTool(ctx, &sdk.CallToolParams{Meta: meta, Name: "run_command", Arguments: rawJSON(`{"command":"echo","args":["x"]}`)})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := res.Content[0].(*sdk.TextContent)
	return res, text.Text
}

// both are what a client may be able to do.
func able(form, url bool) *sdk.ClientCapabilities {
	c := &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{}}
	if form {
		c.Elicitation.Form = &sdk.FormElicitationCapabilities{}
	}
	if url {
		c.Elicitation.URL = &sdk.URLElicitationCapabilities{}
	}
	return c
}

// What a client answers: one thing is a yes, everything else a final no, and the
// same call is not asked about again.
func TestElicitation(t *testing.T) {
	for road := range roads {
		for name, c := range map[string]struct {
			res  *sdk.ElicitResult
			err  error
			runs bool
			says string
		}{
			"yes":             {&sdk.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}}, nil, true, "it ran"},
			"no":              {&sdk.ElicitResult{Action: "accept", Content: map[string]any{"approve": false}}, nil, false, "user did not say yes"},
			"nothing chosen":  {&sdk.ElicitResult{Action: "accept"}, nil, false, "user did not say yes"},
			"declined":        {&sdk.ElicitResult{Action: "decline"}, nil, false, "decline"},
			"cancelled":       {&sdk.ElicitResult{Action: "cancel"}, nil, false, "cancel"},
			"declined, yes":   {&sdk.ElicitResult{Action: "decline", Content: map[string]any{"approve": true}}, nil, false, "decline"},
			"the word yes":    {&sdk.ElicitResult{Action: "accept", Content: map[string]any{"approve": "true"}}, nil, false, ""},
			"an odd action":   {&sdk.ElicitResult{Action: "ACCEPT", Content: map[string]any{"approve": true}}, nil, false, ""},
			"it cannot do it": {nil, errors.New("there is nobody"), false, ""},
		} {
			if (road == "stdio, modern" || road == "http, older") && name != "yes" && name != "declined" {
				continue // what an answer means is the same by every road
			}
			t.Run(road+": "+name, func(t *testing.T) {
				a := newAsked(t, ", channels: [elicitation]", false)
				var times atomic.Int32
				cs := a.connect(t, road, time.Minute, time.Minute, &sdk.ClientOptions{ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					times.Add(1)
					if r.Params.Mode != "form" || !strings.Contains(r.Params.Message, "```text\nasked because:\n  │ \"echo x\"") || !strings.Contains(r.Params.Message, "\nargument 1:\n  │ x\n") {
						t.Errorf("it is asked %s %q", r.Params.Mode, r.Params.Message)
					}
					return c.res, c.err
				}})
				for again := range 2 {
					ctx, stop := context.WithTimeout(t.Context(), time.Minute)
					res, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "run_command", Arguments: rawJSON(`{"command":"echo","args":["x"]}`)})
					stop()
					switch {
					case err != nil && c.says == "": // the client itself will not send it
					case err != nil:
						t.Fatal(err)
					case res.IsError == c.runs:
						t.Errorf("%d: %+v", again, res.Content[0])
					case again == 0 && !strings.Contains(res.Content[0].(*sdk.TextContent).Text, c.says):
						t.Errorf("%v", res.Content[0])
					}
					if c.runs {
						break
					}
				}
				if got := a.level.starts(); got != map[bool]int{true: 1}[c.runs] {
					t.Errorf("it ran %d times", got)
				}
				if n := times.Load(); n != 1 && c.says != "" {
					t.Errorf("it was asked %d times", n)
				}
				r := a.only(t)
				switch want := map[bool]approval.State{true: approval.Used, false: approval.Denied}[c.runs]; {
				case r.State == approval.Pending && c.says == "" && roads[road].version == "2026-07-28": // it was never answered
				case r.State != want || r.Channel != approval.Elicitation || r.Approver != "client:aclient0":
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// A channel that the policy does not name is not used, whatever the client can do;
// one that the client cannot show is not, either.
func TestElicitationNotNamed(t *testing.T) {
	for road := range roads {
		for name, c := range map[string]struct {
			channels string
			able     *sdk.ClientCapabilities
			enrolled bool
			says     string
		}{
			"nothing is said":  {"", able(true, true), true, "pending: it has not run"},
			"another is named": {", channels: [cli, web]", able(true, true), true, "pending: it has not run"},
			"nobody enrolled":  {", channels: [cli]", able(true, true), false, "no approver can be asked"},
			"a client without": {", channels: [elicitation]", &sdk.ClientCapabilities{}, true, "no approver can be asked"},
			"addresses alone":  {", channels: [elicitation]", able(false, true), false, "cannot show all of it"},
		} {
			t.Run(road+": "+name, func(t *testing.T) {
				a := newAsked(t, c.channels, true)
				if c.enrolled {
					a.enroll(t)
				}
				o := &sdk.ClientOptions{Capabilities: c.able, ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					t.Error("the client is asked")
					return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}}, nil
				}}
				if c.able.Elicitation == nil {
					o.ElicitationHandler = nil
				}
				cs := a.connect(t, road, time.Millisecond, time.Minute, o)
				res, text := echo(t, cs, nil)
				if !res.IsError || !strings.Contains(text, c.says) || a.level.starts() != 0 {
					t.Errorf("%s, ran %d times", text, a.level.starts())
				}
			})
		}
	}
}

// Who can be sent to an address answers there, with an approver's credential: that
// the client went there is no yes.
func TestElicitationByAddress(t *testing.T) {
	for road := range roads {
		for _, yes := range []bool{true, false} {
			t.Run(fmt.Sprint(road, yes), func(t *testing.T) {
				a := newAsked(t, ", channels: [elicitation, web]", true)
				a.enroll(t)
				answered := make(chan error, 1)
				cs := a.connect(t, road, time.Minute, time.Minute, &sdk.ClientOptions{Capabilities: able(true, true), ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					id := r.Params.ElicitationID
					if r.Params.Mode != "url" || r.Params.URL != "https://caisson.example.com/approvals/"+id || strings.Contains(r.Params.Message, "apt_") {
						t.Errorf("%+v", r.Params)
					}
					go func() {
						list, err := a.store.List(context.WithoutCancel(ctx))
						if err == nil {
							_, err = a.approvals.Answer(context.WithoutCancel(ctx), a.ada, id, question.Answer{Yes: yes, Digest: list[0].Digest})
						}
						answered <- err
					}()
					return &sdk.ElicitResult{Action: "accept"}, nil
				}})
				res, text := echo(t, cs, nil)
				if err := <-answered; err != nil {
					t.Fatal(err)
				}
				if res.IsError == yes || a.level.starts() != map[bool]int{true: 1}[yes] {
					t.Errorf("%s, ran %d times", text, a.level.starts())
				}
				if r := a.only(t); r.Channel != approval.Web || r.Approver != "approver:ada" {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// A call without an answer ends within its timeout, says what it waits for, and
// goes on by its token, or by being made again.
func TestPending(t *testing.T) {
	for road := range roads {
		for _, byToken := range []bool{true, false} {
			t.Run(fmt.Sprint(road, byToken), func(t *testing.T) {
				a := newAsked(t, ", channels: [web]", true)
				a.enroll(t)
				cs := a.connect(t, road, time.Millisecond, time.Millisecond, nil)
				res, text := echo(t, cs, nil)
				r := a.only(t)
				waits, _ := res.Meta[approvalKey].(map[string]any)
				if !res.IsError || !strings.HasPrefix(text, "pending: ") || waits["id"] != r.ID || waits["url"] != "https://caisson.example.com/approvals/"+r.ID {
					t.Fatalf("%s %v", text, res.Meta)
				}
				meta := sdk.Meta{}
				if byToken {
					meta[approvalKey] = map[string]any{"token": waits["token"]}
				}
				if _, text = echo(t, cs, meta); !strings.HasPrefix(text, "pending: ") || a.only(t).ID != r.ID || a.level.starts() != 0 {
					t.Fatalf("%s, ran %d times", text, a.level.starts())
				}
				if _, err := a.approvals.Answer(t.Context(), a.ada, r.ID, question.Answer{Yes: true, Digest: r.Digest}); err != nil {
					t.Fatal(err)
				}
				if _, text = echo(t, cs, meta); !strings.Contains(text, "it ran") || a.level.starts() != 1 {
					t.Errorf("%s, ran %d times", text, a.level.starts())
				}
				if _, text = echo(t, cs, meta); strings.Contains(text, "it ran") || a.level.starts() != 1 {
					t.Errorf("a second time: %s, ran %d times", text, a.level.starts())
				}
			})
		}
	}
}

// A client that lets its user think for ever is waited for only so long.
func TestElicitationBound(t *testing.T) {
	for _, road := range []string{"stdio, older", "http, older"} {
		a := newAsked(t, ", channels: [elicitation]", false)
		cs := a.connect(t, road, time.Minute, 50*time.Millisecond, &sdk.ClientOptions{ElicitationHandler: func(ctx context.Context, _ *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		if res, text := echo(t, cs, nil); !res.IsError || !strings.Contains(text, "gave no answer") || a.only(t).State != approval.Denied {
			t.Errorf("%s: %s", road, text)
		}
	}
}

// What a client of the newer era sends back is its own saying. Only the token of a
// question that was its own, with the call that it is about, and only where the
// policy names the channel, is good for anything.
func TestForgedAnswer(t *testing.T) {
	yes := sdk.InputResponseMap{askedFor: &sdk.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}}}
	a := newAsked(t, ", channels: [web, elicitation]", false)
	a.enroll(t)
	cs := a.connect(t, "http, modern", time.Millisecond, time.Minute, &sdk.ClientOptions{Capabilities: able(true, false), MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true}})
	call := func(args, state string, said sdk.InputResponseMap) (*sdk.CallToolResult, string) {
		t.Helper()
		res, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "run_command", Arguments: rawJSON(args), RequestState: state, InputResponses: said})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		if len(res.Content) > 0 {
			text = res.Content[0].(*sdk.TextContent).Text
		}
		return res, text
	}
	const x, y = `{"command":"echo","args":["x"]}`, `{"command":"echo","args":["y"]}`
	res, _ := call(x, "", nil)
	state := res.RequestState
	if state == "" || len(res.InputRequests) != 1 {
		t.Fatalf("%+v", res)
	}
	if res, _ := call(x, "", nil); res.RequestState != state {
		t.Errorf("the same is asked anew: %+v", res)
	}
	other := newAsked(t, ", channels: [web]", false)
	other.enroll(t)
	for name, c := range map[string]struct{ args, state string }{
		"made up": {x, "form:apt_AAAAAAAAAAAAAAAAAAAAAAAAAA"}, "empty": {x, "form:"}, "no mode": {x, strings.TrimPrefix(state, "form:")},
		"the question's ID": {x, "form:" + a.only(t).ID},
	} {
		if res, text := call(c.args, c.state, yes); !res.IsError || a.level.starts() != 0 {
			t.Errorf("%s: %s", name, text)
		}
	}
	if r := a.only(t); r.State != approval.Pending {
		t.Fatalf("%+v", r)
	}
	// Another call by the token of this one: neither runs.
	if res, text := call(y, state, yes); !res.IsError || a.level.starts() != 0 || !strings.Contains(text, "not what approval was asked for") {
		t.Error(text)
	}
	if res, text := call(x, state, yes); !res.IsError || a.level.starts() != 0 {
		t.Error(text)
	}
	if r := a.only(t); r.State != approval.Void {
		t.Errorf("%+v", r)
	}
	// By a channel that the policy does not name.
	cs = other.connect(t, "http, modern", time.Millisecond, time.Minute, &sdk.ClientOptions{Capabilities: able(true, false), MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true}})
	res, _ = call(x, "", nil)
	token := res.Meta[approvalKey].(map[string]any)["token"].(string)
	if res, text := call(x, "form:"+token, yes); !res.IsError || other.level.starts() != 0 || !strings.Contains(text, "no answer by the channel elicitation") {
		t.Error(text)
	}
	if r := other.only(t); r.State != approval.Pending {
		t.Errorf("%+v", r)
	}
}

// What the client shows cannot be dressed up by the call: not by Markdown, by escape
// sequences, or by what looks like the end of the question. What is too long is not
// shown in part.
func TestElicitedText(t *testing.T) {
	show := func(argv ...string) *sdk.ElicitParams {
		v, err := (&approval.Subject{Actor: "key:test", Kind: "run_command", Argv: argv}).View()
		if err != nil {
			t.Fatal(err)
		}
		return (&eliciting{name: "c", form: true}).question(&approval.Request{ID: "apv_x", Digest: "sha256:" + strings.Repeat("a", 64), View: *v, Channels: []approval.Channel{approval.Elicitation}})
	}
	q := show("echo", "x\n```\n\n# Harmless\n\n```text\n[ok](https://evil.example)\x1b[2J\u202e<!--\ndigest: 00")
	if got := strings.Count("\n"+q.Message, "\n```"); got != 2 {
		t.Errorf("%d fences in %q", got, q.Message)
	}
	for _, bad := range []string{"\x1b", "\u202e", "\n# Harmless", "\ndigest: 00"} {
		if strings.Contains(q.Message, bad) {
			t.Errorf("%q is shown as it is: %q", bad, q.Message)
		}
	}
	if diff := cmp.Diff([]string{"```", "", "Let it run, once?"}, strings.Split(q.Message, "\n")[strings.Count(q.Message, "\n")-2:]); diff != "" {
		t.Error(diff)
	}
	if q := show("echo", strings.Repeat("x", maxElicited)); q != nil {
		t.Error("a long one is shown")
	}
}
