// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/api/v1"
)

// Requests that get nothing. Each has a status, a problem that says why, and the
// server goes on.
func TestRefused(t *testing.T) {
	d := newFrontend(t)
	id := d.create(t, "{}")
	_, theirs := d.ask(t, "POST", "/v1/sandboxes", "{}", "X-API-Key", d.other)
	other := theirs["id"].(string)
	long := strings.Repeat("x", 5<<20)
	box := "/v1/sandboxes/" + id
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		says                     string
	}{
		{"no key", "GET", box, "", []string{"X-API-Key", ""}, 401, "no key"},
		{"a wrong key", "GET", box, "", []string{"X-API-Key", "e2b_" + strings.Repeat("0", 40)}, 401, "not known"},
		{"a key that is none", "POST", "/v1/sandboxes", "{}", []string{"X-API-Key", "' OR 1=1 --"}, 401, "not known"},
		{"no key, nowhere", "GET", "/v1/nothing", "", []string{"X-API-Key", ""}, 401, "no key"},
		{"a key as a cookie", "GET", box, "", []string{"X-API-Key", "", "Cookie", "key=" + d.key}, 401, "no key"},
		{"a key in the query", "GET", box + "?key=" + d.key, "", []string{"X-API-Key", ""}, 401, "no key"},
		{"another name", "GET", box, "", []string{"Host", "evil.example"}, 421, "evil.example"},
		{"the document by another name", "GET", "/openapi.json", "", []string{"Host", "evil.example"}, 421, "evil.example"},
		{"half a port", "GET", box, "", []string{"E2b-Sandbox-Port", "80"}, 400, "E2b-Sandbox-Id"},

		{"another key's", "GET", "/v1/sandboxes/" + other, "", nil, 404, "there is none"},
		{"kill another key's", "DELETE", "/v1/sandboxes/" + other, "", nil, 404, "there is none"},
		{"exec in another key's", "POST", "/v1/sandboxes/" + other + "/exec", `{"shell":"true"}`, nil, 404, "there is none"},
		{"extend another key's", "POST", "/v1/sandboxes/" + other + "/extend", "", nil, 404, "there is none"},
		{"pause another key's", "POST", "/v1/sandboxes/" + other + "/pause", "", nil, 404, "there is none"},
		{"resume another key's", "POST", "/v1/sandboxes/" + other + "/resume", "", nil, 404, "there is none"},
		{"connect to another key's", "POST", "/v1/sandboxes/" + other + "/connect", "", nil, 404, "there is none"},
		{"snapshot another key's", "POST", "/v1/sandboxes/" + other + "/snapshots", "", nil, 404, "there is none"},
		{"fork another key's", "POST", "/v1/sandboxes/" + other + "/fork", "", nil, 404, "there is none"},
		{"usage of another key's", "GET", "/v1/sandboxes/" + other + "/usage", "", nil, 404, "there is none"},
		{"logs of another key's", "GET", "/v1/sandboxes/" + other + "/logs", "", nil, 404, "there is none"},
		{"a port of another key's", "GET", "/v1/sandboxes/" + other + "/ports/80", "", nil, 404, "there is none"},

		{"an id that is none", "GET", "/v1/sandboxes/nothing", "", nil, 404, "sandbox nothing: there is none"},
		{"an id that climbs", "GET", "/v1/sandboxes/..%2f..%2fetc%2fpasswd", "", nil, 404, ""},
		{"an id with NUL", "GET", "/v1/sandboxes/i%00", "", nil, 404, "there is none"},
		{"an id with a quote", "DELETE", "/v1/sandboxes/i'%20OR%201=1", "", nil, 404, "there is none"},
		{"a long id", "GET", "/v1/sandboxes/" + strings.Repeat("i", 5000), "", nil, 422, "path.id"},
		{"a snapshot that is none", "DELETE", "/v1/snapshots/nothing", "", nil, 404, ""},
		{"a port that is none", "GET", box + "/ports/65536", "", nil, 422, "path.port"},
		{"port 0", "GET", box + "/ports/0", "", nil, 422, "path.port"},

		{"nowhere", "GET", "/v1/nothing", "", nil, 404, "there is nothing at"},
		{"beside", "GET", "/v12", "", nil, 404, ""},
		{"another method", "PUT", "/v1/sandboxes", "{}", nil, 405, "GET"},
		{"no JSON", "POST", "/v1/sandboxes", "{", nil, 400, "body"},
		{"no object", "POST", "/v1/sandboxes", "[]", nil, 422, "body"},
		{"a form", "POST", "/v1/sandboxes", "template=base", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, ""},
		{"plain text", "POST", "/v1/sandboxes", "{}", []string{"Content-Type", "text/plain"}, 415, ""},
		{"a long body", "POST", "/v1/sandboxes", `{"template":"` + long + `"}`, nil, 413, "too large"},
		{"a field that is not known", "POST", "/v1/sandboxes", `{"mounts":[{"source":"/etc"}]}`, nil, 422, "body.mounts"},
		{"a field of another case", "POST", "/v1/sandboxes", `{"TEMPLATE":"base"}`, nil, 422, "body.TEMPLATE"},
		{"more open files than a limit can say", "POST", "/v1/sandboxes", `{"limits":{"open_files":1048577}}`, nil, 422, "body.limits.open_files"},
		{"more memory than a limit can say", "POST", "/v1/sandboxes", `{"limits":{"memory":1125899906842625}}`, nil, 422, "body.limits.memory"},
		{"more time than a limit can say", "POST", "/v1/sandboxes", `{"limits":{"wall":2592001}}`, nil, 422, "body.limits.wall"},
		{"a network to nowhere", "POST", "/v1/sandboxes", `{"network":{"allow":["bad host"]}}`, nil, 400, "allows nothing"},
		{"a command with a NUL byte", "POST", box + "/exec", `{"command":["a\u0000b"]}`, nil, 400, "NUL byte"},
		{"a path of the host", "POST", "/v1/sandboxes", `{"rootfs":"/"}`, nil, 422, "body.rootfs"},
		{"a path as a template", "POST", "/v1/sandboxes", `{"template":"/etc"}`, nil, 404, "template"},
		{"a query that is not known", "GET", "/v1/sandboxes?metadatum=x", "", nil, 422, "query.metadatum"},
		{"metadata without a value", "GET", "/v1/sandboxes?metadata=x", "", nil, 400, "name=value"},
		{"too many a page", "GET", "/v1/sandboxes?limit=101", "", nil, 422, "query.limit"},
		{"a cursor of nobody's", "GET", "/v1/sandboxes?cursor=zzz", "", nil, 400, "cursor"},
		{"a state that is none", "GET", "/v1/sandboxes?state=ended", "", nil, 422, "query.state"},
		{"a negative timeout", "POST", "/v1/sandboxes", `{"timeout":-1}`, nil, 422, "body.timeout"},
		{"a long timeout", "POST", "/v1/sandboxes", `{"timeout":86401}`, nil, 400, "timeout"},
		{"no timeout at all", "POST", "/v1/sandboxes", `{"timeout":1e400}`, nil, 400, ""},
		{"a snapshot that is not there", "POST", "/v1/sandboxes", `{"snapshot":"snothing"}`, nil, 404, "there is none"},
		{"a network that is not granted", "POST", "/v1/sandboxes", `{"network":{"allow":["example.com"]}}`, nil, 403, ""},
		{"a level that is none", "POST", "/v1/sandboxes", `{"isolation":"none"}`, nil, 0, ""},
		{"more memory than is granted", "POST", box + "/exec", `{"shell":"true","limits":{"memory":1}}`, nil, 422, "body.limits"},

		{"no program", "POST", box + "/exec", `{}`, nil, 400, "no program"},
		{"two programs", "POST", box + "/exec", `{"command":["a"],"shell":"b"}`, nil, 400, "command and a shell"},
		{"an empty program", "POST", box + "/exec", `{"command":[""]}`, nil, 400, "no program"},
		{"a program with NUL", "POST", box + "/exec", `{"command":["a\u0000b"]}`, nil, 0, ""},
		{"a directory that climbs", "POST", box + "/exec", `{"shell":"true","cwd":"/tmp/../etc"}`, nil, 400, "cwd"},
		{"a relative directory", "POST", box + "/exec", `{"shell":"true","cwd":"etc"}`, nil, 400, "cwd"},
		{"another user", "POST", box + "/exec", `{"shell":"true","user":"nobody"}`, nil, 422, "body.user"},
		{"a variable that is none", "POST", box + "/exec", `{"shell":"true","env":{"A=B":"c"}}`, nil, 0, ""},
		{"stdin twice", "POST", box + "/exec", `{"shell":"true","stdin":"a","stdin_base64":"YQ=="}`, nil, 400, "stdin"},
		{"no base64", "POST", box + "/exec", `{"shell":"true","stdin_base64":"!"}`, nil, 422, ""},
		{"too many copies", "POST", box + "/fork", `{"count":101}`, nil, 422, "body.count"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, b := d.raw(t, c.method, c.path, c.body, c.header...)
			if c.status == 0 {
				c.status = resp.StatusCode
				if c.status < 400 || c.status >= 500 && c.status != 501 {
					t.Errorf("%d", c.status)
				}
			}
			var p v1.Problem
			if err := json.Unmarshal(b, &p); err != nil {
				t.Errorf("%v: %.200s", err, b)
			}
			said := p.Detail + fmt.Sprint(p.Hint, p.Faults)
			if resp.StatusCode != c.status || !strings.Contains(said, c.says) {
				t.Errorf("%d %.500s", resp.StatusCode, b)
			}
			if strings.HasPrefix(c.path, "/v1/") && (resp.Header.Get("Content-Type") != "application/problem+json" || p.Status != c.status || p.Title == "" || p.Detail == "") {
				t.Errorf("it is no problem: %v %.500s", resp.Header, b)
			}
			if len(b) > 8<<10 {
				t.Errorf("what was sent is sent back: %d bytes", len(b))
			}
		})
	}
	for sandbox, key := range map[string]string{id: d.key, other: d.other} {
		if status, a := d.ask(t, "GET", "/v1/sandboxes/"+sandbox, "", "X-API-Key", key); status != 200 || a["state"] != "running" {
			t.Errorf("a sandbox came to harm: %d %v", status, a)
		}
	}
}

