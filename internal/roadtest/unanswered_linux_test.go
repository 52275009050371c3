// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/e2b"
	"github.com/caisson-run/caisson/api/v1"
	"github.com/caisson-run/caisson/session/persistent"
)

// lost is the answer to a client that has gone when it is sent.
type lost struct{ *httptest.ResponseRecorder }

func (lost) FlushError() error { return errors.New("connection reset by peer") }

// Copies of which no client has heard are ended, through either frontend.
func TestUnansweredForks(t *testing.T) {
	l := openLiving(t, filepath.Join(t.TempDir(), "state"), "gvisor", func(o *persistent.SandboxesOptions) { o.EndOnClose = true })
	const token = "the-token-of-the-test-0123456789"
	keys, err := persistent.OpenKeys(l.reg, token)
	if err != nil {
		t.Fatal(err)
	}
	own := v1.New(v1.Options{Sandboxes: l.Sandboxes, Keys: keys, Domain: "localhost:1", Memory: &api.Memory{}})
	theirs := e2b.New(e2b.Options{Sandboxes: l.Sandboxes, Keys: keys, Domain: "localhost:1", Rest: own, Memory: &api.Memory{}})
	defer own.Close()
	defer theirs.Close()
	ask := func(w http.ResponseWriter, method, path, body string) {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Host = "127.0.0.1"
		r.Header.Set("X-API-Key", token)
		r.Header.Set("Content-Type", "application/json")
		theirs.ServeHTTP(w, r)
	}
	alive := func() int {
		rec := httptest.NewRecorder()
		ask(rec, "GET", "/v1/sandboxes", "")
		return strings.Count(rec.Body.String(), `"state":"running"`)
	}
	made := httptest.NewRecorder()
	ask(made, "POST", "/v1/sandboxes", "{}")
	_, rest, _ := strings.Cut(made.Body.String(), `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	for _, path := range []string{"/v1/sandboxes/" + id + "/fork", "/sandboxes/" + id + "/fork"} {
		for _, c := range []struct {
			heard bool
			want  int
		}{{false, 0}, {true, 2}} {
			before, rec := alive(), httptest.NewRecorder()
			var w http.ResponseWriter = lost{rec}
			if c.heard {
				w = rec
			}
			ask(w, "POST", path, `{"count":2}`)
			if now := alive(); rec.Code != http.StatusCreated || now != before+c.want {
				t.Errorf("%s, heard of %v: %d live, %d did before, want %d more: %d %s", path, c.heard, now, before, c.want, rec.Code, rec.Body)
			}
		}
	}
}
