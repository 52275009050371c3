// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/v1"
)

// From its making to its end, as its owner sees it.
func TestLife(t *testing.T) {
	d := newFrontend(t)
	status, a := d.ask(t, "POST", "/v1/sandboxes", `{"metadata":{"a":"1"},"env":{"SECRET":"value-of-env"},"timeout":120,"idle":60,"on_timeout":"pause","limits":{"memory":134217728}}`)
	if status != 201 || a["state"] != "running" || a["template"] != "base" || a["idle"] != 60.0 || a["on_timeout"] != "pause" || a["limits"].(map[string]any)["memory"] != 134217728.0 {
		t.Fatalf("%d %v", status, a)
	}
	id := a["id"].(string)
	resp, b := d.raw(t, "GET", "/v1/sandboxes/"+id, "")
	if resp.StatusCode != 200 || strings.Contains(string(b), "value-of-env") || strings.Contains(string(b), "$schema") {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	r := d.exec(t, id, `echo "$SECRET"; echo no >&2; exit 3`)
	if r["stdout"] != "value-of-env\n" || r["stderr"] != "no\n" || r["exit_code"] != 3.0 || r["status"] != "error" {
		t.Errorf("%v", r)
	}
	if status, a = d.ask(t, "POST", "/v1/sandboxes/"+id+"/extend", `{"timeout":3600}`); status != 200 {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "POST", "/v1/sandboxes/"+id+"/pause", ""); status != 200 || a["state"] != "paused" || a["kept"] != "memory" {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "POST", "/v1/sandboxes/"+id+"/exec", `{"shell":"true"}`); status != 409 || a["kind"] != "conflict" || a["hint"] != "resume it first" {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "POST", "/v1/sandboxes/"+id+"/resume", ""); status != 200 || a["state"] != "running" || a["resumed"] != 1.0 {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "POST", "/v1/sandboxes/"+id+"/snapshots", ""); status != 501 || a["kind"] != "unsupported" || a["hint"] == nil {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "GET", "/v1/sandboxes/"+id+"/usage", ""); status != 200 || len(a["readings"].([]any)) == 0 {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "GET", "/v1/sandboxes/"+id+"/ports/8080", ""); status != 200 || a["url"] != "http://8080-"+id+".localhost:1" {
		t.Errorf("%d %v", status, a)
	}
	if resp, b := d.raw(t, "DELETE", "/v1/sandboxes/"+id, ""); resp.StatusCode != 204 || len(b) != 0 {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	if status, a = d.ask(t, "GET", "/v1/sandboxes/"+id, ""); status != 404 || !strings.Contains(a["detail"].(string), "killed by its owner") {
		t.Errorf("%d %v", status, a)
	}
	var kinds []string
	_, a = d.ask(t, "GET", "/v1/events?since=0&sandbox="+id, "")
	for _, e := range a["events"].([]any) {
		kinds = append(kinds, e.(map[string]any)["kind"].(string))
	}
	if got := strings.Join(kinds, " "); got != "created paused resumed ended" || a["next"] != 4.0 {
		t.Error(got, a["next"])
	}
}

// A list has pages, and what its filter wants.
func TestList(t *testing.T) {
	d := newFrontend(t)
	var ids []string
	for i := range 3 {
		ids = append(ids, d.create(t, fmt.Sprintf(`{"metadata":{"n":"%d","all":"yes"}}`, i)))
	}
	list := func(query string) (got []string, next string) {
		t.Helper()
		status, a := d.ask(t, "GET", "/v1/sandboxes?"+query, "")
		if status != 200 {
			t.Fatalf("%d %v", status, a)
		}
		for _, b := range a["sandboxes"].([]any) {
			got = append(got, b.(map[string]any)["id"].(string))
		}
		next, _ = a["next"].(string)
		return got, next
	}
	for query, want := range map[string][]string{
		"":                                  {ids[2], ids[1], ids[0]},
		"order=oldest":                      ids,
		"metadata=n%3D1&metadata=all%3Dyes": {ids[1]},
		"state=paused":                      nil,
		"state=running,paused&limit=1":      {ids[2]},
		"template=other":                    nil,
	} {
		if got, _ := list(query); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %v", query, got)
		}
	}
	first, next := list("limit=2")
	second, end := list("limit=2&cursor=" + next)
	if got := append(first, second...); len(got) != 3 || got[2] != ids[0] || end != "" {
		t.Errorf("%v %v %q", first, second, end)
	}
}

// A name is one sandbox, however often it is asked for.
func TestAcquire(t *testing.T) {
	d := newFrontend(t)
	id := d.create(t, `{"name":"mine"}`)
	if status, a := d.ask(t, "POST", "/v1/sandboxes", `{"name":"mine"}`); status != 200 || a["id"] != id {
		t.Errorf("%d %v", status, a)
	}
	if status, a := d.ask(t, "POST", "/v1/sandboxes", `{"name":"mine"}`, "X-API-Key", d.other); status != 201 || a["id"] == id {
		t.Errorf("another key's: %d %v", status, a)
	}
}

// What a program writes comes as it writes it.
func TestStream(t *testing.T) {
	d := newFrontend(t)
	id := d.create(t, "{}")
	req, _ := http.NewRequestWithContext(t.Context(), "POST", d.url+"/v1/sandboxes/"+id+"/exec",
		strings.NewReader(`{"shell":"cat; echo one; while ! test -e go; do sleep 0.05; done; printf '\\377' >&2; exit 7","stdin":"in"}`))
	req.Header.Set("X-API-Key", d.key)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(resp.StatusCode, resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	out, errs, last := "", "", ""
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				last = name
			}
			continue
		}
		if last != "output" {
			var r v1.Result
			if json.Unmarshal([]byte(data), &r); last != "end" || r.ExitCode == nil || *r.ExitCode != 7 {
				t.Error(last, data)
			}
			continue
		}
		var o v1.Output
		if err := json.Unmarshal([]byte(data), &o); err != nil {
			t.Fatal(err)
		}
		if o.Stream == "stderr" {
			errs += string(o.Base64)
		} else if out += *o.Text; strings.HasSuffix(out, "one\n") { // it runs on
			d.exec(t, id, "touch go")
		}
	}
	if out != "inone\n" || errs != "\xff" || last != "end" {
		t.Errorf("%q %q %s", out, errs, last)
	}
}

