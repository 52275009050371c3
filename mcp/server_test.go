// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/toolcall"
	"github.com/caisson-run/caisson/tool"
)

// box is a toolbox whose calls are a function of the test.
type box struct {
	call func(ctx context.Context, c *toolcall.Call) (*toolcall.Answer, error)
}

func (b box) Tools() ([]*tool.Tool, error) { return tool.Builtins(), nil }

func (b box) CallTool(ctx context.Context, c *toolcall.Call) (*toolcall.Answer, error) {
	return b.call(ctx, c)
}

func (box) RefuseTool(context.Context, *toolcall.Call) error { return nil }

// stdio connects a client to a server of b.
func (b box) stdio(t *testing.T, o *sdk.ClientOptions) (_ *sdk.ClientSession, hangUp func() error) {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Serve(context.Background(), b, "v0", in, out) }()
	client := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, o)
	cs, err := client.Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close(); <-done })
	return cs, toServer.Close
}

func ran(out map[string]any) *toolcall.Answer {
	return &toolcall.Answer{Output: out, Result: &sandbox.Result{}, Failed: out["status"] != "success"}
}

func TestServerAnswers(t *testing.T) {
	png := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\nrest"))
	answers := map[string]*toolcall.Answer{
		"plain":   ran(map[string]any{"status": "success", "exit_code": 0, "stdout": "out\n", "stderr": ""}),
		"failed":  ran(map[string]any{"status": "error", "exit_code": 3, "stdout": "out", "stderr": "bad\n", "truncated": map[string]int64{"stdout": 5}}),
		"picture": ran(map[string]any{"status": "success", "exit_code": 0, "stdout": png, "stdout_encoding": "base64", "stderr": ""}),
		"bytes":   ran(map[string]any{"status": "success", "exit_code": 0, "stdout": "/wA=", "stdout_encoding": "base64", "stderr": ""}),
	}
	cs, _ := box{func(_ context.Context, c *toolcall.Call) (*toolcall.Answer, error) {
		var args struct{ Command string }
		json.Unmarshal(c.Args, &args)
		switch {
		case c.Name == "read_file":
			return &toolcall.Answer{Output: map[string]any{"path": "/a.png", "content": png, "encoding": "base64", "size": 12}}, nil
		case c.Name == "kill_sandbox":
			return nil, &sandbox.Error{Op: "tool", Kind: sandbox.ErrDenied, Problem: "no\x1b[2J", Hint: "do not", Rule: "p.yaml:3"}
		}
		return answers[args.Command], nil
	}}.stdio(t, nil)
	show := func(name, args string) string {
		res, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: rawJSON(args)})
		if err != nil {
			t.Fatal(err)
		}
		var parts []string
		for _, c := range res.Content {
			switch c := c.(type) {
			case *sdk.TextContent:
				parts = append(parts, c.Text)
			case *sdk.ImageContent:
				parts = append(parts, fmt.Sprint(c.MIMEType, len(c.Data)))
			}
		}
		return fmt.Sprintf("%v %v %s", res.IsError, res.StructuredContent != nil, strings.Join(parts, "|"))
	}
	for _, c := range [][3]string{
		{"run_command", "plain", "false true out\n[success; exit code: 0]"},
		{"run_command", "failed", "true true out\n[stderr]\nbad\n[error; exit code: 3; cut: map[stdout:5]]"},
		{"run_command", "picture", "false true (a picture)\n[success; exit code: 0]|image/png12"},
		{"run_command", "bytes", "false true (3 bytes that are no text)\n[success; exit code: 0]"},
		{"read_file", "", "false true /a.png, 12 bytes|image/png12"},
		{"kill_sandbox", "", "true false denied: tool: no[2J\nrule: p.yaml:3\nhint: do not"},
	} {
		if diff := cmp.Diff(c[2], show(c[0], `{"command":"`+c[1]+`"}`)); diff != "" {
			t.Errorf("%s %s: %s", c[0], c[1], diff)
		}
	}
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Tools) != len(tool.Builtins()) {
		t.Errorf("%d tools", len(list.Tools))
	}
	for _, tl := range list.Tools {
		if tl.OutputSchema == nil || tl.Annotations == nil || tl.Description == "" {
			t.Errorf("%+v", tl)
		}
	}
}

// TestServerCancels: a call that its client gives up is ended, and one whose
// client leaves as well.
func TestServerCancels(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{}, 2)
	heard := make(chan *sdk.ProgressNotificationParams, 10)
	cs, hangUp := box{func(ctx context.Context, c *toolcall.Call) (*toolcall.Answer, error) {
		if c.Stdout != nil {
			fmt.Fprintf(c.Stdout, "one\ntwo\x1b\n")
		}
		begun <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	}}.stdio(t, &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { heard <- r.Params }})
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	p := &sdk.CallToolParams{Name: "run_command", Arguments: rawJSON(`{"command":"x"}`)}
	p.SetProgressToken("mine")
	calls.Go(func() { cs.CallTool(ctx, p) })
	<-begun
	if h := <-heard; h.ProgressToken != "mine" || h.Message != "two" || h.Progress <= 0 {
		t.Errorf("%+v", h)
	}
	cancel()
	<-ended
	calls.Wait()
	calls.Go(func() {
		cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "run_command", Arguments: rawJSON(`{"command":"x"}`)})
	})
	<-begun
	hangUp()
	<-ended
	calls.Wait()
}

