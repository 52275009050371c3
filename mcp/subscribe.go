// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
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

// all are the resources that clients want to be told of, in order.
func (s *subscriptions) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	uris := map[string]bool{}
	for _, of := range s.of {
		maps.Copy(uris, of)
	}
	return slices.Sorted(maps.Keys(uris))
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
	// A client of 2026-07-28 subscribes as it begins to listen, which does not wait.
	select {
	case <-g.ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
	err := g.fetch(ctx, u, other{"subscribe_resource", uri, map[string]string{"uri": uri}, round{}, req.Session, nil}, func(ctx context.Context, cs *sdk.ClientSession) (any, error) {
		return nil, cs.Subscribe(ctx, &sdk.SubscribeParams{URI: uri}) // what it listens to by it outlives ctx
	})
	if err != nil {
		g.subscribed.remove(req.Session, uri)
	}
	return err
}

// resubscribe asks a server that was started again for what clients subscribed to
// before, and has them look: what changed meanwhile was not told. ctx is the
// server's life.
func (u *upstream) resubscribe(ctx context.Context, cs *sdk.ClientSession, lost []string) {
	for _, uri := range lost {
		if u.g.resourceOf(uri) != u || u.readable(uri) != "" || !u.watch(uri) {
			continue
		}
		bounded, stop := context.WithTimeout(ctx, u.timeout())
		err := cs.Subscribe(bounded, &sdk.SubscribeParams{URI: uri})
		stop()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			u.g.o.Notice(fmt.Sprintf("server %s: the subscription to %s is lost: %s", u.o.Name, line(uri, maxURI), line(err.Error(), 300)))
			continue
		}
		_ = u.g.face.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: uri})
	}
}

// unsubscribe leaves the server's subscription: another client may have it, too.
func (g *Gateway) unsubscribe(_ context.Context, req *sdk.UnsubscribeRequest) error {
	g.subscribed.remove(req.Session, req.Params.URI)
	return nil
}
