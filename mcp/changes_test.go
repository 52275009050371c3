// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/api/apitest"
)

// holder adds a key to requests.
type holder string

func (h holder) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(h))
	return http.DefaultTransport.RoundTrip(r)
}

// changing is a client of a built caisson, whose user gives one answer.
type changing struct {
	*sdk.ClientSession
	answer *sdk.ElicitResult
	asked  atomic.Int32
	id     string // of the set that it has made
	digest string
}

func newChanging(t *testing.T, transport sdk.Transport) *changing {
	t.Helper()
	c := &changing{}
	client := sdk.NewClient(&sdk.Implementation{Name: "official", Version: "1"}, &sdk.ClientOptions{ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		c.asked.Add(1)
		if !strings.Contains(r.Params.Message, "+changed") || strings.Contains(r.Params.Message, "Makefile") {
			t.Errorf("it is asked %q", r.Params.Message)
		}
		return c.answer, nil
	}})
	var err error
	if c.ClientSession, err = client.Connect(t.Context(), transport, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// use calls a tool; failed is what a refusal says.
func (c *changing) use(t *testing.T, name string, args map[string]any) (out map[string]any, failed string) {
	t.Helper()
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	if res.IsError {
		return nil, res.Content[0].(*sdk.TextContent).Text
	}
	b, err := json.Marshal(res.StructuredContent)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out, ""
}

// change makes a set: one file changed, and one that is held back.
func (c *changing) change(t *testing.T) {
	t.Helper()
	box, failed := c.use(t, "create_sandbox", map[string]any{})
	if failed != "" {
		t.Fatal(failed)
	}
	in := map[string]any{"sandbox_id": box["sandbox_id"]}
	c.use(t, "run_command", map[string]any{"sandbox_id": box["sandbox_id"], "command": "cd /workspace; echo changed >file; echo all: >Makefile"})
	kept, failed := c.use(t, "keep_changes", in)
	if failed != "" {
		t.Fatal(failed)
	}
	c.id = kept["changes"].(map[string]any)["id"].(string)
	shown, failed := c.use(t, "show_changes", map[string]any{"id": c.id})
	if failed != "" || !strings.Contains(shown["patch"].(string), "+changed") || shown["held"] != 1.0 {
		t.Fatal(shown, failed)
	}
	c.digest = shown["digest"].(string)
	c.use(t, "kill_sandbox", in)
}

// TestChangesOverMCP: an official client keeps, looks at and applies what it changed, with a
// built caisson and its default level, as the client's own child and at a daemon.
func TestChangesOverMCP(t *testing.T) {
	built := apitest.BuiltCaisson(t, "test-mcp")
	for _, way := range []string{"stdio", "http"} {
		t.Run(way, func(t *testing.T) {
			dir, file := t.TempDir(), filepath.Join(t.TempDir(), "policy.yaml")
			if err := writeFile(filepath.Join(dir, "file"), "given\n"); err != nil {
				t.Fatal(err)
			}
			if err := writeFile(file, "version: 1\nfiles: {workspace: {source: "+dir+"}}\napprovals: {channels: [elicitation]}\n"); err != nil {
				t.Fatal(err)
			}
			var mine, theirs sdk.Transport
			if way == "stdio" {
				mine, theirs = &sdk.CommandTransport{Command: built.Command("mcp", "--policy", file)}, &sdk.CommandTransport{Command: built.Command("mcp", "--policy", file)}
			} else {
				url := built.Serve(t, "--policy", file) + "/mcp"
				by := func(name string) sdk.Transport {
					return &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: holder(built.Key(t, name))}, DisableStandaloneSSE: true}
				}
				mine, theirs = by("mine"), by("theirs")
				t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
			}
			testChanges(t, dir, newChanging(t, mine), newChanging(t, theirs))
		})
	}
}

func testChanges(t *testing.T, dir string, c, other *changing) {
	c.change(t)
	has := func() string { b, _ := os.ReadFile(filepath.Join(dir, "file")); return string(b) }
	apply := func(who *changing, digest string, paths ...string) (map[string]any, string) {
		args := map[string]any{"id": c.id, "digest": digest}
		if paths != nil {
			args["paths"] = paths
		}
		return who.use(t, "apply_changes", args)
	}
	if list, _ := other.use(t, "list_changes", map[string]any{}); len(list["changes"].([]any)) != 0 {
		t.Errorf("another sees %v", list)
	}
	for what, call := range map[string]func() (map[string]any, string){
		"not_found": func() (map[string]any, string) { return apply(other, c.digest) },
		"conflict":  func() (map[string]any, string) { return apply(c, strings.Repeat("0", 64)) },
		"denied":    func() (map[string]any, string) { return apply(c, c.digest, "Makefile") },
	} {
		if out, failed := call(); !strings.HasPrefix(failed, what) || c.asked.Load()+other.asked.Load() != 0 {
			t.Errorf("%v %q, want %s, and nobody asked", out, failed, what)
		}
	}
	c.answer = &sdk.ElicitResult{Action: "decline"}
	for range 2 { // a no is final
		if out, failed := apply(c, c.digest); !strings.HasPrefix(failed, "denied") || c.asked.Load() != 1 {
			t.Errorf("%v %q, asked %d times", out, failed, c.asked.Load())
		}
	}
	if has() != "given\n" {
		t.Fatalf("applied without a yes: %q", has())
	}
	c.answer = &sdk.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}}
	if out, failed := apply(c, c.digest, "file"); failed != "" || has() != "changed\n" {
		t.Errorf("%v %q, and the file has %q", out, failed, has())
	}
	if _, err := os.Lstat(filepath.Join(dir, "Makefile")); err == nil {
		t.Error("what is held back was applied")
	}
}
