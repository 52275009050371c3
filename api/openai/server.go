// SPDX-License-Identifier: Apache-2.0

// Package openai serves containers and their files as OpenAI's API has them, at
// /v1/containers: OpenAI's own clients work with it once their base URL is
// caisson's, with /v1 behind it. docs/openai.md says what is carried.
//
// It is a frontend. A container is a persistent sandbox, made here, with a private
// directory /mnt/data; its files are what is in there, and nothing of them is kept
// outside. A key sees its own containers alone: others answer as ones that do not
// exist. A field that is not carried is refused by its name.
package openai

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/session/persistent"
)

// Options are the parts of a Server.
type Options struct {
	// Sandboxes is where requests go, Keys are who may make them. Required.
	Sandboxes *persistent.Sandboxes
	Keys      *persistent.Keys
	// Memory bounds what requests hold; nil makes one for this frontend alone.
	Memory *api.Memory
	// Rest serves paths that are not this frontend's; they are not found when nil. See
	// [Server.Refuse], too.
	Rest http.Handler
}

// Server is the frontend, an http.Handler. Who has looked at the request's host calls
// it: e2b.Server does.
type Server struct {
	o     Options
	mux   *http.ServeMux
	files removed
	live  sync.WaitGroup // requests under way, which may outlive their connections
}

// New makes a Server.
func New(o Options) *Server {
	if o.Memory == nil {
		o.Memory = new(api.Memory)
	}
	if o.Rest == nil {
		o.Rest = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { writeFault(w, nowhere(r)) })
	}
	s := &Server{o: o, mux: http.NewServeMux()}
	for pattern, h := range map[string]handler{
		"POST /v1/containers":                          s.create,
		"GET /v1/containers":                           s.list,
		"GET /v1/containers/{id}":                      s.retrieve,
		"DELETE /v1/containers/{id}":                   s.remove,
		"POST /v1/containers/{id}/files":               s.createFile,
		"GET /v1/containers/{id}/files":                s.listFiles,
		"GET /v1/containers/{id}/files/{file}":         s.retrieveFile,
		"DELETE /v1/containers/{id}/files/{file}":      s.removeFile,
		"GET /v1/containers/{id}/files/{file}/content": s.fileContent,
	} {
		s.mux.Handle(pattern, s.frontend(h))
	}
	return s
}

// Close waits for what is under way. Sandboxes must have ended.
func (s *Server) Close() { s.live.Wait() }

// ServeHTTP answers below /v1/containers, and has Rest answer elsewhere.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !mine(r) {
		s.o.Rest.ServeHTTP(w, r)
		return
	}
	name(w)
	if _, pattern := s.mux.Handler(r); pattern == "" || path.Clean(r.URL.Path) != r.URL.Path {
		// Only who has a key is told what there is.
		s.frontend(func(c *call) error { return s.otherMethod(r) }).ServeHTTP(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// mine says whether a request's path is this frontend's.
func mine(r *http.Request) bool {
	const root = "/v1/containers"
	return r.URL.Path == root || strings.HasPrefix(r.URL.Path, root+"/")
}

// name gives an answer its ID, which clients show.
func name(w http.ResponseWriter) { w.Header().Set("X-Request-Id", "req_"+rand.Text()) }

// Refuse answers a request that a handler before this frontend does not let through,
// or has Rest do it. False is that its path is neither's.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request, status int, why string) bool {
	if !mine(r) {
		rest, ok := s.o.Rest.(api.Refuser)
		return ok && rest.Refuse(w, r, status, why)
	}
	name(w)
	kind := kindRequest
	if status >= http.StatusInternalServerError {
		kind = kindServer
	}
	writeFault(api.NewTransferWriter(w), &fault{Status: status, Kind: kind, Message: why})
	return true
}

// call is a request whose key was found.
type call struct {
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context
	key     *persistent.Key
	held    *api.Held
	control *http.ResponseController
}

// handler answers a call, or says why not.
type handler func(c *call) error

// frontend finds whose request it is, and bounds what it holds.
func (s *Server) frontend(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		patient := api.NewTransferWriter(w)
		k, err := s.key(r)
		if err != nil {
			writeFault(patient, err)
			return
		}
		s.live.Add(1)
		defer s.live.Done()
		held, err := s.o.Memory.Hold(k.ID)
		if err != nil {
			writeFault(patient, err)
			return
		}
		defer held.Done()
		control := http.NewResponseController(w)
		if err := h(&call{patient, r, r.Context(), k, held, control}); err != nil {
			writeFault(patient, err)
		}
	})
}

// key finds whose request it is. What is wrong with a key is not told, a registry
// that cannot be read is.
func (s *Server) key(r *http.Request) (*persistent.Key, error) {
	token := api.Token(r.Header)
	if token == "" {
		return nil, &fault{Status: http.StatusUnauthorized, Kind: kindRequest, Code: "invalid_api_key",
			Message: "the request has no key; send one that caisson keys create made: Authorization: Bearer KEY"}
	}
	k, err := s.o.Keys.Authenticate(r.Context(), token)
	if err == nil {
		return k, nil
	}
	if f := asFault(err); f.Status >= 500 {
		return nil, f
	}
	return nil, &fault{Status: http.StatusUnauthorized, Kind: kindRequest, Code: "invalid_api_key", Message: "the key is not known; caisson keys create makes one"}
}

// otherMethod says that there is nothing at a path, or not by this method.
func (s *Server) otherMethod(r *http.Request) error {
	var can []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		q := r.Clone(r.Context())
		q.Method = m
		if _, pattern := s.mux.Handler(q); pattern != "" && path.Clean(r.URL.Path) == r.URL.Path {
			can = append(can, m)
		}
	}
	if can == nil {
		return nowhere(r)
	}
	return &fault{Status: http.StatusMethodNotAllowed, Kind: kindRequest, Message: "there is no " + api.Quoted(r.Method) + " here; it takes " + strings.Join(can, ", ")}
}

func nowhere(r *http.Request) error {
	return &fault{Status: http.StatusNotFound, Kind: kindRequest, Message: "there is nothing at " + r.Method + " " + api.Quoted(r.URL.Path) + "; docs/openai.md says what there is"}
}

// answer writes v.
func (c *call) answer(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(b)+1))
	c.w.Write(append(b, '\n'))
	return nil
}

// deleted is what the end of something is answered with.
type deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// unix is a point in time as this API has it.
func unix(t time.Time) int64 { return t.Unix() }
