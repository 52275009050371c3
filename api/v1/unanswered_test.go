// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/apitest"
)

// lost is the answer to a client that has gone when it is sent.
type lost struct{ *httptest.ResponseRecorder }

func (lost) FlushError() error { return errors.New("connection reset by peer") }

// late ends a request's context when it is answered, which is how one ends whose client
// reads the answer and hangs up.
type late struct {
	*httptest.ResponseRecorder
	hangUp func()
}

func (l late) Write(b []byte) (int, error) { l.hangUp(); return l.ResponseRecorder.Write(b) }

// A sandbox of which no client has heard is ended, through either frontend. One of
// which a client has heard, or that has a name to ask for, lives.
func TestUnanswered(t *testing.T) {
	s := apitest.Start(t, "")
	d := &frontend{s.URL, s.Key, s.Other}
	alive := func() (ids []string) {
		t.Helper()
		_, a := d.ask(t, "GET", "/v1/sandboxes", "")
		for _, b := range a["sandboxes"].([]any) {
			ids = append(ids, b.(map[string]any)["id"].(string))
		}
		return ids
	}
	for _, c := range []struct {
		what, path, body string
		lost             bool
		want             int // of the persistent ones
	}{
		{"v1", "/v1/sandboxes", "{}", true, 0},
		{"v1, heard of", "/v1/sandboxes", "{}", false, 1},
		{"v1, by name", "/v1/sandboxes", `{"name":"ours"}`, true, 1},
		{"E2B", "/v2/sandboxes", `{"templateID":"base"}`, true, 0},
		{"E2B, heard of", "/v2/sandboxes", `{"templateID":"base"}`, false, 1},
	} {
		before := len(alive())
		ctx, hangUp := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "POST", c.path, strings.NewReader(c.body))
		r.Host = "127.0.0.1"
		r.Header.Set("X-API-Key", s.Key)
		r.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		var w http.ResponseWriter = late{rec, hangUp}
		if c.lost {
			w = lost{rec}
		}
		s.Handler.ServeHTTP(w, r)
		hangUp()
		if rec.Code != http.StatusCreated {
			t.Fatalf("%s: %d %s", c.what, rec.Code, rec.Body)
		}
		if now := len(alive()); now != before+c.want {
			t.Errorf("%s: %d live, %d did before, want %d more", c.what, now, before, c.want)
		}
	}
}
