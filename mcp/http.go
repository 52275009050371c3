// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/session/persistent"
)

// firstStateless is the first version of the protocol without sessions. Versions
// are dates.
const firstStateless = "2026-07-28"

// Bounds of the endpoint.
const (
	maxBody        = 4 << 20          // bytes of a request
	sessionIdle    = 30 * time.Minute // after which a session of an older client is forgotten
	sessionsAtOnce = 64               // of one key
)

// HandlerOptions are the parts of a Handler.
type HandlerOptions struct {
	// Authenticate finds the key that a token is. Required.
	Authenticate func(ctx context.Context, token string) (*persistent.Key, error)
	// Tools are a key's. Required.
	Tools   func(*persistent.Key) Toolbox
	Version string
	// HostIsKnown says that the request's host was looked at already. Otherwise
	// one that reaches this machine by loopback must name that.
	HostIsKnown bool
	// Bounded serves a request of a key's by next, within what the key may have
	// under way; nil bounds nothing.
	Bounded func(k *persistent.Key, w http.ResponseWriter, r *http.Request, next http.Handler)
}

// Handler serves streamable HTTP, clients of all versions of the protocol at one
// address. Every request has a key in its Authorization header, which no browser
// sends by itself; pages of other origins are refused besides, and so is a name
// that was pointed at this machine.
//
// An older client's session is its key's alone.
type Handler struct {
	o HandlerOptions
	h http.Handler

	life context.Context
	end  context.CancelFunc

	timeout, bound time.Duration // of calls that are asked about

	mu      sync.Mutex
	servers map[string]*sdk.Server // by the ID of a key
}

// NewHandler makes a Handler.
func NewHandler(o HandlerOptions) *Handler {
	h := &Handler{o: o, servers: map[string]*sdk.Server{}, timeout: askTimeout, bound: elicitBound}
	h.life, h.end = context.WithCancel(context.Background())
	options := sdk.StreamableHTTPOptions{Logger: slog.New(slog.DiscardHandler), MaxRequestBodyBytes: maxBody, SessionTimeout: sessionIdle,
		DisableLocalhostProtection: o.HostIsKnown}
	older := sdk.NewStreamableHTTPHandler(h.newSession, &options)
	modern := options
	modern.Stateless, modern.SessionTimeout, modern.PropagateRequestCancellation = true, 0, true
	newer := sdk.NewStreamableHTTPHandler(h.server, &modern)
	h.h = auth.RequireBearerToken(h.verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(h.bounded(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= firstStateless {
			newer.ServeHTTP(w, r)
			return
		}
		older.ServeHTTP(w, r)
	}))
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if why := foreign(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	// Clients of other APIs send a key in this header: it is the key here, too, if there
	// is another in Authorization (api.Token).
	if key := r.Header.Get("X-API-Key"); key != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+key)
	}
	h.h.ServeHTTP(w, r)
}

// bounded is next for requests whose key is known.
func (h *Handler) bounded(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k, err := keyOf(r)
		if r.Body != nil {
			r.Body = &framed{ReadCloser: r.Body}
		}
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case h.o.Bounded != nil:
			h.o.Bounded(k, w, r, next)
		default:
			next(w, r)
		}
	})
}

// keyOf is whose request it is.
func keyOf(r *http.Request) (*persistent.Key, error) {
	info := auth.TokenInfoFromContext(r.Context())
	if info == nil {
		return nil, errors.New("there is no key")
	}
	k, ok := info.Extra["key"].(*persistent.Key)
	if !ok {
		return nil, errors.New("there is no key")
	}
	return k, nil
}

// Close ends all calls that are under way, and forgets all sessions. No request may
// follow.
func (h *Handler) Close() {
	h.end()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.servers {
		for one := range s.Sessions() {
			one.Close()
		}
	}
}

// foreign says why a request may have been made by a page of another site.
func foreign(r *http.Request) string {
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return "requests of other origins are refused"
		}
	}
	return ""
}

func (h *Handler) verify(ctx context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	k, err := h.o.Authenticate(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("%w: it is no key, or was revoked", auth.ErrInvalidToken)
	}
	return &auth.TokenInfo{UserID: k.ID, Extra: map[string]any{"key": k}}, nil
}

// server is the server of a request's key; nil refuses the request.
func (h *Handler) server(r *http.Request) *sdk.Server {
	s, _ := h.find(r)
	return s
}

func (h *Handler) find(r *http.Request) (*sdk.Server, error) {
	k, err := keyOf(r)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.servers[k.ID]; s != nil {
		return s, nil
	}
	s, err := newServer(&serving{box: bounding{h.o.Tools(k), h.life}, timeout: h.timeout, bound: h.bound}, h.o.Version)
	if err != nil {
		return nil, err
	}
	h.servers[k.ID] = s
	return s, nil
}

// newSession is server for a client that will have a session.
func (h *Handler) newSession(r *http.Request) *sdk.Server {
	s := h.server(r)
	if s == nil {
		return nil
	}
	n := 0
	for range s.Sessions() {
		n++
	}
	if n >= sessionsAtOnce {
		return nil
	}
	return s
}
