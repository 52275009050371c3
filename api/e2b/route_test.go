// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestRoute(t *testing.T) {
	const id = "i0123456789abcdefghij"
	headers := func(kv ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(kv); i += 2 {
			h.Add(kv[i], kv[i+1])
		}
		return h
	}
	both := func(id, port string) http.Header { return headers(headerSandbox, id, headerPort, port) }
	for name, c := range map[string]struct {
		host   string
		header http.Header
		domain string
		want   target
		status int
	}{
		"an address":                          {"127.0.0.1:7420", nil, "localhost", target{}, 0},
		"an address of version 6":             {"[::1]:7420", nil, "localhost", target{}, 0},
		"localhost":                           {"localhost:7420", nil, "localhost", target{}, 0},
		"localhost beside another domain":     {"localhost", nil, "box.test", target{}, 0},
		"the domain":                          {"box.test", nil, "box.test", target{}, 0},
		"in capitals, with a dot":             {"API.Box.Test.:443", nil, "box.test", target{}, 0},
		"the sandboxes' common name":          {"sandbox.box.test", both(id, "80"), "box.test", target{ID: id, Port: 80}, 0},
		"another name":                        {"evil.test:7420", nil, "localhost", target{}, 421},
		"another name with a sandbox":         {"evil.test", both(id, "49983"), "localhost", target{}, 421},
		"another name that ends like it":      {"evillocalhost", nil, "localhost", target{}, 421},
		"a name below the domain":             {"x.box.test", nil, "box.test", target{}, 421},
		"no host":                             {"", nil, "localhost", target{}, 421},
		"no domain":                           {"api.", nil, "", target{}, 421},
		"a sandbox's name":                    {"8080-" + id + ".localhost:7420", nil, "localhost", target{id, 8080, true}, 0},
		"a sandbox's name and other headers":  {"8080-" + id + ".localhost", both("iother", "49983"), "localhost", target{id, 8080, true}, 0},
		"a sandbox's name in capitals":        {"8080-" + strings.ToUpper(id) + ".LOCALHOST", nil, "localhost", target{id, 8080, true}, 0},
		"a sandbox's name elsewhere":          {"8080-" + id + ".evil.test", nil, "localhost", target{}, 421},
		"a port that is none":                 {"70000-" + id + ".localhost", nil, "localhost", target{}, 421},
		"port 0":                              {"0-" + id + ".localhost", nil, "localhost", target{}, 421},
		"a port with zeros":                   {"0080-" + id + ".localhost", nil, "localhost", target{}, 421},
		"a sandbox's name with a client's id": {"80-" + id + "-x.localhost", nil, "localhost", target{}, 421},
		"two labels":                          {"80-" + id + ".x.localhost", nil, "localhost", target{}, 421},
		"headers":                             {"127.0.0.1", both(id, "49983"), "localhost", target{ID: id, Port: 49983}, 0},
		"an id of an old client":              {"127.0.0.1", both(id+"-caisson", "49983"), "localhost", target{ID: id, Port: 49983}, 0},
		"one header":                          {"127.0.0.1", headers(headerSandbox, id), "localhost", target{}, 400},
		"the other header":                    {"127.0.0.1", headers(headerPort, "80"), "localhost", target{}, 400},
		"a header twice":                      {"127.0.0.1", headers(headerSandbox, id, headerSandbox, "i1", headerPort, "80"), "localhost", target{}, 400},
		"an id that is none":                  {"127.0.0.1", both("../etc", "80"), "localhost", target{}, 400},
		"an id that is empty":                 {"127.0.0.1", both("", "80"), "localhost", target{}, 400},
		"a long id":                           {"127.0.0.1", both(strings.Repeat("a", 65), "80"), "localhost", target{}, 400},
		"a negative port":                     {"127.0.0.1", both(id, "-1"), "localhost", target{}, 400},
		"a port with a sign":                  {"127.0.0.1", both(id, "+80"), "localhost", target{}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := route(c.host, c.header, c.domain)
			var e *apiError
			status := 0
			if errors.As(err, &e) {
				status = e.Code
			}
			if got != c.want || status != c.status {
				t.Errorf("%+v, %v; want %+v, status %d", got, err, c.want, c.status)
			}
		})
	}
}

// Whatever a client writes, a target is whole or it is none, and no name beside
// the server's own leads anywhere.
func FuzzRoute(f *testing.F) {
	f.Add("8080-iabc.localhost:1", "iabc", "80", "localhost")
	f.Add("[::1]:80", "", "", "")
	f.Add("1-a.1-a.localhost", "a-b", "1", "1-a.localhost")
	f.Fuzz(func(t *testing.T, host, id, port, domain string) {
		h := http.Header{}
		if id != "" || port != "" {
			h.Set(headerSandbox, id)
			h.Set(headerPort, port)
		}
		domain = hostName(domain)
		got, err := route(host, h, domain)
		if err != nil {
			if got != (target{}) {
				t.Fatalf("%+v beside an error", got)
			}
			return
		}
		if (got.ID == "") != (got.Port == 0) || got.Port < 0 || got.Port > 65535 || wireID(got.ID) != got.ID {
			t.Fatalf("%+v", got)
		}
		name, _, _ := strings.Cut(hostName(host), "%")
		if !got.Named && !ownHost(name, domain) {
			t.Fatalf("%q leads to %+v", host, got)
		}
		if got.Named && !strings.HasSuffix(name, "."+domain) {
			t.Fatalf("%q is no name below %q", host, domain)
		}
	})
}
