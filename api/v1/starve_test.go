// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/apitest"
)

// One key that asks for as much as it can keeps no other key out.
func TestOneKeyStarvesNobody(t *testing.T) {
	s := apitest.Start(t, "")
	d := &frontend{s.URL, s.Key, s.Other}
	ctx, end := context.WithCancel(t.Context())
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	const more = 8
	refused := make(chan int, api.MaxCalls+more)
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	for range api.MaxCalls + more {
		all.Go(func() {
			req, err := http.NewRequestWithContext(ctx, "GET", d.url+"/v1/events?wait=60", nil)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("X-API-Key", d.key)
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return // the end of the test
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			refused <- resp.StatusCode
		})
	}
	for range more {
		if status := <-refused; status != http.StatusTooManyRequests {
			t.Fatalf("%d, for one call more than a key has", status)
		}
	}
	if status, a := d.ask(t, "GET", "/sandboxes", ""); status != http.StatusTooManyRequests {
		t.Errorf("by the other frontend: %d %v", status, a)
	}
	d.key = d.other
	if status, a := d.ask(t, "GET", "/v1/sandboxes", ""); status != http.StatusOK {
		t.Errorf("another key: %d %v", status, a)
	}
}

// Every way in counts: the agent as its owner's, a port and a signature as visits,
// which take no place of the owner's.
func TestEveryFrontendCounts(t *testing.T) {
	s := apitest.Start(t, "")
	d := &frontend{s.URL, s.Key, s.Other}
	status, made := d.ask(t, "POST", "/sandboxes", `{"templateID":"base"}`)
	if status != 201 {
		t.Fatal(status, made)
	}
	id := made["sandboxID"].(string)
	b, owner, err := s.Sandboxes.Find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	agent := []string{"E2b-Sandbox-Id", b.ID, "E2b-Sandbox-Port", "49983", "X-Access-Token", made["envdAccessToken"].(string), "Content-Type", "application/json"}
	port := []string{"E2b-Sandbox-Id", b.ID, "E2b-Sandbox-Port", "8000"}
	fill := func(enter func(string) (*api.Held, error)) (leave func()) {
		var all []*api.Held
		for {
			h, err := enter(owner.ID)
			if err != nil {
				return func() {
					for _, h := range all {
						h.Done()
					}
				}
			}
			all = append(all, h)
		}
	}
	look := func(calls, visits int) {
		t.Helper()
		for _, c := range []struct {
			what, method, path string
			header             []string
			want               int
		}{
			{"v1", "GET", "/v1/sandboxes", nil, calls},
			{"the control plane", "GET", "/v2/sandboxes", nil, calls},
			{"the agent", "POST", "/process.Process/List", agent, calls},
			{"files by the agent", "GET", "/files?path=/etc/passwd", agent, calls},
			{"a port", "GET", "/", port, visits},
		} {
			status, a := d.ask(t, c.method, c.path, "{}", c.header...)
			if limited := status == http.StatusTooManyRequests; limited != (c.want == http.StatusTooManyRequests) {
				t.Errorf("%s: %d %v, want %d", c.what, status, a, c.want)
			}
		}
	}
	leave := fill(s.Memory.Hold)
	look(429, 200)
	leave()
	leave = fill(s.Memory.Visit)
	look(200, 429)
	leave()
	look(200, 200)
}