// endpoint serves two keys over HTTP.
func endpoint(t *testing.T, b box) *httptest.Server {
	t.Helper()
	h := NewHandler(HandlerOptions{Version: "v0", Tools: func(*persistent.Key) Toolbox { return b },
		Authenticate: func(_ context.Context, token string) (*persistent.Key, error) {
			if token == "mine" || token == "other" {
				return &persistent.Key{ID: "k" + token}, nil
			}
			return nil, sandbox.ErrDenied
		}})
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.Close(); h.Close(); http.DefaultClient.CloseIdleConnections() })
	return s
}

// post sends a message, and returns the status, the session and what came.
func post(t *testing.T, url, key, message string, header ...string) (int, string, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mcp", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(header); i += 2 {
		if req.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, res.Header.Get("Mcp-Session-Id"), string(b)
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	list       = `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`
	listModern = `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
)

// TestEndpoint: both eras of the protocol at one address, with a key.
func TestEndpoint(t *testing.T) {
	s := endpoint(t, box{})
	status, id, body := post(t, s.URL, "mine", initialize)
	if status != 200 || id == "" || !strings.Contains(body, `"2025-06-18"`) {
		t.Fatalf("%d %q %s", status, id, body)
	}
	if status, _, body := post(t, s.URL, "mine", list, "Mcp-Session-Id", id); status != 200 || !strings.Contains(body, "run_command") {
		t.Errorf("%d %s", status, body)
	}
	if status, id, body := post(t, s.URL, "mine", listModern, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"); status != 200 || id != "" || !strings.Contains(body, "run_command") {
		t.Errorf("%d %q %s", status, id, body)
	}
	// Another key's session is not there, nor is one without a key.
	for key, want := range map[string]int{"other": 403, "none": 401, "": 401} {
		if status, _, body := post(t, s.URL, key, list, "Mcp-Session-Id", id); status != want || strings.Contains(body, "run_command") {
			t.Errorf("%q: %d %s", key, status, body)
		}
	}
	if status, _, _ := post(t, s.URL, "", initialize, "X-API-Key", "mine"); status != 200 {
		t.Error("X-API-Key", status)
	}
	// With two keys it is X-API-Key's, as behind every other frontend.
	if status, _, _ := post(t, s.URL, "none", initialize, "X-API-Key", "mine"); status != 200 {
		t.Error("X-API-Key beside a token for somebody else", status)
	}
	// Pages of others, and names that were pointed at this machine.
	for _, header := range [][]string{{"Origin", "http://evil.example.com"}, {"Origin", "null"}, {"Host", "evil.example.com"}, {"Origin", "http://evil.example.com", "Host", "evil.example.com"}} {
		for _, message := range []string{initialize, listModern} {
			if status, _, body := post(t, s.URL, "mine", message, append(header, "Mcp-Protocol-Version", map[bool]string{true: "2026-07-28", false: "2025-06-18"}[message == listModern])...); status < 400 || status > 499 {
				t.Errorf("%q: %d %s", header, status, body)
			}
		}
	}
	if status, _, _ := post(t, s.URL, "mine", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"`+strings.Repeat("x", maxBody)+`"}}`, "Mcp-Session-Id", id); status != 413 {
		t.Error("a body without end", status)
	}
}

// TestEndpointSessions: a key has a bounded number of sessions.
func TestEndpointSessions(t *testing.T) {
	s := endpoint(t, box{})
	for i := range sessionsAtOnce {
		if status, _, body := post(t, s.URL, "mine", initialize); status != 200 {
			t.Fatalf("%d: %d %s", i, status, body)
		}
	}
	if status, _, _ := post(t, s.URL, "mine", initialize); status < 400 {
		t.Error("one more", status)
	}
	if status, _, _ := post(t, s.URL, "other", initialize); status != 200 {
		t.Error("another key", status)
	}
}

// TestBounded: what bounds a key's requests sees all of them, of both eras, whose
// key is known, and no other.
func TestBounded(t *testing.T) {
	var seen []string
	h := NewHandler(HandlerOptions{Version: "v0", Tools: func(*persistent.Key) Toolbox { return nil },
		Authenticate: func(_ context.Context, token string) (*persistent.Key, error) {
			if token == "mine" {
				return &persistent.Key{ID: "k"}, nil
			}
			return nil, sandbox.ErrDenied
		},
		Bounded: func(k *persistent.Key, w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			seen = append(seen, k.ID)
			w.WriteHeader(http.StatusTooManyRequests)
		}})
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.Close(); h.Close(); http.DefaultClient.CloseIdleConnections() })
	for _, c := range []struct {
		key    string
		status int
		header []string
	}{{"mine", 429, nil}, {"mine", 429, []string{"Mcp-Protocol-Version", firstStateless}}, {"", 401, nil}, {"bad", 401, nil}} {
		if status, _, b := post(t, s.URL, c.key, list, c.header...); status != c.status {
			t.Errorf("%q: %d %s", c.key, status, b)
		}
	}
	if len(seen) != 2 {
		t.Error(seen)
	}
}

// TestToolsOnly: what is not declared is not answered.
func TestToolsOnly(t *testing.T) {
	cs, _ := box{}.stdio(t, nil)
	if _, err := cs.ListPrompts(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "method not found") {
		t.Error(err)
	}
	if _, err := cs.ListResources(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "method not found") {
		t.Error(err)
	}
}