// What goes wrong before a stream has begun has a status.
func TestStreamOfNothing(t *testing.T) {
	d := newFrontendUnder(t, "version: 1\ncommands: {allow: [echo]}\n")
	id := d.create(t, "{}")
	for _, accept := range []string{"application/json", "text/event-stream"} {
		resp, b := d.raw(t, "POST", "/v1/sandboxes/"+id+"/exec", `{"command":["cat"]}`, "Accept", accept)
		var p v1.Problem
		json.Unmarshal(b, &p)
		if resp.StatusCode != 403 || p.Kind != "denied" || !strings.HasPrefix(p.Rule, "/p.yaml:2") || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", accept, resp.StatusCode, b)
		}
	}
}

// What a sandbox may reach is said whole, and for one's own sandboxes alone. What is
// not said is nothing.
func TestSetNetwork(t *testing.T) {
	d := newFrontend(t)
	id := d.create(t, `{"network":{"allow":[]}}`)
	for _, c := range []struct {
		body   string
		status int
		detail string
	}{
		{`{}`, 200, ""}, {`{"allow":[]}`, 200, ""},
		{`{"allow":["example.com"]}`, 403, "does not allow"},
		{`{"all":true,"allow":["example.com"]}`, 400, "all and for a part"},
		{`{"deny":["example.com"]}`, 400, "nothing to take away from"},
		{`{"none":true}`, 422, ""}, {``, 400, ""},
	} {
		status, a := d.ask(t, "PUT", "/v1/sandboxes/"+id+"/network", c.body)
		detail, _ := a["detail"].(string)
		if status != c.status || !strings.Contains(detail, c.detail) || status == 200 && a["network"] != nil {
			t.Errorf("%s: %d %v", c.body, status, a)
		}
	}
	if status, a := d.ask(t, "PUT", "/v1/sandboxes/"+id+"/network", `{}`, "X-API-Key", d.other); status != 404 {
		t.Errorf("another key's: %d %v", status, a)
	}
}

