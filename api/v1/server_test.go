// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/e2b"
	"github.com/caisson-run/caisson/api/v1"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/guest/embedded"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

func TestMain(m *testing.M) {
	if os.Args[0] == embedded.Argv0 {
		agent.Main()
	}
	faketest.Init()
	// net/http lets a connection linger for half a second after its last answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// door is a server with two keys, on the fake level with the real agent, behind
// E2B's door as caisson serve has it.
type door struct {
	url        string
	key, other string
	boxes      *session.Sandboxes
	journal    *audit.Log
}

func newDoor(t *testing.T) *door { return newDoorUnder(t, "") }

// newDoorUnder is a door whose keys are bound to a policy.
func newDoorUnder(t *testing.T, text string) *door {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the fake level needs root")
	}
	dir, err := store.Open(store.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	d := &door{}
	if d.journal, err = audit.Open(t.Context(), audit.Options{Dir: dir.Path()}); err != nil {
		t.Fatal(err)
	}
	reg, err := registry.Open(t.Context(), dir.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reg.Close(); d.journal.Close(); dir.Close() })
	keys, err := session.OpenKeys(reg, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []*string{&d.key, &d.other} {
		if _, *token, err = keys.Create(t.Context(), "", "", ""); err != nil {
			t.Fatal(err)
		}
	}
	var policies map[string]*policy.File
	if text != "" {
		file, err := policy.Parse("/p.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		file.Dir = "/"
		policies = map[string]*policy.File{"": file}
	}
	d.boxes, err = session.OpenSandboxes(t.Context(), session.SandboxesOptions{
		Drivers: map[string]sandbox.Driver{"gvisor": &faketest.Driver{Agent: true}}, Journal: d.journal, State: session.DirState(dir), Registry: reg,
		Policies: policies, Notice: func(s string) { t.Log("notice:", s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.url = "http://" + ln.Addr().String()
	own := v1.New(v1.Options{Sandboxes: d.boxes, Keys: keys, Domain: "localhost:1", Version: "test"})
	handler := e2b.New(e2b.Options{Sandboxes: d.boxes, Keys: keys, Domain: "localhost:1", Rest: own})
	server := api.New(handler, api.NewStats(), slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln, nil) }()
	t.Cleanup(func() {
		if err := d.boxes.Close(context.Background()); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
		server.Shutdown(context.Background())
		own.Close()
		handler.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return d
}

// raw sends one request; header has names and values in turns.
func (d *door) raw(t *testing.T, method, path, body string, header ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", d.key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, b
}

// ask sends one request and returns the status and the answer's JSON.
func (d *door) ask(t *testing.T, method, path, body string, header ...string) (int, map[string]any) {
	t.Helper()
	resp, b := d.raw(t, method, path, body, header...)
	var v map[string]any
	json.Unmarshal(b, &v)
	return resp.StatusCode, v
}

// create makes a sandbox and returns its ID.
func (d *door) create(t *testing.T, body string) string {
	t.Helper()
	status, a := d.ask(t, "POST", "/v1/sandboxes", body)
	if status != 201 {
		t.Fatalf("%d %v", status, a)
	}
	return a["id"].(string)
}

// exec runs a shell line and returns the answer.
func (d *door) exec(t *testing.T, id, line string) map[string]any {
	t.Helper()
	q, _ := json.Marshal(map[string]any{"shell": line})
	status, a := d.ask(t, "POST", "/v1/sandboxes/"+id+"/exec", string(q))
	if status != 200 {
		t.Fatalf("%d %v", status, a)
	}
	return a
}
