// SPDX-License-Identifier: Apache-2.0

// Package v1 serves caisson's own HTTP API, below /v1: persistent sandboxes, what
// runs in them, their files, readings and events; and what describes it, the
// OpenAPI 3.1 document at /openapi.json and /openapi.yaml. docs/api.md says how it
// is used.
//
// It is a frontend: it reads requests, calls package session, and says what comes back.
// Every request below /v1 has a key in a header, which no browser adds by itself,
// so a web page that has none does nothing. A sandbox of another key answers as
// one that does not exist. No request names a path of the host.
//
// A package that serves more below /v1 registers it at [Server.API] before the first
// request: its handlers find the key by [KeyOf], and hand errors of the road to
// [Fault].
package v1

import (
	"context"
	"io"
	"net/http"
	"path"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/question"
)

// Options are the parts of a Server.
type Options struct {
	// Sandboxes is where requests go, Keys are who may make them. Required.
	Sandboxes *persistent.Sandboxes
	Keys      *persistent.Keys
	// Approvals is where approvers answer; nil is nowhere.
	Approvals *question.Approvals
	// Domain is below what ports of sandboxes have their host names, with the port
	// that clients use if it is not the usual one; Secure says that they use https.
	Domain string
	Secure bool
	// Memory bounds what requests hold; nil makes one for this frontend alone.
	Memory *api.Memory
	// Version is caisson's, for the document.
	Version string
	// Rest serves paths that are not this frontend's; they are not found when nil.
	Rest http.Handler
}

// Server is the frontend. It is an http.Handler for /v1, /openapi.json, /openapi.yaml
// and, through Options.Rest, all else. Who has looked at the request's host calls
// it: e2b.Server does.
type Server struct {
	o    Options
	mux  *http.ServeMux
	api  huma.API
	live sync.WaitGroup // calls under way, which outlive their connections
}

// New makes a Server.
func New(o Options) *Server {
	if o.Memory == nil {
		o.Memory = new(api.Memory)
	}
	if o.Rest == nil {
		o.Rest = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { writeProblem(w, nowhere(r)) })
	}
	s := &Server{o: o, mux: http.NewServeMux()}
	setUp()
	s.api = humago.New(s.mux, config(o.Version))
	s.sandboxes()
	s.lifetimes()
	s.networks()
	s.snapshots()
	s.changes()
	s.changeSets()
	s.observations()
	s.programs()
	s.cells()
	s.contexts()
	s.runs()
	s.sockets()
	s.files()
	s.approvals()
	s.tools()
	s.describeFaults()
	return s
}

// describeFaults says of each operation what its other errors look like: a list of
// those that there may be would be the same everywhere.
func (s *Server) describeFaults() {
	fault := &huma.Response{Description: "Any other error: 405, 409, 413, 415, 416, 421, 429, 501, 503", Content: map[string]*huma.MediaType{
		"application/problem+json": {Schema: s.schemaOf(Problem{})}}}
	for _, at := range s.api.OpenAPI().Paths {
		for _, op := range []*huma.Operation{at.Get, at.Put, at.Post, at.Delete} {
			if op != nil {
				op.Responses["default"] = fault
			}
		}
	}
}

// schemaOf is where the document describes what v is.
func (s *Server) schemaOf(v any) *huma.Schema {
	t := reflect.TypeOf(v)
	return s.api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// API takes further operations, below /v1. They want a key, like all others.
func (s *Server) API() huma.API { return s.api }

// Close waits for what is under way. Sandboxes must have ended.
func (s *Server) Close() { s.live.Wait() }

// config is the document's head, and how bodies are read and written: JSON alone.
func config(version string) huma.Config {
	c := huma.DefaultConfig("caisson", version)
	c.Info.Description = "Sandboxes for untrusted code."
	c.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	c.CreateHooks, c.SchemasPath, c.DocsPath = nil, "", "" // no links in answers, no pages
	c.RejectUnknownQueryParameters = true
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"key":    {Type: "apiKey", In: "header", Name: "X-API-Key", Description: "A key that caisson keys create made."},
		"bearer": {Type: "http", Scheme: "bearer", Description: "The same key."},

		"approver": {Type: "http", Scheme: "bearer", Description: "The credential of an approver, which caisson approvals enroll made. It is no key, and no key is one."},
	}
	c.Security = []map[string][]string{{"key": {}}, {"bearer": {}}}
	return c
}