// A key whose policy lists tools starts programs by those alone, whatever the frontend;
// commands is the word that opens the others.
func TestProgramsByToolsAlone(t *testing.T) {
	const tools = "version: 1\ntools:\n  - {name: greet, params: {type: object}, command: [echo, hello]}\n  - {name: run_command, rate: 100/min}\n"
	for text, open := range map[string]bool{tools: false, tools + "commands: {allow: [echo]}\n": true} {
		d := newFrontendUnder(t, text)
		id := d.create(t, "{}")
		for path, body := range map[string]string{
			"/v1/sandboxes/" + id + "/exec": `{"command":["echo","raw"]}`,
			"/v1/runs":                      `{"shell":"echo raw"}`,
		} {
			status, a := d.ask(t, "POST", path, body)
			detail, _ := a["detail"].(string)
			hint, _ := a["hint"].(string)
			if open && (status != 200 || a["stdout"] != "raw\n") {
				t.Errorf("%s: %d %v", path, status, a)
			}
			if !open && (status != 403 || !strings.Contains(detail, "run_command") || !strings.Contains(hint, "commands: {allow:") || a["rule"] != "/p.yaml:4") {
				t.Errorf("%s: %d %v", path, status, a)
			}
		}
		if status, a := d.ask(t, "POST", "/v1/runs", `{"language":"bash","code":"echo raw"}`); open != (status == 200) {
			t.Errorf("code: %d %v", status, a)
		}
		// Tools run all the same, in a persistent sandbox, too.
		for _, body := range []string{`{"name":"greet","arguments":{}}`, `{"name":"run_command","arguments":{"command":"echo hello"}}`,
			`{"name":"run_command","arguments":{"command":"echo hello","sandbox_id":"` + id + `"}}`} {
			status, a := d.ask(t, "POST", "/v1/tools/call", body)
			if out, _ := a["output"].(map[string]any); status != 200 || out["stdout"] != "hello\n" {
				t.Errorf("%s: %d %v", body, status, a)
			}
		}
	}
}

// What a program writes beyond what is kept is cut, and said to be.
func TestKeep(t *testing.T) {
	d := newFrontend(t)
	id := d.create(t, "{}")
	status, a := d.ask(t, "POST", "/v1/sandboxes/"+id+"/exec", `{"shell":"head -c 100000 /dev/zero | tr '\\0' x","keep":10}`)
	if status != 200 || a["stdout"] != "xxxxxxxxxx" || a["truncated"].(map[string]any)["stdout"] != 99990.0 {
		t.Errorf("%d %v", status, a)
	}
	status, a = d.ask(t, "POST", "/v1/sandboxes/"+id+"/exec", `{"command":["sleep","60"],"timeout":0.2}`)
	if status != 200 || a["status"] != "timeout" {
		t.Errorf("%d %v", status, a)
	}
	status, a = d.ask(t, "POST", "/v1/sandboxes/"+id+"/exec", `{"command":["sh","-c","test -t 1 && stty size && echo $TERM"],"terminal":{"rows":7,"cols":70,"term":"dumb"}}`)
	if status != 200 || a["stdout"] != "7 70\r\ndumb\r\n" {
		t.Errorf("%d %v", status, a)
	}
}

// The description is that of docs/openapi.yaml, and everybody may have it.
func TestDescription(t *testing.T) {
	d := newFrontend(t)
	resp, b := d.raw(t, "GET", "/openapi.yaml", "", "X-API-Key", "")
	if resp.StatusCode != 200 || !strings.HasPrefix(string(b), "components:") {
		t.Fatalf("%d %.200s", resp.StatusCode, b)
	}
	file := filepath.Join("..", "..", "docs", "openapi.yaml")
	b = append([]byte("# SPDX-License-Identifier: Apache-2.0\n# As caisson serve has it at /openapi.yaml. Made by: CAISSON_UPDATE=1 go test ./api/v1 -run TestDescription\n"), b...)
	if os.Getenv("CAISSON_UPDATE") != "" {
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != string(b) {
		t.Errorf("docs/openapi.yaml is another (%v); CAISSON_UPDATE=1 writes it", err)
	}
	status, a := d.ask(t, "GET", "/openapi.json", "", "X-API-Key", "")
	if status != 200 || a["openapi"] != "3.1.0" {
		t.Error(status, a["openapi"])
	}
	// Clients that are made of it get each answer that there is: a quota that is used
	// up, a sandbox that is paused, a name that there was.
	paths := a["paths"].(map[string]any)
	for path, of := range paths {
		for method, op := range of.(map[string]any) {
			if op.(map[string]any)["responses"].(map[string]any)["default"] == nil {
				t.Errorf("%s %s: it does not say what other errors look like", method, path)
			}
		}
	}
	for _, answer := range [][3]string{{"/v1/sandboxes", "post", "200"}, {"/v1/sandboxes", "post", "201"}, {"/v1/sandboxes/{id}/files", "get", "206"}} {
		if paths[answer[0]].(map[string]any)[answer[1]].(map[string]any)["responses"].(map[string]any)[answer[2]] == nil {
			t.Errorf("%v is not described", answer)
		}
	}
}
