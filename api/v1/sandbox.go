// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// Sandbox is a persistent sandbox, as its owner sees it.
type Sandbox struct {
	ID         string            `json:"id"`
	Name       string            `json:"name,omitempty" doc:"What its maker called it"`
	Template   string            `json:"template"`
	State      string            `json:"state" enum:"running,paused"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Created    time.Time         `json:"created"`
	Started    time.Time         `json:"started" doc:"When it was made or last resumed"`
	Ends       *time.Time        `json:"ends,omitempty" doc:"When its time is over; of no use while it is paused"`
	Idle       float64           `json:"idle,omitempty" doc:"Seconds that it may go unused; 0 is any time"`
	OnTimeout  string            `json:"on_timeout" enum:"kill,pause,pause-files"`
	AutoResume bool              `json:"auto_resume,omitempty"`
	Isolation  string            `json:"isolation" doc:"The level that it runs on"`
	Limits     Limits            `json:"limits"`
	Network    []string          `json:"network,omitempty" doc:"What it may reach; empty is nothing"`
	Denied     []string          `json:"denied,omitempty" doc:"What is taken away from that"`
	Posture    Posture           `json:"posture" doc:"What holds for it"`
	Resumed    int               `json:"resumed,omitempty" doc:"How often it was resumed"`
	Cold       string            `json:"cold,omitempty" enum:"frozen,disk" doc:"How far it has gone cold while nothing uses it: it stands still in memory, or is on the disk alone. The next request wakes it"`
	Rebooted   string            `json:"rebooted,omitempty" doc:"Why it last began anew with its files alone: its memory, as it lay on the disk, did not fit any more"`
	Unwarmed   string            `json:"unwarmed,omitempty" doc:"Why the warmup of its template was not done in it when it was made; missing where it was, or there is none"`
	Kept       string            `json:"kept,omitempty" enum:"disk,memory,files" doc:"What there is of it while it is paused: all, on the disk; all, in memory, where it ends with caisson; or its files alone, on the disk"`
}

func view(b *persistent.Sandbox) Sandbox {
	s := Sandbox{
		ID: b.ID, Name: b.Name, Template: b.Template, State: string(registry.Running), Metadata: b.Metadata,
		Created: b.Created.UTC(), Started: b.Started.UTC(), Idle: b.Idle.Seconds(), OnTimeout: string(b.OnTimeout), AutoResume: b.AutoResume,
		Isolation: b.Isolation, Limits: limitsOf(b.Limits), Network: b.Network, Denied: b.Denied, Posture: posture(b.Posture), Resumed: b.Resumed,
		Cold: string(b.Cold), Rebooted: b.Rebooted, Unwarmed: b.Unwarmed,
	}
	if !b.Ends.IsZero() {
		at := b.Ends.UTC()
		s.Ends = &at
	}
	if b.State == registry.Paused || b.State == registry.Pausing {
		s.State, s.Kept = string(registry.Paused), "memory"
		switch {
		case b.Boots:
			s.Kept = "files"
		case b.Kept != "":
			s.Kept = "disk"
		}
	}
	return s
}

// sandboxAnswer is one sandbox.
type sandboxAnswer struct {
	Status int
	Body   Sandbox
}

func answer(status int, b *persistent.Sandbox, err error) (*sandboxAnswer, error) {
	if err != nil {
		return nil, err
	}
	return &sandboxAnswer{status, view(b)}, nil
}

// SandboxID is the part of a path that names one. (It is exported for huma, which
// sets fields by reflection.)
type SandboxID struct {
	ID string `path:"id" maxLength:"200" doc:"The sandbox"`
}

// Create says what sandbox is wanted.
type Create struct {
	Template   string            `json:"template,omitempty" maxLength:"256" doc:"What it is made of, a template's NAME[:TAG]; base when it is left out"`
	Snapshot   string            `json:"snapshot,omitempty" maxLength:"64" doc:"A snapshot that it goes on from"`
	Name       string            `json:"name,omitempty" maxLength:"256" doc:"Take the sandbox of this name if there is one (status 200), else call the new one so"`
	Metadata   map[string]string `json:"metadata,omitempty" doc:"The caller's own words, which lists can be filtered by"`
	Env        map[string]string `json:"env,omitempty" doc:"Variables of every program in it; they are shown nowhere again"`
	Timeout    float64           `json:"timeout,omitempty" minimum:"0" maximum:"31536000" doc:"Seconds that it lives unless it is extended; 0 is the key's default"`
	Idle       float64           `json:"idle,omitempty" minimum:"0" maximum:"31536000" doc:"Seconds that it may go unused; 0 is any time"`
	OnTimeout  string            `json:"on_timeout,omitempty" enum:"kill,pause,pause-files" doc:"What happens when its time is over; pause-files keeps its files alone"`
	AutoResume bool              `json:"auto_resume,omitempty" doc:"Wake it when something in it is asked for while it is paused"`
	Network    *Network          `json:"network,omitempty" doc:"A part of what the key's policy grants; all of that when it is left out"`
	Limits     *Limits           `json:"limits,omitempty"`
	Isolation  string            `json:"isolation,omitempty" maxLength:"64" doc:"The level, where the policy leaves it open"`
}

func (c *Create) wish() persistent.Create {
	w := persistent.Create{
		Frontend: "api", Template: c.Template, Snapshot: c.Snapshot, Metadata: c.Metadata, Env: c.Env,
		Lifetime: persistent.Lifetime{Timeout: seconds(c.Timeout), Idle: seconds(c.Idle), OnTimeout: registry.Action(c.OnTimeout), AutoResume: c.AutoResume},
		Limits:   c.Limits.limits(), Isolation: c.Isolation,
	}
	if n := c.Network; n != nil {
		w.Network = n.wish()
	}
	return w
}

// sandboxes registers what makes, shows and ends them.
func (s *Server) sandboxes() {
	op := operation("POST", "/sandboxes", "createSandbox", "Make a sandbox", http.StatusCreated)
	op.Responses = map[string]*huma.Response{"200": {Description: "The sandbox of this name, which there was", Content: map[string]*huma.MediaType{
		"application/json": {Schema: s.schemaOf(Sandbox{})}}}}
	register(s, op, func(ctx context.Context, k *persistent.Key, in *struct{ Body Create }) (*sandboxAnswer, error) {
		if in.Body.Name == "" {
			b, err := s.o.Sandboxes.Create(ctx, k, in.Body.wish())
			if err == nil {
				err = made(ctx, b)
			}
			return answer(http.StatusCreated, b, err)
		}
		b, made, err := s.o.Sandboxes.Acquire(ctx, k, in.Body.Name, in.Body.wish())
		if !made {
			return answer(http.StatusOK, b, err)
		}
		return answer(http.StatusCreated, b, err)
	})
	op = operation("GET", "/sandboxes", "listSandboxes", "List sandboxes, newest first", http.StatusOK)
	register(s, op, s.list)
	op = operation("GET", "/sandboxes/{id}", "getSandbox", "Show a sandbox", http.StatusOK)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *SandboxID) (*sandboxAnswer, error) {
		b, err := s.o.Sandboxes.Handle(k, in.ID).Get(ctx)
		return answer(http.StatusOK, b, err)
	})
	op = operation("DELETE", "/sandboxes/{id}", "killSandbox", "End a sandbox; nothing of it is left", http.StatusNoContent)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *SandboxID) (*struct{}, error) {
		return nil, s.o.Sandboxes.Handle(k, in.ID).Kill(ctx)
	})
}

// filter is which sandboxes a list is to have.
type filter struct {
	State        []string  `query:"state" enum:"running,paused" doc:"Those in one of these states"`
	Metadata     []string  `query:"metadata,explode" maxItems:"64" doc:"Those with this entry of metadata, name=value; may be given more than once"`
	Template     string    `query:"template" maxLength:"256"`
	StartedAfter time.Time `query:"started_after"`
	Order        string    `query:"order" enum:"newest,oldest" doc:"Which come first"`
	Limit        int       `query:"limit" minimum:"1" maximum:"100" doc:"How many at most; 100 when it is left out"`
	Cursor       string    `query:"cursor" maxLength:"200" doc:"The next of the page before"`
}

// listAnswer is a page.
type listAnswer struct {
	Body struct {
		Sandboxes []Sandbox `json:"sandboxes"`
		Next      string    `json:"next,omitempty" doc:"The cursor of the page behind; absent at the end"`
		Running   int       `json:"running" doc:"How many of all that the filter wants are running"`
	}
}

func (s *Server) list(ctx context.Context, k *persistent.Key, in *filter) (*listAnswer, error) {
	f := persistent.Filter{Template: in.Template, StartedAfter: in.StartedAfter, OldestFirst: in.Order == "oldest", Limit: in.Limit, Cursor: in.Cursor}
	for _, state := range in.State {
		f.States = append(f.States, registry.State(state))
	}
	for _, m := range in.Metadata {
		name, value, ok := strings.Cut(m, "=")
		if !ok || name == "" {
			return nil, sandbox.Errorf(sandbox.ErrInvalid, "metadata", "%s is not name=value", api.Quoted(m))
		}
		if f.Metadata == nil {
			f.Metadata = map[string]string{}
		}
		f.Metadata[name] = value
	}
	p, err := s.o.Sandboxes.List(ctx, k, f)
	if err != nil {
		return nil, err
	}
	a := &listAnswer{}
	a.Body.Sandboxes, a.Body.Next, a.Body.Running = []Sandbox{}, p.Next, p.Running
	for _, b := range p.Sandboxes {
		a.Body.Sandboxes = append(a.Body.Sandboxes, view(b))
	}
	return a, nil
}