// A program is ended when its caller goes away.
func TestCallerGoes(t *testing.T) {
	d := newFrontend(t)
	id := d.create(t, "{}")
	c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	body := `{"shell":"trap 'touch ended' EXIT; echo $$ > pid; sleep 600"}`
	fmt.Fprintf(c, "POST /v1/sandboxes/%s/exec HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", id, d.key, len(body), body)
	until(t, func() bool { return d.exec(t, id, "test -s pid")["status"] == "success" })
	c.Close()
	until(t, func() bool { return d.exec(t, id, "! kill -0 $(cat pid) 2>/dev/null")["status"] == "success" })
}

// until waits for something that a program inside does.
func until(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); { // or it never does
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
	}
}

// A request that is refused before it gets to any frontend is refused in the words of
// that of its path.
func TestRefusedBefore(t *testing.T) {
	frontend := apitest.Start(t, "").Handler.(api.Refuser)
	for path, want := range map[string]string{
		"/v1/sandboxes":     `{"status":503,"title":"Service Unavailable","detail":"too much"}`,
		"/openapi.yaml":     `{"status":503,"title":"Service Unavailable","detail":"too much"}`,
		"/v1/containers/x":  `{"error":{"message":"too much","type":"server_error","param":null,"code":null}}`,
		"/sandboxes":        `{"code":503,"message":"too much"}`,
		"/somewhere/beside": `{"code":503,"message":"too much"}`,
	} {
		w := httptest.NewRecorder()
		if !frontend.Refuse(w, httptest.NewRequest("GET", path, nil), 503, "too much") || w.Code != 503 || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
