// SPDX-License-Identifier: Apache-2.0

// Package e2b serves the API of E2B, so that its official clients work with
// this server as they are: a control plane of JSON, the RPCs of the agent
// inside each sandbox (Connect with JSON), files, and the ports that programs
// inside open. One port of one server carries all of it.
//
// It is a frontend: it reads requests, calls package session, and turns what comes
// back into E2B's words. docs/e2b.md says what is carried, what is refused, and
// why.
//
// Every request has a right of its own: a key for the control plane, a
// sandbox's access token for its agent, a signature for one file. None of them
// is something that a browser sends by itself, so a web page that has none does
// nothing, under whatever name it reaches this server.
package e2b

import (
	"crypto/subtle"
	"net/http"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/session/persistent"
)

// Options are the parts of a Server.
type Options struct {
	// Sandboxes is where requests go, Keys are who may make them. Required.
	Sandboxes *persistent.Sandboxes
	Keys      *persistent.Keys
	// Domain is below what sandboxes have their host names, with the port that
	// clients use if it is not the usual one: "localhost:7420". Clients build
	// <port>-<id>.<domain> of it.
	Domain string
	// Memory bounds what requests hold; nil makes one for this frontend alone.
	Memory *api.Memory
	// Rest serves paths of this server that are not E2B's; they are not found
	// when nil. It is asked after the host was looked at, and sees to rights
	// itself. It may be a [api.Refuser], for those that do not get there.
	Rest http.Handler
}

// Server is the frontend. It is an http.Handler for all paths but those that the
// caller keeps for itself.
type Server struct {
	o       Options
	domain  string // without a port
	api     http.Handler
	envd    map[string]agentCall
	proxies *http.Transport
	began   string // when, as clients read times

	followers sync.WaitGroup // who hear processes until their end
}

// New makes a Server.
func New(o Options) *Server {
	if o.Rest == nil {
		o.Rest = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			writeAPIError(w, &apiError{http.StatusNotFound, "there is nothing at " + r.Method + " " + api.Quoted(r.URL.Path)})
		})
	}
	if o.Memory == nil {
		o.Memory = new(api.Memory)
	}
	s := &Server{o: o, domain: hostName(o.Domain)}
	s.api = s.control()
	s.envd = s.agent()
	s.proxies, s.began = s.transport(), now()
	return s
}

// Close closes connections to sandboxes that are kept for later requests, and
// waits until the end of every process is recorded. Sandboxes must have ended.
func (s *Server) Close() {
	s.proxies.CloseIdleConnections()
	s.followers.Wait()
}

// ServeHTTP sends a request where it wants to go.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, err := route(r.Host, r.Header, s.domain)
	switch {
	case err != nil:
		e := asAPI(err)
		s.Refuse(w, r, e.Code, e.Message)
	case t.Port == 0 && r.URL.Path == "/files" && r.URL.Query().Has("signature"):
		s.crossOrigin(w, r, s.signedFiles)
	case t.Port == 0:
		s.crossOrigin(w, r, s.api.ServeHTTP)
	case t.Port == envdPort:
		s.crossOrigin(w, r, func(w http.ResponseWriter, r *http.Request) { s.serveEnvd(w, r, t) })
	case t.Port == interpreterPort:
		s.crossOrigin(w, r, func(w http.ResponseWriter, r *http.Request) { s.serveInterpreter(w, r, t) })
	default:
		s.servePort(w, r, t)
	}
}

// Refuse answers a request that goes nowhere, in the words of whose path it is:
// Rest's or E2B's, which all are that are not Rest's.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request, status int, why string) bool {
	if rest, ok := s.o.Rest.(api.Refuser); !ok || !rest.Refuse(w, r, status, why) {
		writeAPIError(w, &apiError{status, why})
	}
	return true
}

// crossOrigin lets pages of all origins use h: they have to bring a right that
// no browser adds by itself.
func (s *Server) crossOrigin(w http.ResponseWriter, r *http.Request, h http.HandlerFunc) {
	out := w.Header()
	out.Set("X-Content-Type-Options", "nosniff")
	// Files are of the sandbox's making and are shown on this server's origin.
	out.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	if r.Header.Get("Origin") != "" {
		out.Set("Access-Control-Allow-Origin", "*")
		out.Set("Access-Control-Expose-Headers", "X-Next-Token, X-Total-Running, Content-Disposition, Retry-After")
	}
	if r.Method == http.MethodOptions {
		out.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		out.Set("Access-Control-Allow-Headers", strings.Join(r.Header.Values("Access-Control-Request-Headers"), ", "))
		out.Set("Access-Control-Max-Age", "7200")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	h(w, r)
}

// unauthorized is why a key is not taken: what is wrong with it is not told, a
// registry that cannot be read is.
func unauthorized(err error) error {
	if e := asAPI(err); e.Code >= 500 {
		return e
	}
	return &apiError{http.StatusUnauthorized, "the key is not known; caisson keys create makes one"}
}

// same compares secrets in a time that tells nothing.
func same(a, b string) bool {
	return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// gone is how the way to a sandbox that does not run is answered. Clients ask
// for /health when a connection breaks and look for this status.
type gone struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"`
}

func writeGone(w http.ResponseWriter, id string) {
	writeJSON(w, http.StatusBadGateway, gone{SandboxID: id, Message: "The sandbox was not found", Code: http.StatusBadGateway})
}
