// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"slices"
	"strings"
	"testing"
)

func TestSegments(t *testing.T) {
	for raw, want := range map[string]string{
		"/":                                "",
		"/a/b":                             "a|b",
		"/a/b/":                            "a|b|",
		"/a%20b":                           "a b",
		"/%61/b":                           "a|b",
		"/a.b/..c":                         "a.b|..c",
		"/a;v=1/b":                         "a;v=1|b",
		"/caf%C3%A9":                       "café",
		"/100%25":                          "100%",
		"/a%3Fb":                           "a?b",
		"":                                 "!",
		"*":                                "!",
		"a":                                "!",
		"//a":                              "!",
		"/a//b":                            "!",
		"/a/./b":                           "!",
		"/a/../b":                          "!",
		"/a/..":                            "!",
		"/a/%2e%2E/b":                      "!",
		"/a/.%2e":                          "!",
		"/a/..;/b":                         "!",
		"/a/%2e%2e;x=1/b":                  "!",
		"/a%2Fb":                           "!",
		"/a%2fb":                           "!",
		"/a%5cb":                           "!",
		`/a\b`:                             "!",
		"/a%00":                            "!",
		"/a%0d%0a":                         "!",
		"/a%7f":                            "!",
		"/%252e%252e/b":                    "!",
		"/%25%32%65":                       "!",
		"/a%":                              "!",
		"/a%2":                             "!",
		"/a%zz":                            "!",
		"/a b":                             "!",
		"/a\x00":                           "!",
		"/a#b":                             "!",
		"/a?b":                             "!",
		"/é":                               "!",
		"/%c0%ae%c0%ae/b":                  "!",
		"/%ff":                             "!",
		"/" + strings.Repeat("a", maxPath): "!",
	} {
		got, err := Segments(raw)
		s := strings.Join(got, "|")
		if err != nil {
			s = "!"
		}
		if s != want {
			t.Errorf("Segments(%q) = %q (%v), want %q", raw, s, err, want)
		}
	}
}

func TestPathPattern(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no string }{
		"/":              {"/", "/a"},
		"/**":            {"/ /a /a/b /a/", ""},
		"/repos/**":      {"/repos /repos/ /repos/a/b", "/ /repo /reposx /a/repos/b /Repos/a"},
		"/v1/*/messages": {"/v1/a/messages", "/v1/messages /v1/a/b/messages /v1/a/messages/ /v1//messages"},
		"/a/*":           {"/a/b", "/a/ /a /a/b/c"},
		"/a/":            {"/a/", "/a /a/b"},
		"/**/x/*.json":   {"/x/a.json /b/c/x/.json", "/x/a.jsonx /a.json /x/b/a.json"},
		"/a*b*c":         {"/abc /aXbYc /abbcc", "/ab /xabc /abcd"},
		"/**/a/**/b":     {"/a/b /a/a/b /x/a/y/b", "/b /a /b/a"},
		"/caf\u00e9/a b": {"/caf%C3%A9/a%20b", "/cafe/a%20b"},
	} {
		p, err := ParsePath(pattern)
		if err != nil {
			t.Fatal(err)
		}
		match := func(raw string) bool {
			s, err := Segments(raw)
			return err == nil && p.Match(s)
		}
		for _, raw := range strings.Fields(c.yes) {
			if !match(raw) {
				t.Errorf("%s does not match %s", pattern, raw)
			}
		}
		for _, raw := range strings.Fields(c.no) {
			if match(raw) {
				t.Errorf("%s matches %s", pattern, raw)
			}
		}
	}
	for _, bad := range []string{"", "a", "*", "/a//b", "/a/../b", "/.", "/a**", "/%41", "/a?b", "/[ab]", "/{a,b}", "/a\nb", "/\xff", "/" + strings.Repeat("a", maxPattern)} {
		if _, err := ParsePath(bad); err == nil {
			t.Errorf("%q is a pattern", bad)
		}
	}
	if (PathPattern{}).Match([]string{""}) {
		t.Error("the zero pattern matches")
	}
}

