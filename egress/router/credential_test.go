// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

const (
	holder = "caisson-secret-aaaaaaaaaaaaaaaa"
	value  = "sk-the-real-value"
)

func secret(t testing.TB, change func(*wire.Secret)) *Secret {
	t.Helper()
	s := wire.Secret{Name: "KEY", Placeholder: holder, Value: value, Hosts: []string{"api.test"}}
	if change != nil {
		change(&s)
	}
	c, err := NewSecret(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// The matrix of headers: what becomes of them, or "!" and the header of a
// credential that is not ours.
func TestFill(t *testing.T) {
	format := func(s *wire.Secret) { s.Format = "Bearer {}" }
	key := func(s *wire.Secret) { s.Header = "x-api-key" }
	others := func(s *wire.Secret) { s.Others = true }
	for what, c := range map[string]struct {
		change func(*wire.Secret)
		sent   string // lines
		want   string
	}{
		"alone":                          {nil, "Authorization: " + holder, "Authorization: " + value},
		"after a scheme":                 {nil, "Authorization: token " + holder, "Authorization: token " + value},
		"a password":                     {nil, "Authorization: Basic " + b64("user:"+holder), "Authorization: Basic " + b64("user:"+value)},
		"a user":                         {nil, "Authorization: basic " + b64(holder+":"), "Authorization: Basic " + b64(value+":")},
		"a format":                       {format, "Authorization: " + holder, "Authorization: Bearer " + value},
		"a format and a scheme":          {format, "Authorization: token " + holder, "Authorization: Bearer " + value},
		"a format and a password":        {format, "Authorization: Basic " + b64("x:"+holder), "Authorization: Bearer " + value},
		"its own header":                 {key, "X-Api-Key: " + holder, "X-Api-Key: " + value},
		"another header":                 {nil, "X-Note: " + holder, "X-Note: " + holder},
		"another header of credentials":  {nil, "X-Api-Key: " + holder, "!X-Api-Key"},
		"not in its header":              {key, "Authorization: " + holder, "!Authorization"},
		"no credential":                  {nil, "Accept: */*", "Accept: */*"},
		"somebody's":                     {nil, "Authorization: Bearer theirs", "!Authorization"},
		"somebody's beside ours":         {nil, "Authorization: Bearer theirs, Bearer " + holder, "!Authorization"},
		"two":                            {nil, "Authorization: " + holder + "\nAuthorization: Bearer theirs", "!Authorization"},
		"ours and a key":                 {nil, "Authorization: " + holder + "\nX-Api-Key: theirs", "!X-Api-Key"},
		"with underscores":               {nil, "X_api_key: theirs", "!X_api_key"},
		"a longer placeholder":           {nil, "Authorization: " + holder + "a", "!Authorization"},
		"both halves":                    {nil, "Authorization: Basic " + b64(holder+":"+holder), "!Authorization"},
		"a broken password":              {nil, "Authorization: Basic " + holder + "=", "!Authorization"},
		"a cookie":                       {nil, "Cookie: session=theirs\nAccept: a", "Accept: a"},
		"somebody's, allowed":            {others, "Authorization: Bearer theirs\nCookie: a=b", "Authorization: Bearer theirs\nCookie: a=b"},
		"ours and a cookie, allowed":     {others, "Authorization: " + holder + "\nCookie: a=b", "Authorization: " + value + "\nCookie: a=b"},
		"a placeholder in two, one ours": {others, "Authorization: " + holder + "\nX-Api-Key: " + holder, "Authorization: " + value + "\nX-Api-Key: " + holder},
	} {
		h := http.Header{}
		for _, line := range strings.Split(c.sent, "\n") {
			k, v, _ := strings.Cut(line, ": ")
			h[k] = append(h[k], v)
		}
		_, err := at(t, Secrets{secret(t, c.change)}, h)
		var lines []string
		for k, vs := range h {
			for _, v := range vs {
				lines = append(lines, k+": "+v)
			}
		}
		slices.Sort(lines)
		got := strings.Join(lines, "\n")
		var foreign *ErrForeign
		if errors.As(err, &foreign) {
			got = "!" + foreign.Header
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// The matrix of where a secret goes, and where another's credential may.
func TestWhere(t *testing.T) {
	s := Secrets{
		secret(t, nil), secret(t, func(s *wire.Secret) { s.Hosts, s.Others = []string{"*.api.test:8443"}, true }),
		secret(t, func(s *wire.Secret) { s.Hosts, s.Plain = []string{"plain.test:80"}, true }),
	}
	for _, c := range []struct {
		host          string
		port          uint16
		tls           bool
		filled, other bool
	}{
		{"api.test", 443, true, true, false}, {"api.test", 443, false, false, false}, {"api.test", 8443, true, false, false}, {"api.test", 80, false, false, false},
		{"a.api.test", 8443, true, true, true}, {"a.api.test", 443, true, false, true}, {"xapi.test", 443, true, false, true}, {"evil.test", 443, true, false, true},
		{"plain.test", 80, false, true, false}, {"plain.test", 443, true, false, false},
	} {
		h := http.Header{"Authorization": {"Bearer " + holder}}
		_, _ = s.Fill(host(t, c.host), c.port, c.tls, h)
		if filled := h.Get("Authorization") == "Bearer "+value; filled != c.filled {
			t.Errorf("%+v: %v", c, h)
		}
		_, err := s.Fill(host(t, c.host), c.port, c.tls, http.Header{"Authorization": {"Bearer theirs"}})
		if (err == nil) != c.other {
			t.Errorf("somebody's at %+v: %v", c, err)
		}
	}
	var seen []string
	for _, r := range s.Hosts() {
		for _, at := range []string{"api.test", "a.api.test", "plain.test"} {
			for _, port := range []uint16{22, 443, 8443} {
				if r.Matches(host(t, at), port) {
					seen = append(seen, fmt.Sprintf("%s:%d", at, port))
				}
			}
		}
	}
	if want := "api.test:22 api.test:443 api.test:8443 a.api.test:8443 plain.test:22 plain.test:443 plain.test:8443"; strings.Join(seen, " ") != want {
		t.Errorf("%s are seen", seen)
	}
}

func host(t testing.TB, s string) rule.Name {
	t.Helper()
	n, err := rule.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// at is where these tests send requests.
func at(t testing.TB, s Secrets, h http.Header) (Redaction, error) {
	return s.Fill(host(t, "api.test"), 443, true, h)
}

func TestNewRefuses(t *testing.T) {
	for what, change := range map[string]func(*wire.Secret){
		"no value":               func(s *wire.Secret) { s.Value = "" },
		"a line end":             func(s *wire.Secret) { s.Value = "a\r\nHost: b" },
		"no ASCII":               func(s *wire.Secret) { s.Value = "é" },
		"too long":               func(s *wire.Secret) { s.Value = wire.Value(strings.Repeat("a", rule.MaxSecret+1)) },
		"a short placeholder":    func(s *wire.Secret) { s.Placeholder = "KEY" },
		"no header":              func(s *wire.Secret) { s.Header = "a b" },
		"a header of the way":    func(s *wire.Secret) { s.Header = "host" },
		"a format without":       func(s *wire.Secret) { s.Format = "Bearer" },
		"a format with two":      func(s *wire.Secret) { s.Format = "{} {}" },
		"a format with line end": func(s *wire.Secret) { s.Format = "{}\n" },
		"a range":                func(s *wire.Secret) { s.Hosts = []string{"10.0.0.0/8"} },
		"the internet":           func(s *wire.Secret) { s.Hosts = []string{"internet"} },
	} {
		s := wire.Secret{Name: "KEY", Placeholder: holder, Value: value, Hosts: []string{"api.test"}}
		change(&s)
		_, err := NewSecret(s)
		if err == nil {
			t.Errorf("%s is taken", what)
		} else if strings.Contains(err.Error(), value) {
			t.Errorf("%s: the error has the value: %v", what, err)
		}
	}
}

// No way to print has the value, but the one that the router is told by.
func TestHidden(t *testing.T) {
	s := wire.Secret{Name: "KEY", Placeholder: holder, Value: value}
	if got := fmt.Sprintf("%v %+v %#v %s %q", s, s, s, s.Value, s.Value); strings.Contains(got, value) {
		t.Error(got)
	}
	if b, err := json.Marshal(s); err != nil || !strings.Contains(string(b), value) {
		t.Errorf("%s, %v", b, err)
	}
}

// FuzzFill holds that a secret goes into its header alone, and into no request
// without its placeholder.
func FuzzFill(f *testing.F) {
	f.Add("Authorization", "Bearer "+holder)
	f.Add("X-Api-Key", holder)
	f.Add("Authorization", "Basic "+b64("a:"+holder))
	f.Fuzz(func(t *testing.T, key, v string) {
		h := http.Header{key: {v}}
		_, err := at(t, Secrets{secret(t, nil)}, h)
		if err != nil || v != "" && h.Get("Authorization") == v {
			return
		}
		for k, vs := range h {
			if got := vs[0] + basic(vs[0]); strings.Contains(got, value) && (k != "Authorization" || !strings.Contains(v+basic(v), holder)) && !strings.Contains(v+basic(v), value) {
				t.Errorf("%q: %q gives %q", key, v, got)
			}
		}
	})
}
