// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/approval/approvaltest"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox/docker/enginetest"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/registry"
	"github.com/caisson-run/caisson/session/toolcall"
)

// Requests that a policy declares are made from sandboxes, by real routers, and its
// commands run in them: on the host's programs, on an image's, which has no shell and
// nothing that knows of TLS, and on Docker, where CAISSON_TEST_ENGINE wishes for it.
func TestDeclaredRequests(t *testing.T) {
	for _, level := range []string{"process", "gvisor", "docker"} {
		for _, image := range []bool{false, true} {
			t.Run(level+map[bool]string{true: "Image"}[image], func(t *testing.T) {
				if testing.Short() && image && level == "process" {
					t.Skip("-short: the image is tried on gVisor")
				}
				if level == "docker" && os.Getenv(internet) == "" {
					startEngine(t)
				}
				onInternet(t, func(t *testing.T) { declaredRequests(t, level, image) })
			})
		}
	}
}

// startEngine starts a container engine for the rest of the test.
func startEngine(t *testing.T) {
	if os.Getenv("CAISSON_TEST_ENGINE") == "" {
		t.Skip("make test-docker-all runs it")
	}
	engine, err := enginetest.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("DOCKER_HOST", engine.Host)
}

const requestPolicy = `version: 1
isolation: LEVEL
IMAGE
commands: {allow: [ls, echo]}
network: {allow: ["good.example.com:*"], upstream_ca: CA}
secrets: [{name: KEY, from: "env:API_KEY", hosts: [good.example.com], header: Authorization}]
tools:
  - {name: get, params: {type: object, properties: {page: {type: string}, note: {type: string}}}, redact: [note],
     http: {url: "http://good.example.com/{page}?note={note}", headers: {X-Note: "{note}"}, redirects: 3}}
  - {name: key, params: {type: object, properties: {note: {type: string}}}, http: {url: "https://good.example.com/key", headers: {Authorization: "Bearer {$KEY}", X-Note: "{note}"}}}
  - {name: say, params: {type: object, properties: {words: {type: array, items: {type: string}}, n: {type: integer}}, required: [words]}, command: [/usr/bin/echo, "n={n}", "{words...}"]}
  - {name: evil, params: {type: object}, http: {url: "http://evil.example.com/"}}
  - {name: loopback, params: {type: object}, http: {url: "http://loopback.example.com:9999/"}}
  - {name: none, params: {type: object}, http: {url: "http://good.example.com:8081/"}}
  - {name: send, params: {type: object}, rate: 1/day, http: {method: POST, url: "http://good.example.com/key", body: json}}
  - {name: asked, approve: always, params: {type: object, properties: {page: {type: string}, note: {type: string}}}, redact: [note],
     http: {url: "http://good.example.com/{page}", headers: {X-Note: "{note}"}}}
  - {name: wrongkey, params: {type: object}, http: {url: "http://good.example.com:8080/", headers: {X-Key: "{$OTHER}"}}}
`

