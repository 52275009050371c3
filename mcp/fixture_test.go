// SPDX-License-Identifier: Apache-2.0

//go:build conformance

package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// TestFixtureServer is a daemon's endpoint whose server has what the conformance suite
// calls by name, beside the tools that it has always. It serves until its standard
// input ends. buildFixture adds the official fixture's source to this package.
func TestFixtureServer(t *testing.T) {
	// The suite asks for more than tools: those bounds are opened, and no other.
	can := &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true}, Prompts: &sdk.PromptCapabilities{ListChanged: true},
		Resources: &sdk.ResourceCapabilities{ListChanged: true, Subscribe: true}, Completions: &sdk.CompletionCapabilities{}, Logging: &sdk.LoggingCapabilities{}}
	own := &serving{box: box{}, timeout: askTimeout, bound: elicitBound}
	s, err := makeServer(own, sdk.ServerOptions{Capabilities: can, CompletionHandler: completionHandler, SubscribeHandler: subscribeHandler, UnsubscribeHandler: unsubscribeHandler}, "v0")
	if err != nil {
		t.Fatal(err)
	}
	registerTools(s)
	registerResources(s)
	registerPrompts(s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go watchedResourceUpdater(ctx, s)
	h := NewHandler(HandlerOptions{Version: "v0", Tools: func(*persistent.Key) Toolbox { return nil }, Authenticate: func(_ context.Context, token string) (*persistent.Key, error) {
		if token != "mine" {
			return nil, sandbox.ErrDenied
		}
		return &persistent.Key{ID: "k"}, nil
	}})
	h.servers["k"] = s
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer mine") // the suite has no keys
		h.ServeHTTP(w, r)
	}))
	fmt.Printf("serves at %s/mcp\n", web.URL)
	io.Copy(io.Discard, os.Stdin)
	h.Close()
	web.CloseClientConnections()
	web.Close()
}
