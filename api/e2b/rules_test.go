// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// The matrix of E2B's rules. A refusal has its name and nothing of a value.
func TestRules(t *testing.T) {
	one := func(header string) string {
		return `{"api.a.test":[{"transform":{"headers":{` + header + `}}}]}`
	}
	for what, c := range map[string]struct {
		raw  string
		want []wire.Header // nil is none, or refused where refused says so
		no   string
	}{
		"none":         {``, nil, ""},
		"empty":        {`{}`, nil, ""},
		"no transform": {`{"api.a.test":[{}]}`, nil, ""},
		"one":          {one(`"x-name":"v"`), []wire.Header{{Host: "api.a.test", Name: "X-Name", Value: "v"}}, ""},
		"many": {`{"*.B.test":[{"transform":{"headers":{"b":"1","a":"2"}}},{"transform":{"headers":{"A":"3"}}}],"a.test:8080":[{"transform":{"headers":{"c":"4"}}}]}`,
			[]wire.Header{{Host: "*.b.test", Name: "A", Value: "3"}, {Host: "*.b.test", Name: "B", Value: "1"}, {Host: "a.test:8080", Name: "C", Value: "4"}}, ""},
		"twice in one":        {one(`"a":"SECRET","A":"y"`), nil, "twice"},
		"no value":            {one(`"a":"","b":"SECRET"`), nil, "no value"},
		"a token":             {one(`"a":"SECRET ${e2b.identity.tokens.x}"`), nil, "iam"},
		"another field":       {`{"a.test":[{"transform":{"query":{"a":"SECRET"}}}]}`, nil, "nothing else"},
		"a value of no text":  {one(`"a":["SECRET"]`), nil, "nothing else"},
		"a control character": {one(`"a":"SECRET\r\nHost: x"`), nil, "no header takes"},
		"not ASCII":           {one(`"a":"SECRETé"`), nil, "no header takes"},
		"too long":            {one(`"a":"` + strings.Repeat("SECRET", 2000) + `"`), nil, "bytes"},
		"a blank in its name": {one(`"a b":"SECRET"`), nil, "no header"},
		"no name":             {one(`"":"SECRET"`), nil, "no header"},
		"everything":          {`{"*":[{"transform":{"headers":{"a":"SECRET"}}}]}`, nil, "get no headers"},
		"the internet":        {`{"internet":[{"transform":{"headers":{"a":"SECRET"}}}]}`, nil, "get no headers"},
		"an address":          {`{"1.1.1.1":[{"transform":{"headers":{"a":"SECRET"}}}]}`, nil, "get no headers"},
		"a range":             {`{"10.0.0.0/8":[{"transform":{"headers":{"a":"SECRET"}}}]}`, nil, "get no headers"},
		"a URL":               {`{"https://a.test":[{"transform":{"headers":{"a":"SECRET"}}}]}`, nil, "get no headers"},
	} {
		got, err := headers([]byte(c.raw))
		switch {
		case c.no == "" && (err != nil || !slices.Equal(got, c.want)):
			t.Errorf("%s: %q, %v", what, fmt.Sprint(got), err)
		case c.no != "" && (err == nil || asAPI(err).Code != 400 || !strings.Contains(err.Error(), "network.rules") || !strings.Contains(err.Error(), c.no) || strings.Contains(err.Error(), "SECRET")):
			t.Errorf("%s: %v, want a refusal with %q", what, err, c.no)
		}
	}
	for _, name := range []string{"Host", "content-length", "Content_Length", "Transfer-Encoding", "connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "TE", "Trailer", "Upgrade", "Expect", "X-Forwarded-For", "Forwarded"} {
		if _, err := headers([]byte(one(`"` + name + `":"SECRET"`))); err == nil || strings.Contains(err.Error(), "SECRET") || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var many []string
	for i := range 101 {
		many = append(many, fmt.Sprintf(`"a%d":"SECRET"`, i))
	}
	if _, err := headers([]byte(one(strings.Join(many, ",")))); err == nil || !strings.Contains(err.Error(), "more than 100") {
		t.Error(err)
	}
}

// Whatever a client writes is refused, or is headers that a router takes.
func FuzzRules(f *testing.F) {
	for _, s := range []string{`{}`, `{"a.test":[{"transform":{"headers":{"X-Name":"v"}}}]}`, `{"*.a.test:8080":[{},{"transform":null}]}`, `[]`, `{"a.test":[{"transform":{"headers":{"Host":"v"}}}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := headers(raw)
		if err != nil {
			return
		}
		for _, h := range list {
			if _, err := rule.ParseHeaderHost(h.Host); err != nil || rule.CheckHeader(h.Name, string(h.Value)) != nil {
				t.Errorf("%q for %q: %v", h.Name, h.Host, err)
			}
		}
	})
}
