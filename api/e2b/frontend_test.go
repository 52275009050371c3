// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/session/persistent"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(listensVariable); how != "" && os.Args[0] != guest.AgentArgv0 {
		listenInside(how)
	}
	apitest.Init()
	// net/http lets a connection linger for half a second after its last answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// frontend is a server with two keys, on the fake level with the real agent.
type frontend struct {
	url        string
	key, other string
	boxes      *persistent.Sandboxes
	memory     *api.Memory
	log        *audit.Log
	bodies     atomic.Pointer[func(io.ReadCloser) io.ReadCloser] // what becomes of a request's body; nil is nothing
}

func newFrontend(t *testing.T) *frontend { return newFrontendUnder(t, nil) }

// newFrontendUnder is a frontend whose keys are bound to a policy. No approver can be asked.
func newFrontendUnder(t *testing.T, file *policy.File, change ...func(*persistent.SandboxesOptions)) *frontend {
	t.Helper()
	d := &frontend{}
	s := apitest.StartWith(t, apitest.Options{Policy: file, Change: func(o *persistent.SandboxesOptions) {
		o.Approvals = nil
		for _, c := range change {
			c(o)
		}
	}, Around: func(handler http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if around := d.bodies.Load(); around != nil {
				r.Body = (*around)(r.Body)
			}
			handler.ServeHTTP(w, r)
		})
	}})
	d.url, d.key, d.other, d.boxes, d.memory, d.log = s.URL, s.Key, s.Other, s.Sandboxes, &s.Memory, s.Journal
	return d
}

// ask sends one request and returns the status and the answer's JSON.
func (d *frontend) ask(t *testing.T, method, path string, header map[string]string, body string) (int, map[string]any) {
	t.Helper()
	status, b, _ := d.raw(t, method, path, header, body)
	var v map[string]any
	json.Unmarshal(b, &v)
	return status, v
}

func (d *frontend) raw(t *testing.T, method, path string, header map[string]string, body string) (int, []byte, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	if h := header["Host"]; h != "" {
		req.Host = h
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
	return resp.StatusCode, b, resp.Header
}

// box is a sandbox as a client knows it.
type box struct{ id, token string }

func (d *frontend) create(t *testing.T, more string) box {
	t.Helper()
	status, a := d.ask(t, "POST", "/v2/sandboxes", map[string]string{"X-API-Key": d.key}, `{"templateID":"base"`+more+`}`)
	if status != 201 {
		t.Fatalf("%d %v", status, a)
	}
	return box{a["sandboxID"].(string), a["envdAccessToken"].(string)}
}

// to is how a client names a port of b, with a right to its agent.
func (b box) to(port int) map[string]string {
	return map[string]string{"E2b-Sandbox-Id": b.id, "E2b-Sandbox-Port": fmt.Sprint(port), "X-Access-Token": b.token}
}

func with(h map[string]string, more ...string) map[string]string {
	h = maps.Clone(h)
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

func envelope(s string) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(s)))) + s
}

