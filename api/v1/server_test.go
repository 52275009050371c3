// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/api/apitest"
)

func TestMain(m *testing.M) {
	apitest.Init()
	// net/http lets a connection linger for half a second after its last answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// door is a server with two keys.
type door struct{ url, key, other string }

func newDoor(t *testing.T) *door { return newDoorUnder(t, "") }

// newDoorUnder is a door whose keys are bound to a policy.
func newDoorUnder(t *testing.T, text string) *door {
	s := apitest.Start(t, text)
	return &door{s.URL, s.Key, s.Other}
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
