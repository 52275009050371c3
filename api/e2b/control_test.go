// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/session/persistent"
)

// Metadata of a filter is escaped three times on the wire; the query's own layer
// is off here.
func TestMetadataQuery(t *testing.T) {
	for s, want := range map[string]map[string]string{
		"":                               {},
		"group=x":                        {"group": "x"},
		"k%2520y=a%2520b%2526c":          {"k y": "a b&c"},
		"a=1&b=2":                        {"a": "1", "b": "2"},
		"a":                              {"a": ""},
		"a=%25C3%25BC&n%2520%2526=%253D": {"a": "ü", "n &": "="},
		"a=%25zz":                        nil,
		"a=%zz":                          nil,
		"a=1;b=2":                        nil,
	} {
		got, err := metadataQuery(s)
		if err != nil {
			got = nil
		} else if got == nil {
			got = map[string]string{}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %v, %v", s, got, err)
		}
	}
}

// What a client means is what is found.
func FuzzMetadataQuery(f *testing.F) {
	f.Add("k y", "a b&c", "%25")
	f.Add("", "=", "a;b")
	f.Fuzz(func(t *testing.T, k, v, raw string) {
		metadataQuery(raw)
		s := url.Values{url.QueryEscape(k): {url.QueryEscape(v)}}.Encode()
		got, err := metadataQuery(s)
		if err != nil || got[k] != v || len(got) != 1 {
			t.Fatalf("%q=%q is %q, %v", k, v, got, err)
		}
	})
}

// A request is carried as it is, or refused by the name of what is not.
func TestCreateBody(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want string // what is refused; empty for a wish
	}{
		"the least":                 {`{"templateID":"base"}`, ""},
		"all that is carried":       {`{"templateID":"base","timeout":60,"metadata":{"a":"b"},"envVars":{"A":"b"},"autoPause":true,"autoResume":{"enabled":true},"secure":true,"allow_internet_access":true,"network":{"allowPublicTraffic":false,"maskRequestHost":"localhost:${PORT}"}}`, ""},
		"asked for, but empty":      {`{"templateID":"base","mcp":null,"iam":{},"volumeMounts":[],"new":false,"network":{"rules":{},"egressProxy":null}}`, ""},
		"no template":               {`{}`, "templateID"},
		"no object":                 {`[]`, "JSON"},
		"null":                      {`null`, "no JSON object"},
		"two objects":               {`{"templateID":"base"}{}`, "JSON"},
		"a volume":                  {`{"templateID":"base","volumeMounts":[{"name":"v","path":"/v"}]}`, "volumeMounts"},
		"mcp":                       {`{"templateID":"base","mcp":{"x":{}, "y":{"key":"k"}}}`, "mcp"},
		"a field that nobody knows": {`{"templateID":"base","hostPath":"/etc"}`, "hostPath"},
		"one deeper down":           {`{"templateID":"base","network":{"allowOut":[],"denyPorts":[22]}}`, "network.denyPorts"},
		"one in another case":       {`{"templateID":"base","AutoResume":{"enabled":true,"after":5}}`, "AutoResume.after"},
		"deeper down, but empty":    {`{"templateID":"base","network":{"denyPorts":[]}}`, ""},
		"less than memory":          {`{"templateID":"base","autoPause":true,"autoPauseMemory":false}`, ""},
		"a negative time":           {`{"templateID":"base","timeout":-1}`, "timeout"},
		"a time of centuries":       {`{"templateID":"base","timeout":9223372036854775807}`, "timeout"},
		"a time that is text":       {`{"templateID":"base","timeout":"1"}`, "JSON"},
		"rules":                     {`{"templateID":"base","network":{"rules":{"a.test":[{"transform":{"headers":{"x":"y"}}}]}}}`, ""},
		"a rule of another kind":    {`{"templateID":"base","network":{"rules":{"a.test":[{"block":true}]}}}`, "network.rules"},
		"a proxy":                   {`{"templateID":"base","network":{"egressProxy":{"address":"socks5://x"}}}`, "network.egressProxy"},
		"a host that is none":       {`{"templateID":"base","network":{"maskRequestHost":"a b\r\nx: y"}}`, "maskRequestHost"},
	} {
		t.Run(name, func(t *testing.T) {
			var q createBody
			err := parseBody([]byte(c.body), &q)
			if err == nil {
				_, err = q.wish()
			}
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || asAPI(err).Code != 400):
				t.Errorf("%v, want a refusal of %s", err, c.want)
			}
		})
	}
}

// E2B's network object in our words. What cannot be said exactly is refused.
func TestNetworkWish(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want *persistent.NetworkWish
	}{
		"nothing":                       {`{}`, &persistent.NetworkWish{}},
		"the internet, if there is one": {`{"allow_internet_access":true}`, &persistent.NetworkWish{}},
		"no internet":                   {`{"allow_internet_access":false}`, &persistent.NetworkWish{None: true}},
		"everything is denied":          {`{"denyOut":["0.0.0.0/0"]}`, &persistent.NetworkWish{None: true}},
		"everything but":                {`{"denyOut":["8.8.8.8","10.1.2.3/8"]}`, &persistent.NetworkWish{Deny: []string{"8.8.8.8/32", "10.0.0.0/8"}}},
		"these alone":                   {`{"allowOut":["pypi.org","*.a.test","1.1.1.1","10.1.0.0/16"],"denyOut":["0.0.0.0/0","8.8.8.8"]}`, &persistent.NetworkWish{Allow: []string{"pypi.org", "*.a.test", "1.1.1.1/32:*", "10.1.0.0/16:*"}}},
		"IPv6":                          {`{"allowOut":["2606:4700::1111","2606:4700::/32"],"denyOut":["0.0.0.0/0"]}`, &persistent.NetworkWish{Allow: []string{"[2606:4700::1111/128]:*", "[2606:4700::/32]:*"}}},
		"a zone":                        {`{"allowOut":["2606:4700::1111%eth0"],"denyOut":["0.0.0.0/0"]}`, nil},
		"these alone, said otherwise":   {`{"allowOut":["pypi.org"],"allow_internet_access":false}`, &persistent.NetworkWish{Allow: []string{"pypi.org"}}},
		"everything is allowed":         {`{"allowOut":["0.0.0.0/0"],"denyOut":["0.0.0.0/0"]}`, &persistent.NetworkWish{Allow: []string{"internet"}}},
		"a domain, nothing denied":      {`{"allowOut":["pypi.org"]}`, nil},
		"an address, nothing denied":    {`{"allowOut":["1.1.1.1"]}`, nil},
		"an exception":                  {`{"allowOut":["1.1.1.1"],"denyOut":["1.0.0.0/8"]}`, nil},
		"a domain is denied":            {`{"denyOut":["evil.test"]}`, nil},
		"a URL":                         {`{"allowOut":["https://a.test"],"denyOut":["0.0.0.0/0"]}`, nil},
		"a port":                        {`{"allowOut":["a.test:22"],"denyOut":["0.0.0.0/0"]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var n networkBody
			if err := json.Unmarshal([]byte(c.body), &n); err != nil {
				t.Fatal(err)
			}
			got, err := n.wish()
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestOwnCookie(t *testing.T) {
	for c, want := range map[string]string{
		"a=b":                                   "a=b",
		"a=b; Domain=localhost; Path=/; Secure": "a=b; Path=/; Secure",
		"a=b; DOMAIN = .box.test":               "a=b",
		"domain=x; HttpOnly":                    "domain=x; HttpOnly",
	} {
		if got := ownCookie(c); got != want {
			t.Errorf("%q is %q", c, got)
		}
	}
}
