// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"net/http"

	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
)

// Context is a kernel of one language, with the state that its cells have left.
type Context struct {
	ID         string `json:"id"`
	Language   string `json:"language"`
	Cwd        string `json:"cwd,omitempty"`
	Executions int    `json:"executions" doc:"How many cells it has begun since its kernel started"`
	Busy       bool   `json:"busy,omitempty" doc:"A cell runs"`
}

func contextOf(c interpreter.Context) Context {
	return Context{c.ID, c.Language, c.Dir, c.Executions, c.Busy}
}

// NewContext says what context is wanted.
type NewContext struct {
	ID       string            `json:"id,omitempty" maxLength:"64" doc:"A name for it; one is made up when it is left out"`
	Language string            `json:"language,omitempty" maxLength:"64" doc:"As of a cell"`
	Cwd      string            `json:"cwd,omitempty" maxLength:"4096" doc:"Where it begins, absolute; the user's home when it is left out"`
	Env      map[string]string `json:"env,omitempty" doc:"Variables on top of the sandbox's"`
}

// ContextID names a context of a sandbox.
type ContextID struct {
	SandboxID
	Context string `path:"context" maxLength:"64" doc:"The context's ID"`
}

type contextsAnswer struct {
	Body struct {
		Contexts []Context `json:"contexts"`
	}
}

// contexts registers what makes, lists and ends contexts.
func (s *Server) contexts() {
	op := operation("POST", "/sandboxes/{id}/contexts", "createContext", "Make a context, in which cells leave their state", http.StatusCreated)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *struct {
		SandboxID
		Body NewContext
	}) (*struct{ Body Context }, error) {
		w := in.Body
		c, err := s.o.Sandboxes.Handle(k, in.ID).CreateContext(ctx, &session.Call{Frontend: "api"}, interpreter.ContextOptions{ID: w.ID, Language: w.Language, Dir: w.Cwd, Env: w.Env})
		return &struct{ Body Context }{contextOf(c)}, err
	})
	register(s, operation("GET", "/sandboxes/{id}/contexts", "listContexts", "List the contexts of a sandbox", http.StatusOK),
		func(ctx context.Context, k *persistent.Key, in *SandboxID) (*contextsAnswer, error) {
			all, err := s.o.Sandboxes.Handle(k, in.ID).Contexts(ctx, "")
			a := &contextsAnswer{}
			a.Body.Contexts = []Context{}
			for _, c := range all {
				a.Body.Contexts = append(a.Body.Contexts, contextOf(c))
			}
			return a, err
		})
	for _, o := range []struct {
		method, rest, id, summary string
		do                        func(*persistent.Handle, context.Context, string, string) error
	}{
		{"DELETE", "", "removeContext", "End a context, with the cell that it runs", (*persistent.Handle).RemoveContext},
		{"POST", "/restart", "restartContext", "Give a context a fresh kernel", (*persistent.Handle).RestartContext},
		{"POST", "/interrupt", "interruptContext", "Interrupt the cell that a context runs", (*persistent.Handle).InterruptContext},
	} {
		register(s, operation(o.method, "/sandboxes/{id}/contexts/{context}"+o.rest, o.id, o.summary, http.StatusNoContent),
			func(ctx context.Context, k *persistent.Key, in *ContextID) (*struct{}, error) {
				return nil, o.do(s.o.Sandboxes.Handle(k, in.ID), ctx, "", in.Context)
			})
	}
}
