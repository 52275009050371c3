// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

func headers(t testing.TB, list ...wire.Header) Headers {
	t.Helper()
	h, err := NewHeaders(list)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The matrix of hosts and headers: those of the longest name count, alone, and one that the
// program sent gives way.
func TestSetHeaders(t *testing.T) {
	l := headers(t,
		wire.Header{Host: "api.test", Name: "x-name", Value: "exact"}, wire.Header{Host: "*.w.test", Name: "X-Name", Value: "wide"}, wire.Header{Host: "*.w.test", Name: "X-More", Value: "more"},
		wire.Header{Host: "*.b.w.test", Name: "X-Name", Value: "longer"}, wire.Header{Host: "port.test:8080", Name: "X-Name", Value: "port"})
	for what, c := range map[string]struct {
		host       string
		port       uint16
		sent, want string // lines
	}{
		"exact":               {"api.test", 443, "", "X-Name: exact"},
		"in plain":            {"api.test", 80, "", "X-Name: exact"},
		"another port":        {"api.test", 8443, "X-Name: theirs", "X-Name: theirs"},
		"a port":              {"port.test", 8080, "", "X-Name: port"},
		"below a name":        {"c.w.test", 443, "", "X-More: more\nX-Name: wide"},
		"deep below it":       {"a.b.w.test", 443, "", "X-Name: longer"},
		"the name itself":     {"b.w.test", 443, "", "X-More: more\nX-Name: wide"},
		"another host":        {"api.test.evil", 443, "X-Name: theirs", "X-Name: theirs"},
		"one that was sent":   {"api.test", 443, "X-Name: theirs\nX-Name: theirs2\nX-Other: a", "X-Name: exact\nX-Other: a"},
		"in other words":      {"api.test", 443, "X_name: theirs", "X-Name: exact"},
		"taken out by name":   {"api.test", 443, "Connection: close, x-name", "X-Name: exact"},
		"that of an upgrade":  {"api.test", 443, "Connection: upgrade, x-name\nUpgrade: websocket", "Connection: Upgrade\nUpgrade: websocket\nX-Name: exact"},
		"one that has none":   {"none.example", 443, "Connection: x-name", "Connection: x-name"},
		"one without a name ": {"", 443, "X-Name: theirs", "X-Name: theirs"},
	} {
		h := http.Header{}
		for _, line := range strings.Split(c.sent, "\n") {
			if name, v, ok := strings.Cut(line, ": "); ok {
				h[name] = append(h[name], v)
			}
		}
		var n rule.Name
		if c.host != "" {
			n = parseName(t, c.host)
		}
		l.Set(n, c.port, nil, h)
		var got []string
		for name, values := range h {
			for _, v := range values {
				got = append(got, name+": "+v)
			}
		}
		if slices.Sort(got); strings.Join(got, "\n") != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	for _, bad := range []wire.Header{{Host: "a.test", Name: "Host", Value: "x"}, {Host: "*", Name: "X", Value: "x"}, {Host: "internet", Name: "X", Value: "x"}, {Host: "a.test", Name: "X", Value: "a\r\nb"}, {Host: "a.test", Name: "X"}} {
		if _, err := NewHeaders([]wire.Header{bad}); err == nil {
			t.Errorf("%s for %s is taken", bad.Name, bad.Host)
		}
	}
	if s := fmt.Sprintf("%v %+v %#v", wire.Header{Value: "SECRET"}, wire.Header{Value: "SECRET"}, wire.Header{Value: "SECRET"}); strings.Contains(s, "SECRET") {
		t.Error(s)
	}
}

// A client's header is judged as one that a program sent: it is no other credential at a
// secret's host, no other method, and it takes no secret's place.
func TestHeadersAreJudged(t *testing.T) {
	secret := wire.Secret{Name: "KEY", Placeholder: placeholder, Value: realValue, Hosts: []string{"api.good.test:*"}}
	other := secret
	other.Others = true
	for what, c := range map[string]struct {
		secrets []wire.Secret
		web     rule.Web
		name    string
		sent    string // Authorization
		want    string // of the header, or of the reason
		refused bool
	}{
		"no secret":                        {nil, rule.Web{}, "X-Name", "", "ours", false},
		"an Authorization":                 {nil, rule.Web{}, "Authorization", "theirs", "ours", false},
		"beside a secret":                  {[]wire.Secret{secret}, rule.Web{}, "X-Name", "Bearer " + placeholder, "ours", false},
		"a secret's":                       {[]wire.Secret{secret}, rule.Web{}, "Authorization", "Bearer " + placeholder, "Bearer " + realValue, false},
		"a secret's, others are let in":    {[]wire.Secret{other}, rule.Web{}, "authorization", "Bearer " + placeholder, "Bearer " + realValue, false},
		"another credential":               {[]wire.Secret{secret}, rule.Web{}, "X-Api-Key", "", "credential of its own in the header X-Api-Key", true},
		"another credential, others there": {[]wire.Secret{other}, rule.Web{}, "X-Api-Key", "", "ours", false},
		"another method":                   {nil, rule.Web{Methods: []string{"GET"}}, "X-HTTP-Method-Override", "", "another method", true},
	} {
		s := secured(t, secureOptions{secrets: c.secrets, web: c.web, headers: []wire.Header{{Host: "api.good.test:1", Name: "X-None", Value: "none"}}})
		// Which port the server has is known now; and others take the place of what was there.
		for _, v := range []wire.Value{"before", "ours"} {
			rules := *s.r.rules.Load()
			ends := s.ends(t, c.secrets, wire.Header{Host: fmt.Sprintf("api.good.test:%d", s.port), Name: c.name, Value: v})
			rules.Ended = ends.hosts()
			s.r.Change(&rules, ends)
		}
		req := request(t, "GET", s.url("/"), nil)
		if c.sent != "" {
			req.Header.Set("Authorization", c.sent)
		}
		status, body := ask(t, s.web(true), req)
		got := http.Header{}
		if r := s.got(); r != nil {
			got = r.Header
		}
		switch {
		case c.refused && (status != 403 || !strings.Contains(body, c.want) || strings.Contains(body, "ours")):
			t.Errorf("%s: %d %s", what, status, body)
		case !c.refused && (status != 200 || got.Get(c.name) != c.want || got.Get("X-None") != ""):
			t.Errorf("%s: %d %s; %v", what, status, body, got)
		}
		if told := s.told(); strings.Contains(told, "ours") {
			t.Errorf("%s: it is told: %s", what, told)
		}
	}
}

// Headers open no host: one that the rules do not allow is refused as before.
func TestHeadersOpenNothing(t *testing.T) {
	s := secured(t, secureOptions{headers: []wire.Header{{Host: "*.elsewhere.test:443", Name: "X-Name", Value: "ours"}}})
	if status, body := ask(t, s.web(true), request(t, "GET", "https://api.elsewhere.test/", nil)); status == 200 {
		t.Errorf("%d %s", status, body)
	}
}
