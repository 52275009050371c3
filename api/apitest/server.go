// SPDX-License-Identifier: Apache-2.0

// Package apitest is a server of caisson's for tests. [Start] has all its frontends over
// HTTP in the test's process, on a port of its own, with two keys, on the fake level with
// the real agent; a test binary calls [Init] first in TestMain. [Caisson] is a built
// program that serves, for other people's clients. Only tests import it.
package apitest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/e2b"
	"github.com/caisson-run/caisson/api/openai"
	v1 "github.com/caisson-run/caisson/api/v1"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/registry"
)

// Init becomes what the fake level starts, where it is that.
func Init() {
	if os.Args[0] == guest.AgentArgv0 {
		agent.Main()
	}
	faketest.Init()
}

// Server is one that serves.
type Server struct {
	URL        string
	Handler    http.Handler // what is served there
	Key, Other string       // two keys
	Sandboxes  *persistent.Sandboxes
	Approvals  *question.Approvals
	Journal    *audit.Log
	Memory     api.Memory
}

// Options are what a server has beside the usual.
type Options struct {
	Level  *faketest.Driver                   // the fake level with the real agent when nil
	Policy *policy.File                       // what the keys are bound to; nil is none
	Change func(*persistent.SandboxesOptions) // nil changes nothing
	Around func(http.Handler) http.Handler    // what a request comes through first; nil is nothing
}

// Start starts a server whose keys are bound to a policy, in YAML; "" is none. It
// ends with the test.
func Start(t *testing.T, text string) *Server {
	t.Helper()
	return StartOn(t, nil, text)
}

// StartOn is Start with a fake level of the test's.
func StartOn(t *testing.T, level *faketest.Driver, text string) *Server {
	t.Helper()
	o := Options{Level: level}
	if text != "" {
		file, err := policy.Parse("/p.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		file.Dir = "/"
		o.Policy = file
	}
	return StartWith(t, o)
}

// StartWith starts a server, which ends with the test.
func StartWith(t *testing.T, o Options) *Server {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for the fake level")
	}
	dir, err := store.Open(store.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	d := &Server{}
	journal, err := audit.Open(t.Context(), audit.Options{Dir: dir.Path()})
	if err != nil {
		t.Fatal(err)
	}
	reg, err := registry.Open(t.Context(), dir.Path())
	if err != nil {
		t.Fatal(err)
	}
	d.Journal = journal
	t.Cleanup(func() { reg.Close(); journal.Close(); dir.Close() })
	keys, err := persistent.OpenKeys(reg, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []*string{&d.Key, &d.Other} {
		if _, *token, err = keys.Create(t.Context(), "", "", ""); err != nil {
			t.Fatal(err)
		}
	}
	d.sandboxes(t, &o, persistent.SandboxesOptions{Journal: journal, State: session.DirState(dir), Registry: reg}, dir.Path())
	d.serve(t, &o, keys)
	return d
}

// sandboxes opens those of the server.
func (d *Server) sandboxes(t *testing.T, o *Options, boxes persistent.SandboxesOptions, dir string) {
	t.Helper()
	d.Approvals = question.New(question.Options{Dir: dir, Journal: boxes.Journal, Link: func(id string) string { return d.URL + v1.PagePath + id }})
	t.Cleanup(func() { d.Approvals.Close() })
	level := o.Level
	if level == nil {
		level = &faketest.Driver{Agent: true}
	}
	boxes.Drivers, boxes.Approvals, boxes.Notice = map[string]sandbox.Driver{"gvisor": level}, d.Approvals, func(s string) { t.Log("notice:", s) }
	if o.Policy != nil {
		boxes.Policies = map[string]*policy.File{"": o.Policy}
	}
	if o.Change != nil {
		o.Change(&boxes)
	}
	var err error
	if d.Sandboxes, err = persistent.OpenSandboxes(t.Context(), boxes); err != nil {
		t.Fatal(err)
	}
}

// serve has all frontends answer at the server's address.
func (d *Server) serve(t *testing.T, o *Options, keys *persistent.Keys) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.URL = "http://" + ln.Addr().String()
	own := v1.New(v1.Options{Sandboxes: d.Sandboxes, Keys: keys, Approvals: d.Approvals, Domain: "localhost:1", Version: "test", Memory: &d.Memory})
	containers := openai.New(openai.Options{Sandboxes: d.Sandboxes, Keys: keys, Rest: own, Memory: &d.Memory})
	handler := e2b.New(e2b.Options{Sandboxes: d.Sandboxes, Keys: keys, Domain: "localhost:1", Rest: containers, Memory: &d.Memory})
	d.Handler = handler
	if o.Around != nil {
		d.Handler = o.Around(handler)
	}
	server := api.New(d.Handler, api.NewStats(), slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln, nil) }()
	t.Cleanup(func() {
		if err := d.Sandboxes.Close(context.Background()); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
		server.Shutdown(context.Background())
		containers.Close()
		own.Close()
		handler.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
