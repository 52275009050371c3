// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/api/v1"
)

func TestMain(m *testing.M) {
	apitest.Init()
	// net/http lets a connection linger for half a second after its last answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// frontend is a server with two keys.
type frontend struct{ url, key, other string }

func newFrontend(t *testing.T) *frontend { return newFrontendUnder(t, "") }

// newFrontendUnder is a frontend whose keys are bound to a policy.
func newFrontendUnder(t *testing.T, text string) *frontend {
	s := apitest.Start(t, text)
	return &frontend{s.URL, s.Key, s.Other}
}

// raw sends one request; header has names and values in turns.
func (d *frontend) raw(t *testing.T, method, path, body string, header ...string) (*http.Response, []byte) {
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
func (d *frontend) ask(t *testing.T, method, path, body string, header ...string) (int, map[string]any) {
	t.Helper()
	resp, b := d.raw(t, method, path, body, header...)
	var v map[string]any
	json.Unmarshal(b, &v)
	return resp.StatusCode, v
}

// create makes a sandbox and returns its ID.
func (d *frontend) create(t *testing.T, body string) string {
	t.Helper()
	status, a := d.ask(t, "POST", "/v1/sandboxes", body)
	if status != 201 {
		t.Fatalf("%d %v", status, a)
	}
	return a["id"].(string)
}

// exec runs a shell line and returns the answer.
func (d *frontend) exec(t *testing.T, id, line string) map[string]any {
	t.Helper()
	q, _ := json.Marshal(map[string]any{"shell": line})
	status, a := d.ask(t, "POST", "/v1/sandboxes/"+id+"/exec", string(q))
	if status != 200 {
		t.Fatalf("%d %v", status, a)
	}
	return a
}

// slow is an answer that notices whether writes to it have a time.
type slow struct {
	*httptest.ResponseRecorder
	timed bool
	ever  bool
}

func (s *slow) SetWriteDeadline(at time.Time) error { s.timed = !at.IsZero(); return nil }

func (s *slow) Write(b []byte) (int, error) {
	s.ever = s.ever || !s.timed
	return s.ResponseRecorder.Write(b)
}

// Who has no key, and does not read an answer, is not waited for.
func TestAnswersForEverybodyHaveATime(t *testing.T) {
	s := v1.New(v1.Options{Rest: api.Operator(api.NewStats(), nil, nil)})
	for _, path := range []string{"/openapi.json", "/openapi.yaml", "/v1/sandboxes", "/healthz", "/metrics", "/nothing"} {
		w := &slow{ResponseRecorder: httptest.NewRecorder()}
		s.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.ever || w.Body.Len() == 0 {
			t.Errorf("%s: %d bytes, written for as long as it takes: %t", path, w.Body.Len(), w.ever)
		}
	}
}