func declaredRequests(t *testing.T, level string, image bool) {
	root := ""
	if image {
		root = filepath.Join(t.TempDir(), "image")
		imagetest.New(t, imagetest.Config{}, imagetest.Programs(t, "echo")).Layout(root)
		root = "image: " + root
	}
	ca := plugIn(t)
	serveHere(t)
	t.Setenv("API_KEY", apiKey)
	dir, err := store.Open(store.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(t.Context(), audit.Options{Dir: dir.Path()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close(); dir.Close() })
	f, err := policy.Parse("/p.yaml", []byte(strings.NewReplacer("LEVEL", level, "IMAGE", root, "CA", ca).Replace(requestPolicy)))
	if err != nil {
		t.Fatal(err)
	}
	f.Dir = "/"
	p, err := policy.New(policy.Options{File: f})
	if err != nil {
		t.Fatal(err)
	}
	approvals := question.New(question.Options{Dir: dir.Path(), Journal: log})
	t.Cleanup(func() { approvals.Close() })
	s, err := session.New(session.Options{Drivers: caisson.Drivers(), Policy: p, Journal: log, State: session.DirState(dir), Approvals: approvals})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, tool, args string
		want             string // of the answer, or of the error
		fails            bool
	}{
		{"a command", "say", `{"words":["$(id)","a b"],"n":3}`, "n=3 $(id) a b\\n", false},
		{"a page", "get", `{"page":"x","note":"n"}`, `"body":"good host"`, false},
		{"it climbs", "get", `{"page":".."}`, "the path another one", true},
		{"a line in a header", "get", `{"page":"x","note":"a\r\nHost: evil.example.com"}`, "line break", true},
		{"a redirect elsewhere", "get", `{"page":"elsewhere","note":"marked-note"}`, "no further", true},
		{"a secret", "key", `{"note":"n"}`, "Bearer " + strings.Repeat("*", len(apiKey)), false}, // the router hides it in what comes back,
		{"a host that is not allowed", "evil", `{}`, "does not allow connections", true},
		{"this host", "loopback", `{}`, "does not allow connections", true},
		{"nobody there", "none", `{}`, "", true},
		{"a secret that is none", "wrongkey", `{}`, "OTHER", true},
		{"no rate without a count", "send", `{}`, "nothing counts calls here", true},
	} {
		a, err := toolcall.Of(s).CallTool(t.Context(), &toolcall.Call{Name: c.tool, Args: []byte(c.args), Frontend: "test", Actor: "me", Operator: true})
		got := fmt.Sprint(err)
		if err == nil {
			b, _ := json.Marshal(a.Output)
			got = string(b)
			if text, _ := a.Shown(); c.tool != "say" && (!strings.HasPrefix(text, "[HTTP status 200; content-type: text/plain; charset=utf-8]\n") || !strings.Contains(got, text[len(text)-4:])) {
				t.Errorf("%s: a model reads %q", c.name, text)
			}
		}
		if (err != nil) != c.fails || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	askedRequest(t, s, approvals)
	keyedRequest(t, f, log, dir)
	// Records have the request, the connection, and nothing that is to be kept out.
	text := ""
	for r, err := range log.Query(t.Context(), audit.Filter{OldestFirst: true}) {
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(r)
		text += string(b) + "\n"
	}
	if !strings.Contains(text, `"call_http"`) || !strings.Contains(text, "good.example.com/x?note=") || strings.Contains(text, "note=n") || strings.Contains(text, "marked-note") || strings.Contains(text, apiKey) {
		t.Errorf("%s", text)
	}
	if left, err := filepath.Glob(filepath.Join(dir.Path(), "run", "sbx_*")); err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
}

// A request that is asked about is made after a yes to it, once, and to no other.
func askedRequest(t *testing.T, s *session.Session, approvals *question.Approvals) {
	ada := approvaltest.Ada(t, approvaltest.Store(t, approvals), approval.CLI)
	call := func(args, token string) (*toolcall.Answer, error) {
		return toolcall.Of(s).CallTool(t.Context(), &toolcall.Call{Name: "asked", Args: []byte(args), Frontend: "test", Actor: "me", Operator: true, Ways: question.Ways{Resumable: true, Approval: token}})
	}
	for _, again := range []string{`{"page":"x","note":"marked-note"}`, `{"page":"y","note":"marked-note"}`, `{"page":"x","note":"another"}`} {
		_, err := call(`{"page":"x","note":"marked-note"}`, "")
		var p *question.Pending
		if !errors.As(err, &p) {
			t.Fatal(err)
		}
		if view := p.Request.View.String(); !strings.Contains(view, "http://good.example.com/x") || !strings.Contains(view, "call_http") || strings.Contains(view, "marked-note") {
			t.Errorf("%s", view)
		}
		if _, err := approvals.Answer(t.Context(), ada, p.Request.ID, question.Answer{Yes: true, Digest: p.Request.Digest}); err != nil {
			t.Fatal(err)
		}
		a, err := call(again, p.Token)
		if same := again == `{"page":"x","note":"marked-note"}`; same && (err != nil || a.Output["body"] != "good host") || !same && err == nil {
			t.Errorf("%s: %+v, %v", again, a, err)
		}
	}
}

// A key's request counts for its rates, and is made in a sandbox that is its own.
func keyedRequest(t *testing.T, f *policy.File, log *audit.Log, dir *store.Dir) {
	reg, err := registry.Open(t.Context(), dir.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	b, err := persistent.OpenSandboxes(t.Context(), persistent.SandboxesOptions{Drivers: caisson.Drivers(), Journal: log, State: session.DirState(dir), Registry: reg,
		Policies: map[string]*policy.File{"": f}, Templates: map[string]persistent.Template{persistent.BaseTemplate: {Root: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(t.Context())
	for i, fails := range []bool{false, true} {
		a, err := b.CallTool(t.Context(), &persistent.Key{ID: "k1", Name: "k"}, &toolcall.Call{Name: "send", Args: []byte(`{"a":1}`), Frontend: "test"})
		if (err != nil) != fails || !fails && a.Output["status"] != 200 {
			t.Errorf("%d: %+v, %v", i, a, err)
		}
	}
}
