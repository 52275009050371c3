// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/egress/wire"
)

const (
	firstToken  = "first-access-token"
	secondToken = "second-access-token"
)

// loginHouse is a sandbox with a login whose owner renews it to what word says, and a host
// that takes the second token alone and repeats what it got.
func loginHouse(t *testing.T, expires time.Time, word wire.Renewal) (s *secure, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	word.Name = "LOGIN"
	return secured(t, secureOptions{
		secrets: []wire.Secret{{Name: "LOGIN", Placeholder: placeholder, Value: firstToken, Hosts: []string{"api.good.test:*"}, Serial: 1, Expires: expires}},
		handler: func(w http.ResponseWriter, r *http.Request) {
			auth := r.Header.Get("Authorization")
			if auth != "Bearer "+secondToken {
				w.WriteHeader(http.StatusUnauthorized)
			}
			w.Write([]byte("you sent " + auth))
		},
		stale: func(h *house, e wire.Event) {
			asked.Add(1)
			if e.Secret != "LOGIN" || e.Serial != 1 {
				t.Errorf("%+v", e)
			}
			h.r.Renewed(word)
		},
	}), asked
}

func (s *secure) askWith(t *testing.T, client *http.Client, auth string) (int, string) {
	t.Helper()
	req := request(t, "POST", s.url("/"), strings.NewReader("a question"))
	req.Header.Set("Authorization", auth)
	return ask(t, client, req)
}

// A token that has expired is renewed before a host sees it, once for all who wait; code
// sees neither.
func TestRenewExpired(t *testing.T) {
	s, asked := loginHouse(t, time.Now().Add(time.Second), wire.Renewal{Value: secondToken, Serial: 2, Expires: time.Now().Add(time.Hour)})
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			status, body := s.askWith(t, s.web(true), "Bearer "+placeholder)
			if status != 200 || strings.Contains(body, "token") || strings.Contains(body, placeholder) || !strings.Contains(body, "Bearer ***") {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	all.Wait()
	if asked.Load() != 1 {
		t.Errorf("it was renewed %d times", asked.Load())
	}
	for _, r := range s.seen {
		if got := r.Header.Get("Authorization"); got != "Bearer "+secondToken {
			t.Errorf("the host got %q", got)
		}
	}
}

// A host that refuses a token has it renewed, and the client asks again. Where there is no
// other, the refusal passes, without the token.
func TestRenewRefused(t *testing.T) {
	s, asked := loginHouse(t, time.Time{}, wire.Renewal{Value: secondToken, Serial: 2})
	client := s.web(true)
	if status, body := s.askWith(t, client, "Bearer "+placeholder); status != 503 || !strings.Contains(body, "ask again") || strings.Contains(body, "token") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.askWith(t, client, "Bearer "+placeholder); status != 200 || strings.Contains(body, secondToken) {
		t.Errorf("%d %s", status, body)
	}
	if asked.Load() != 1 {
		t.Errorf("it was renewed %d times", asked.Load())
	}
	s, _ = loginHouse(t, time.Time{}, wire.Renewal{Value: firstToken, Serial: 1})
	if status, body := s.askWith(t, s.web(false), "Bearer "+placeholder); status != 401 || strings.Contains(body, firstToken) || !strings.Contains(body, "***") {
		t.Errorf("%d %s", status, body)
	}
}

// A token that has expired and cannot be renewed goes nowhere.
func TestRenewFails(t *testing.T) {
	for what, word := range map[string]wire.Renewal{
		"a problem":       {Problem: "run claude on this host"},
		"expired as well": {Value: secondToken, Serial: 2, Expires: time.Now().Add(-time.Hour)},
		"no value":        {Value: "two\nlines", Serial: 2},
	} {
		s, _ := loginHouse(t, time.Now().Add(-time.Hour), word)
		status, body := s.askWith(t, s.web(true), "Bearer "+placeholder)
		if status != 403 || !strings.Contains(body, "LOGIN") || strings.Contains(body, "token") || what == "a problem" && !strings.Contains(body, word.Problem) {
			t.Errorf("%s: %d %s", what, status, body)
		}
		if len(s.seen) != 0 {
			t.Errorf("%s: a request went out", what)
		}
	}
}

// Who waits for a renewal when the rules change waits no longer.
func TestRenewAfterChange(t *testing.T) {
	s := secured(t, secureOptions{
		secrets: []wire.Secret{{Name: "LOGIN", Placeholder: placeholder, Value: firstToken, Hosts: []string{"api.good.test:*"}, Serial: 1, Expires: time.Now()}},
		stale: func(h *house, e wire.Event) {
			rules, ends := h.r.rules.Load(), h.r.ends.Load()
			h.r.Change(rules, &Ends{Secrets: ends.Secrets, minter: ends.minter, roots: ends.roots, sessions: ends.sessions, spoken: map[string]string{}})
		},
	})
	if status, body := s.askWith(t, s.web(true), "Bearer "+placeholder); status != 403 || !strings.Contains(body, "changed") {
		t.Errorf("%d %s", status, body)
	}
}
