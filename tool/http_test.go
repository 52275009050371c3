// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseHTTP(t *testing.T) {
	const ok = "https://api.example.com/v1/{id}?q={q}"
	for name, s := range map[string]HTTPSpec{
		"nothing":                   {},
		"no scheme":                 {URL: "api.example.com/x"},
		"another scheme":            {URL: "file:///etc/passwd"},
		"a host of the caller's":    {URL: "https://{host}/x"},
		"a part of it":              {URL: "https://{team}.example.com/x"},
		"a port of the caller's":    {URL: "https://example.com:{port}/x"},
		"a password":                {URL: "https://a:b@example.com/"},
		"a host that is escaped":    {URL: "https://%65xample.com/"},
		"a fragment":                {URL: "https://example.com/x#{id}"},
		"a name in the query":       {URL: "https://example.com/x?{id}=1"},
		"a secret in the path":      {URL: "https://example.com/{$KEY}"},
		"a list":                    {URL: "https://example.com/{id...}"},
		"a space":                   {URL: "https://example.com/a b"},
		"a backslash":               {URL: `https://example.com\@evil.example/`},
		"a method of its own":       {URL: ok, Method: "CONNECT"},
		"a line in the method":      {URL: ok, Method: "GET / HTTP/1.1\r\nX: y"},
		"a body of GET":             {URL: ok, Body: "json"},
		"another body":              {URL: ok, Method: "POST", Body: "xml"},
		"the host header":           {URL: ok, Headers: map[string]string{"Host": "evil.example"}},
		"a length":                  {URL: ok, Headers: map[string]string{"Content-Length": "1"}},
		"an encoding":               {URL: ok, Headers: map[string]string{"Transfer-Encoding": "chunked"}},
		"a header twice":            {URL: ok, Headers: map[string]string{"X-A": "1", "x-a": "2"}},
		"a header's name":           {URL: ok, Headers: map[string]string{"X A": "1"}},
		"a line in a header":        {URL: ok, Headers: map[string]string{"X-A": "1\r\nX-B: 2"}},
		"a name of a header's name": {URL: ok, Headers: map[string]string{"X-{id}": "1"}},
		"a type beside a body":      {URL: ok, Method: "POST", Body: "json", Headers: map[string]string{"Content-Type": "text/plain"}},
		"a long answer":             {URL: ok, Response: MaxResponse + 1},
		"many redirects":            {URL: ok, Redirects: 11},
		"a long time":               {URL: ok, Timeout: 2 * time.Hour},
	} {
		if h, err := ParseHTTP(s); err == nil {
			t.Errorf("%s: %+v", name, h)
		}
	}
	h, err := ParseHTTP(HTTPSpec{URL: ok, Headers: map[string]string{"Authorization": "Bearer {$KEY}", "X-Trace": "{trace}"}})
	if err != nil || h.Endpoint() != "api.example.com:443" || !slices.Equal(h.Arguments(), []string{"id", "q", "trace"}) || !slices.Equal(h.Secrets(), []string{"KEY"}) {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestHTTPRequest(t *testing.T) {
	h, err := ParseHTTP(HTTPSpec{Method: "POST", URL: "http://api.example.com:8080/v1/a-{id}/things?fixed=1&q={q}&flag&two={q}-{n}", Body: "json",
		Headers: map[string]string{"X-Trace": "{trace}", "Authorization": "Bearer {$KEY}"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := h.Request(map[string]any{"id": "é 1?&#", "q": "a&b=c+d/..\r\n", "n": json.Number("3"), "trace": "t-1", "title": "x\"y", "list": []any{json.Number("1")}})
	if err != nil {
		t.Fatal(err)
	}
	if want := "http://api.example.com:8080/v1/a-%C3%A9%201%3F&%23/things?fixed=1&q=a%26b%3Dc%2Bd%2F..%0D%0A&flag&two=a%26b%3Dc%2Bd%2F..%0D%0A-3"; r.URL != want {
		t.Errorf("%s\nwant %s", r.URL, want)
	}
	if got := fmt.Sprint(r.Headers); got != "[{Authorization [{Bearer  } { KEY}]} {X-Trace [{t-1 }]} {Content-Type [{application/json }]}]" {
		t.Error(got)
	}
	if string(r.Body) != `{"list":[1],"title":"x\"y"}` {
		t.Errorf("%s", r.Body)
	}
	// What is not given falls away, but for parts of something.
	if r, err = h.Request(map[string]any{"id": "1", "q": "x", "n": json.Number("1")}); err != nil || len(r.Headers) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err = h.Request(map[string]any{"id": "1", "q": "x"}); err == nil {
		t.Error("a part of the query is not given")
	}
	form, err := ParseHTTP(HTTPSpec{Method: "PUT", URL: "https://example.com/", Body: "form"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err = form.Request(map[string]any{"a": "1&b=2", "c": true}); err != nil || string(r.Body) != "a=1%26b%3D2&c=true" {
		t.Errorf("%s, %v", r.Body, err)
	}
}

// A value stays in its segment and in its header, whatever a server makes of it.
func TestHTTPValues(t *testing.T) {
	h, err := ParseHTTP(HTTPSpec{URL: "https://example.com/v1/{id}/x?q={q}", Headers: map[string]string{"X-Trace": "a {trace}"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", ".", "..", "../admin", "a/b", `..\admin`, "%2e%2e", "..%2f..%2fadmin", "%2F", "..;x", ";", "a;/b", "a\r\nb", "a\x00b"} {
		if r, err := h.Request(map[string]any{"id": bad, "trace": "t"}); err == nil {
			t.Errorf("id %q: %s", bad, r.URL)
		}
	}
	for _, bad := range []any{"a\r\nHost: evil", "a\nb", "a\rb", "a\x00", "a\x7f", "é", "\u2028", []any{"a"}, map[string]any{}, nil} {
		if r, err := h.Request(map[string]any{"id": "1", "trace": bad}); err == nil {
			t.Errorf("trace %q: %+v", bad, r.Headers)
		}
	}
	for _, good := range []string{"a", "a.b", "..a", "a b", "é", "%", "100%", "a%41", "a;b=c", "@evil.example", ":80"} {
		if _, err := h.Request(map[string]any{"id": good, "trace": "t"}); err != nil {
			t.Errorf("id %q: %v", good, err)
		}
	}
}

// Whatever values say: the request goes to its host, with the path's segments and
// the query's names as they were declared, and with no header more.
func FuzzHTTP(f *testing.F) {
	for _, s := range []string{"x", "../..", "a/b", "%2e%2e/", "?x=1#y", "@evil.example", "\r\nX: y", "é\u202e", "%", ";", "\\"} {
		f.Add(s, s, s)
	}
	h, err := ParseHTTP(HTTPSpec{URL: "https://api.example.com/v1/{id}/things?q={q}&n=1", Headers: map[string]string{"X-Trace": "{trace}"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id, q, trace string) {
		r, err := h.Request(map[string]any{"id": id, "q": q, "trace": trace})
		if err != nil {
			return
		}
		u, err := url.Parse(r.URL)
		if err != nil {
			t.Fatalf("%q: %v", r.URL, err)
		}
		twice, err := url.PathUnescape(u.Path)
		if err != nil {
			twice = u.Path
		}
		for _, p := range []string{u.Path, twice} {
			if s := strings.Split(p, "/"); len(s) != 4 || s[1] != "v1" || s[3] != "things" || s[2] == "." || s[2] == ".." || s[2] == "" {
				t.Errorf("%q: the path is %q", r.URL, p)
			}
		}
		v, err := url.ParseQuery(u.RawQuery)
		if u.Host != "api.example.com" || u.User != nil || u.Fragment != "" || err != nil || len(v) != 2 || v.Get("q") != q || v.Get("n") != "1" {
			t.Errorf("%q: %+v, %v", r.URL, v, err)
		}
		if len(r.Headers) != 1 || len(r.Headers[0].Parts) != 1 || strings.ContainsAny(r.Headers[0].Parts[0].Text, "\r\n\x00") {
			t.Errorf("%q", r.Headers)
		}
	})
}
