// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of subscriptions.
const (
	maxSubscriptions = 200          // of one client at once
	maxWatched       = maxResources // that a server was asked for, of all clients
)

// subscriptions are the resources that each client wants to be told of.
type subscriptions struct {
	mu sync.Mutex
	of map[*sdk.ServerSession]map[string]bool
}

// add notes one more of a client's; false is that it has too many. Clients that are not
// among alive have left without a word.
func (s *subscriptions) add(c *sdk.ServerSession, uri string, alive iter.Seq[*sdk.ServerSession]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[*sdk.ServerSession]map[string]bool{c: s.of[c]}
	for one := range alive {
		if s.of[one] != nil {
			now[one] = s.of[one]
		}
	}
	if s.of = now; now[c] == nil {
		now[c] = map[string]bool{}
	}
	if !now[c][uri] && len(now[c]) >= maxSubscriptions {
		return false
	}
	now[c][uri] = true
	return true
}

func (s *subscriptions) remove(c *sdk.ServerSession, uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of[c], uri)
}

// watch notes that a server is asked to tell of a resource; false is that it was asked
// for too many.
func (u *upstream) watch(uri string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.watched == nil {
		u.watched = map[string]bool{}
	}
	if !u.watched[uri] && len(u.watched) >= maxWatched {
		return false
	}
	u.watched[uri] = true
	return true
}

// subscribe asks a server to say when a resource changes.
func (g *Gateway) subscribe(ctx context.Context, req *sdk.SubscribeRequest) error {
	uri := req.Params.URI
	u := g.resourceOf(uri)
	if u == nil || u.readable(uri) != "" {
		return sdk.ResourceNotFoundError(uri)
	}
	if !g.subscribed.add(req.Session, uri, g.face.Sessions()) {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("exhausted: a client has at most %d subscriptions", maxSubscriptions)}
	}
	if !u.watch(uri) {
		g.subscribed.remove(req.Session, uri)
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("exhausted: server %s was asked for %d subscriptions already", u.o.Name, maxWatched)}
	}
	err := g.fetch(ctx, u, other{"subscribe_resource", uri, map[string]string{"uri": uri}, req.Session, nil}, func(_ context.Context, cs *sdk.ClientSession) (any, error) {
		return nil, cs.Subscribe(g.life, &sdk.SubscribeParams{URI: uri})
	})
	if err != nil {
		g.subscribed.remove(req.Session, uri)
	}
	return err
}

// unsubscribe leaves the server's subscription: another client may have it, too.
func (g *Gateway) unsubscribe(_ context.Context, req *sdk.UnsubscribeRequest) error {
	g.subscribed.remove(req.Session, req.Params.URI)
	return nil
}