// ServeHTTP finds whose request it is, and answers it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch p := r.URL.Path; {
	case p == "/openapi.json" || p == "/openapi.yaml":
		// They are for everybody, and long.
		w = api.NewTransferWriter(w)
		held, err := s.o.Memory.Visit("")
		if err != nil {
			writeProblem(w, err)
			return
		}
		defer held.Done()
		s.mux.ServeHTTP(w, r)
		return
	case strings.HasPrefix(p, PagePath):
		page(w, r)
		return
	case p != "/v1" && !strings.HasPrefix(p, "/v1/"):
		s.o.Rest.ServeHTTP(api.NewTransferWriter(w), r)
		return
	}
	c, owner, err := s.caller(r)
	if err != nil {
		writeProblem(api.NewTransferWriter(w), err)
		return
	}
	s.live.Add(1)
	defer s.live.Done()
	w = api.NewTransferWriter(w)
	held, err := s.o.Memory.Hold(owner)
	if err != nil {
		writeProblem(w, err)
		return
	}
	defer held.Done()
	body := r.Body
	c.held, c.body, c.header, c.control = held, body, r.Header, http.NewResponseController(w)
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	r.Body = &api.Message{ReadCloser: api.LimitJSON(held.Body(body)), Control: http.NewResponseController(w), Timeout: bodyTimeout}
	if _, pattern := s.mux.Handler(r); pattern == "" || path.Clean(r.URL.Path) != r.URL.Path {
		writeProblem(w, s.otherMethod(r))
		return
	}
	s.mux.ServeHTTP(w, r)
	s.settle(r.Context(), c, w)
}

// Refuse answers a request that a handler before this frontend does not let
// through. False is that its path is not this frontend's.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request, status int, why string) bool {
	p := r.URL.Path
	mine := p == "/openapi.json" || p == "/openapi.yaml" || p == "/v1" || strings.HasPrefix(p, "/v1/") || strings.HasPrefix(p, PagePath)
	if mine {
		writeProblem(api.NewTransferWriter(w), &Problem{Status: status, Detail: why})
	}
	return mine
}

// callKey is where a request's call is in its context.
type callKey struct{}

// call is a request of which is known whose it is: a key's, or an approver's.
type call struct {
	key  *persistent.Key
	who  approval.Who
	held *api.Held
	// What a request has whose body is a file, which is not held.
	body    io.Reader
	header  http.Header
	control *http.ResponseController

	made []string // sandboxes that only the answer tells of
	left bool     // the client had gone and could not be told
}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// caller finds whose request it is, and whom to count it for.
func (s *Server) caller(r *http.Request) (c *call, owner string, err error) {
	if p := r.URL.Path; p == approvalsPath || strings.HasPrefix(p, approvalsPath+"/") {
		who, err := s.approver(r)
		return &call{who: who}, who.Name(), err
	}
	k, err := s.key(r)
	if err != nil {
		return nil, "", err
	}
	return &call{key: k}, k.ID, nil
}

// KeyOf is whose request it is, in a handler below /v1.
func KeyOf(ctx context.Context) *persistent.Key { return callOf(ctx).key }

// key finds whose request it is. What is wrong with a key is not told, a registry
// that cannot be read is.
func (s *Server) key(r *http.Request) (*persistent.Key, error) {
	token := api.Token(r.Header)
	if token == "" {
		return nil, &Problem{Status: http.StatusUnauthorized, Detail: "the request has no key", Hint: "send one that caisson keys create made as X-API-Key"}
	}
	k, err := s.o.Keys.Authenticate(r.Context(), token)
	if err == nil {
		return k, nil
	}
	if p := asProblem(err); p.Status >= 500 {
		return nil, p
	}
	return nil, &Problem{Status: http.StatusUnauthorized, Detail: "the key is not known", Hint: "caisson keys create makes one"}
}

// otherMethod says that there is nothing at a path, or not by this method.
func (s *Server) otherMethod(r *http.Request) error {
	var can []string
	for _, m := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		q := r.Clone(r.Context())
		q.Method = m
		if _, pattern := s.mux.Handler(q); pattern != "" && path.Clean(r.URL.Path) == r.URL.Path {
			can = append(can, m)
		}
	}
	if can == nil {
		return nowhere(r)
	}
	return &Problem{Status: http.StatusMethodNotAllowed, Detail: "there is no " + api.Quoted(r.Method) + " here", Hint: "it takes " + strings.Join(can, ", ")}
}

func nowhere(r *http.Request) error {
	return &Problem{Status: http.StatusNotFound, Detail: "there is nothing at " + api.Quoted(r.URL.Path), Hint: "/openapi.json says what there is"}
}

const (
	// maxBody bounds a request's body, in bytes, but for files. api.LimitJSON bounds
	// what it is made of.
	maxBody = 4 << 20
	// bodyTimeout is how long it may take to arrive.
	bodyTimeout = 30 * time.Second
)

// operation is what all operations have in common.
func operation(method, p, id, summary string, status int) huma.Operation {
	return huma.Operation{
		Method: method, Path: "/v1" + p, OperationID: id, Summary: summary, DefaultStatus: status,
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		Errors: []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound},
	}
}

// register adds an operation. Its handler's errors become problems.
func register[I, O any](s *Server, op huma.Operation, f func(context.Context, *persistent.Key, *I) (*O, error)) {
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		k := KeyOf(ctx)
		if k == nil {
			return nil, Fault(&Problem{Status: http.StatusUnauthorized, Detail: "the request has no key"})
		}
		out, err := f(ctx, k, in)
		if err != nil {
			return nil, Fault(err)
		}
		return out, nil
	})
}