func conditional(t testing.TB, host string, w Web) Rule {
	t.Helper()
	r, err := AllowWeb(host, "test", w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The matrix of requests: which rule decides, what it says, and the bound.
func TestRequests(t *testing.T) {
	read := conditional(t, "api.x.test", Web{Methods: []string{"GET"}, Paths: []string{"/repos/**"}})
	write := conditional(t, "api.x.test", Web{Methods: []string{"POST"}, Paths: []string{"/repos/*/issues"}, MaxBody: 100})
	small := conditional(t, "*.x.test", Web{MaxBody: 10})
	l := list(t, []string{"internet", "*.x.test:*"}, []string{"denied.x.test"})
	two := func(layers ...[]Rule) *List { return &List{Allow: l.Allow, Deny: l.Deny, Web: layers} }
	for what, c := range map[string]struct {
		layers  [][]Rule
		host    string
		port    uint16
		q       Request
		want    string // a part of the reason; "" is allowed
		maximum int64
	}{
		"nothing is said":            {nil, "api.x.test", 443, Request{Method: "PUT", Path: "//"}, "", 0},
		"of another host":            {[][]Rule{{read}}, "b.x.test", 443, Request{Method: "PUT", Path: "//"}, "", 0},
		"of another port":            {[][]Rule{{read}}, "api.x.test", 8443, Request{Method: "PUT", Path: "//"}, "", 0},
		"allowed":                    {[][]Rule{{read}}, "api.x.test", 443, Request{Method: "GET", Path: "/repos/a"}, "", 0},
		"plain HTTP":                 {[][]Rule{{read}}, "api.x.test", 80, Request{Method: "GET", Path: "/repos/a"}, "", 0},
		"HEAD is GET without a body": {[][]Rule{{read}}, "api.x.test", 443, Request{Method: "HEAD", Path: "/repos/a"}, "", 0},
		"another method":             {[][]Rule{{read}}, "api.x.test", 443, Request{Method: "DELETE", Path: "/repos/a"}, `"DELETE" is not one of GET`, 0},
		"in lower case":              {[][]Rule{{read}}, "api.x.test", 443, Request{Method: "get", Path: "/repos/a"}, "is not one of", 0},
		"another path":               {[][]Rule{{read}}, "api.x.test", 443, Request{Method: "GET", Path: "/user"}, "path is not among", 0},
		"an odd path":                {[][]Rule{{read}}, "api.x.test", 443, Request{Method: "GET", Path: "/repos/%2e%2e/user"}, "dots", 0},
		"one of two":                 {[][]Rule{{read, write}}, "api.x.test", 443, Request{Method: "POST", Path: "/repos/a/issues", Length: 100}, "", 100},
		"neither of two":             {[][]Rule{{read, write}}, "api.x.test", 443, Request{Method: "POST", Path: "/repos/a"}, "path", 0},
		"too long":                   {[][]Rule{{read, write}}, "api.x.test", 443, Request{Method: "POST", Path: "/repos/a/issues", Length: 101}, "more than 100 bytes", 0},
		"not said how long":          {[][]Rule{{read, write}}, "api.x.test", 443, Request{Method: "POST", Path: "/repos/a/issues", Length: -1}, "", 100},
		"an upgrade":                 {[][]Rule{{read}}, "api.x.test", 443, Request{Method: "GET", Path: "/repos/a", Upgrade: true}, "", 0},
		"an upgrade without a bound": {[][]Rule{{small}}, "api.x.test", 443, Request{Method: "GET", Path: "/", Upgrade: true}, "no end", 0},
		"two layers":                 {[][]Rule{{write}, {small}}, "api.x.test", 443, Request{Method: "POST", Path: "/repos/a/issues", Length: -1}, "", 10},
		"the other layer":            {[][]Rule{{write}, {small}}, "api.x.test", 443, Request{Method: "POST", Path: "/repos/a/issues", Length: 50}, "more than 10 bytes", 0},
		"the generous of one layer":  {[][]Rule{{write, small}}, "api.x.test", 443, Request{Method: "POST", Path: "/repos/a/issues", Length: 50}, "", 100},
		"denied":                     {[][]Rule{{small}}, "denied.x.test", 443, Request{Method: "GET", Path: "/"}, "deny-list", 0},
	} {
		d, b := two(c.layers...).Request(host(t, c.host), c.port, c.q)
		if d.Allow != (c.want == "") || !strings.Contains(d.Reason, c.want) || b.Body != c.maximum {
			t.Errorf("%s: %+v, at most %d; want %q, %d", what, d, b.Body, c.want, c.maximum)
		}
	}
	// Of two entries of a layer the one counts that lets through more, or none.
	few, many := conditional(t, "api.x.test", Web{MaxRequests: 2}), conditional(t, "*.x.test", Web{MaxRequests: 5})
	get := Request{Method: "GET", Path: "/repos/a"}
	for what, c := range map[string]struct {
		layers [][]Rule
		q      Request
		want   []int64
	}{
		"one":                 {[][]Rule{{few}}, get, []int64{2}},
		"the more generous":   {[][]Rule{{few, many}}, get, []int64{5}},
		"one does not count":  {[][]Rule{{few, read, many}}, get, nil},
		"each layer":          {[][]Rule{{few}, {many}}, get, []int64{2, 5}},
		"what cannot be read": {[][]Rule{{few}}, Request{Method: "GET", Path: "/", Upgrade: true}, nil},
	} {
		d, b := two(c.layers...).Request(host(t, "api.x.test"), 443, c.q)
		var got []int64
		for _, count := range b.Counts {
			got = append(got, count.Max)
		}
		if d.Allow == c.q.Upgrade || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, %v; want %v", what, d, got, c.want)
		}
	}
	if d, _ := (*List)(nil).Request(host(t, "api.x.test"), 443, Request{Method: "GET", Path: "/"}); d.Allow {
		t.Error("no list allows a request")
	}
	if d := two([]Rule{read}).Denied(host(t, "api.x.test"), 443); d.Allow {
		t.Error("a connection by number to a host whose requests are judged is allowed")
	}
	if d := (&List{Ended: []Rule{l.Allow[1]}}).Denied(host(t, "api.x.test"), 443); d.Allow {
		t.Error("a connection by number to a host that gets a secret is allowed")
	}
	for _, bad := range []Web{{}, {Methods: []string{"get"}}, {Methods: []string{"CONNECT"}}, {Methods: []string{""}}, {Paths: []string{"a"}}, {MaxBody: -1}, {Paths: slices.Repeat([]string{"/"}, maxPaths+1)}} {
		if _, err := AllowWeb("api.x.test", "", bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	for _, bad := range []string{"internet", "10.0.0.0/8", "1.1.1.1", "preset:pip", "*"} {
		if _, err := AllowWeb(bad, "", Web{MaxBody: 1}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// FuzzSegments holds what is promised of a path that is no error: it has no part
// that leads elsewhere, and encoding it anew and reading that says the same.
func FuzzSegments(f *testing.F) {
	for _, s := range []string{"/", "/a/b/", "/%2e%2e/a", "/a%2fb", "/%252e", "/..;/a", "/caf%C3%A9", "/100%25"} {
		f.Add(s)
	}
	any, _ := ParsePath("/**")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := Segments(raw)
		if err != nil {
			return
		}
		var again strings.Builder
		for i, s := range got {
			if s == "." || s == ".." || strings.ContainsAny(s, "/\\\x00") || s == "" && i < len(got)-1 {
				t.Errorf("%q has the part %q", raw, s)
			}
			again.WriteByte('/')
			for _, c := range []byte(s) {
				again.WriteByte('%')
				again.WriteByte("0123456789abcdef"[c>>4])
				again.WriteByte("0123456789abcdef"[c&15])
			}
		}
		if s := again.String(); len(s) <= maxPath {
			same, err := Segments(s)
			if err != nil || !slices.Equal(same, got) {
				t.Errorf("%q is %q, and encoded anew %q, %v", raw, got, same, err)
			}
		}
		if !any.Match(got) {
			t.Errorf("/** does not match %q", raw)
		}
	})
}

// FuzzParsePath holds that a pattern without stars matches itself alone.
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"/a/**/b", "/*", "/a/", "/caf\u00e9"} {
		f.Add(s, "/a/b")
	}
	f.Fuzz(func(t *testing.T, pattern, raw string) {
		p, err := ParsePath(pattern)
		if err != nil {
			return
		}
		segments, err := Segments(raw)
		if err != nil {
			return
		}
		if !strings.Contains(pattern, "*") && p.Match(segments) != (pattern == "/"+strings.Join(segments, "/")) {
			t.Errorf("%q and %q", pattern, segments)
		}
	})
}