// sh runs a shell command as E2B's clients do, and returns its output.
func (d *frontend) sh(t *testing.T, b box, line string) string {
	t.Helper()
	q, _ := json.Marshal(map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", line}}, "stdin": false})
	_, answer, _ := d.raw(t, "POST", "/process.Process/Start", with(b.to(49983), "Content-Type", "application/connect+json"), envelope(string(q)))
	var out []byte
	for len(answer) >= 5 {
		n := binary.BigEndian.Uint32(answer[1:])
		var e struct {
			Event struct {
				Data struct{ Stdout, Stderr []byte }
			}
			Error any
		}
		if err := json.Unmarshal(answer[5:5+n], &e); err != nil || e.Error != nil {
			t.Fatalf("%s: %s %v", line, answer, err)
		}
		out = append(append(out, e.Event.Data.Stdout...), e.Event.Data.Stderr...)
		answer = answer[5+n:]
	}
	return string(out)
}

// Every right is looked at: none, a wrong one, and another sandbox's.
func TestRights(t *testing.T) {
	d := newFrontend(t)
	b, second := d.create(t, ""), d.create(t, "")
	calls := []struct{ method, path, body string }{
		{"GET", "/sandboxes/" + b.id, ""},
		{"DELETE", "/sandboxes/" + b.id, ""},
		{"POST", "/sandboxes/" + b.id + "/timeout", `{"timeout":1}`},
		{"POST", "/sandboxes/" + b.id + "/refreshes", `{"duration":1}`},
		{"POST", "/sandboxes/" + b.id + "/connect", `{"timeout":1}`},
		{"POST", "/v2/sandboxes/" + b.id + "/connect", `{}`},
		{"GET", "/sandboxes/" + b.id + "/metrics", ""},
		{"GET", "/v2/sandboxes/" + b.id + "/logs", ""},
	}
	for _, c := range calls {
		for name, want := range map[string]struct {
			key    string
			status int
		}{"no key": {"", 401}, "a wrong key": {"e2b_" + strings.Repeat("0", 40), 401}, "another's key": {d.other, 404}, "the sandbox's token": {b.token, 401}} {
			status, a := d.ask(t, c.method, c.path, map[string]string{"X-API-Key": want.key}, c.body)
			if status != want.status || a["code"] != float64(want.status) {
				t.Errorf("%s %s with %s: %d %v", c.method, c.path, name, status, a)
			}
		}
	}
	for _, path := range []string{"/sandboxes", "/v2/sandboxes", "/snapshots", "/sandboxes/metrics?sandbox_ids=" + b.id} {
		if status, a := d.ask(t, "GET", path, nil, ""); status != 401 {
			t.Errorf("GET %s without a key: %d %v", path, status, a)
		}
		if _, list, _ := d.raw(t, "GET", path, map[string]string{"X-API-Key": d.other}, ""); bytes.Contains(list, []byte(b.id)) {
			t.Errorf("GET %s shows another's sandbox: %s", path, list)
		}
	}
	for _, path := range []string{"POST /process.Process/List", "POST /filesystem.Filesystem/Stat", "GET /files", "POST /files", "GET /envs", "GET /metrics", "POST /init", "POST /process.Process/Start"} {
		method, path, _ := strings.Cut(path, " ")
		for name, token := range map[string]string{"no token": "", "a wrong token": strings.Repeat("0", 40), "another sandbox's": second.token, "the owner's key": d.key} {
			status, a := d.ask(t, method, path, with(b.to(49983), "X-Access-Token", token), "{}")
			if status != 401 {
				t.Errorf("%s %s with %s: %d %v", method, path, name, status, a)
			}
		}
	}
	if status, _ := d.ask(t, "GET", "/health", b.to(49983), ""); status != 204 {
		t.Errorf("health is %d after all that", status)
	}
}

// counted is a body that tells when its reader has dealt with the first so many
// bytes and wants more.
type counted struct {
	io.ReadCloser
	left int
	then func()
}

func (c *counted) Read(p []byte) (int, error) {
	if c.left <= 0 && c.then != nil {
		c.then()
		c.then = nil
	}
	n, err := c.ReadCloser.Read(p)
	c.left -= n
	return n, err
}

// What a key's messages take of the server's memory is bounded, whatever it has
// under way, and no other key's business.
func TestMessagesAreBounded(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	text := bytes.Repeat([]byte(" "), 15<<20)
	send := func(h map[string]string, body io.Reader) (int, []byte) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", d.url+"/process.Process/List", body)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range h {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return 0, nil
		}
		defer resp.Body.Close()
		answer, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, answer
	}
	arrived := make(chan struct{}, 8)
	bodies := func(r io.ReadCloser) io.ReadCloser {
		return &counted{r, len(text), func() { arrived <- struct{}{} }}
	}
	d.bodies.Store(&bodies)
	_, owner, err := d.boxes.Find(t.Context(), b.id)
	if err != nil {
		t.Fatal(err)
	}
	others, err := d.memory.Hold(owner.ID)
	if err == nil { // as of three more: a message has half a minute to arrive
		err = others.Add(api.MaxMessages - 16<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	var under sync.WaitGroup
	under.Go(func() {
		if status, a := send(b.to(49983), r); status != 200 {
			t.Errorf("one that was begun before: %d %s", status, a)
		}
	})
	w.Write(text) // it is almost whole
	<-arrived
	if status, a := send(b.to(49983), io.MultiReader(bytes.NewReader(text[:5<<20]), strings.NewReader("{}"))); status != 429 || !bytes.Contains(a, []byte("resource_exhausted")) {
		t.Errorf("one more: %d %s", status, a)
	}
	if status, a := d.ask(t, "POST", "/v2/sandboxes", map[string]string{"X-API-Key": d.other}, `{"templateID":"base"}`+string(text[:1<<19])); status != 201 {
		t.Errorf("another key's: %d %v", status, a)
	}
	io.WriteString(w, "{}")
	w.Close()
	under.Wait()
	others.Done()
	if status, a := send(b.to(49983), io.MultiReader(bytes.NewReader(text), strings.NewReader("{}"))); status != 200 {
		t.Errorf("afterwards: %d %s", status, a)
	}
}
