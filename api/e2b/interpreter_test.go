// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/policy"
)

// told are the lines of an execution.
func told(t *testing.T, text []byte) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(string(text)) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil || !strings.HasSuffix(line, "\n") || strings.ContainsFunc(line, func(r rune) bool { return r > 126 }) {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, v)
	}
	return lines
}

func types(lines []map[string]any) (out []string) {
	for _, l := range lines {
		if l["type"] != "keepalive" { // on a slow machine
			out = append(out, l["type"].(string))
		}
	}
	return out
}

// The interpreter's port, by header and by host name: what it answers, and to whom.
func TestInterpreterPort(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	port := b.to(49999)
	without := func(h map[string]string) map[string]string { h = with(h); delete(h, "X-Access-Token"); return h }
	named := map[string]string{"Host": "49999-" + b.id + ".localhost", "X-Access-Token": b.token}

	status, text, head := d.raw(t, "POST", "/execute", with(port, "Origin", "https://example.com"), `{"code":"import sys\nprint('grüße 😀')\nprint('no', file=sys.stderr)\n'a'","env_vars":{"A":"b"}}`)
	lines := told(t, text)
	if want := []string{"number_of_executions", "stdout", "stderr", "result", "end_of_execution"}; status != 200 || !slices.Equal(types(lines), want) {
		t.Fatalf("%d %q", status, text)
	}
	if lines[1]["text"] != "grüße 😀\n" || lines[3]["text"] != "a" || lines[3]["is_main_result"] != true || len(lines[3]["extra"].(map[string]any)) != 0 || lines[1]["timestamp"] == nil {
		t.Errorf("%q", text)
	}
	if head.Get("Access-Control-Allow-Origin") != "*" || head.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%v", head)
	}

	// Running code wants the sandbox's token, under every name; contexts are as public as a port.
	other := d.create(t, "")
	for name, h := range map[string]map[string]string{
		"none": without(port), "none by name": without(named), "a key": with(without(port), "X-API-Key", d.key), "another sandbox's": with(port, "X-Access-Token", other.token),
		"another by name": with(named, "X-Access-Token", other.token), "wrong": with(port, "X-Access-Token", "x"),
	} {
		if status, text, _ := d.raw(t, "POST", "/execute", h, `{"code":"1"}`); status != 401 {
			t.Errorf("token %s: %d %s", name, status, text)
		}
	}
	if status, text, _ := d.raw(t, "POST", "/execute", named, `{"code":"1"}`); status != 200 {
		t.Errorf("by name: %d %s", status, text)
	}
	if status, _, _ := d.raw(t, "GET", "/contexts", without(port), ""); status != 200 {
		t.Errorf("contexts without a token: %d", status)
	}
	if status, text, _ := d.raw(t, "POST", "/contexts", without(port), `{"language":"ir"}`); status != 401 {
		t.Errorf("a kernel of the sandbox's without a token: %d %s", status, text)
	}

	// Contexts.
	status, made := d.ask(t, "POST", "/contexts", without(port), `{"cwd":"/tmp"}`)
	id, _ := made["id"].(string)
	if status != 200 || made["language"] != "python" || made["cwd"] != "/tmp" || id == "" {
		t.Fatalf("%d %v", status, made)
	}
	status, text, _ = d.raw(t, "GET", "/contexts", port, "")
	var list []map[string]any
	if err := json.Unmarshal(text, &list); err != nil || status != 200 || len(list) != 3 || list[2]["id"] != id {
		t.Errorf("%d %s", status, text) // python has run; javascript is expected there
	}
	if _, text, _ := d.raw(t, "POST", "/execute", port, `{"code":"import os; os.getcwd()","context_id":"`+id+`"}`); !strings.Contains(string(text), `"text":"/tmp"`) {
		t.Errorf("%s", text)
	}
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/contexts/" + id + "/restart", "", 200}, {"POST", "/contexts/javascript/restart", "", 200}, {"POST", "/contexts/none/restart", "", 404},
		{"DELETE", "/contexts/" + id, "", 200}, {"DELETE", "/contexts/" + id, "", 404}, {"DELETE", "/contexts/..%2Fx", "", 404},
		{"POST", "/execute", `{"code":"1","context_id":"` + id + `"}`, 404}, {"POST", "/execute", `{"code":"1","context_id":"` + id + `","language":"python"}`, 400},
		{"POST", "/execute", `{"code":`, 400}, {"POST", "/contexts", `{"cwd":"tmp"}`, 400}, {"GET", "/health", "", 200}, {"GET", "/execute", "", 404}, {"GET", "/", "", 404},
	} {
		status, text, head := d.raw(t, tt.method, tt.path, port, tt.body)
		if status != tt.want || status >= 400 && !strings.HasPrefix(head.Get("Content-Type"), "text/plain") {
			t.Errorf("%s %s %s: %d %s", tt.method, tt.path, tt.body, status, text)
		}
	}

	if status, text, _ := d.raw(t, "GET", "/health", with(port, "E2b-Sandbox-Id", "i00000000000000000000"), ""); status != 502 {
		t.Errorf("a sandbox that is none: %d %s", status, text)
	}
	d.raw(t, "DELETE", "/sandboxes/"+b.id, map[string]string{"X-API-Key": d.key}, "")
	for _, path := range []string{"/execute", "/contexts"} {
		if status, text, _ := d.raw(t, "POST", path, port, `{"code":"1"}`); status != 502 {
			t.Errorf("%s of one that was killed: %d %s", path, status, text)
		}
	}
}

// Who has no token can make as many contexts as a sandbox may have. Cells of the default
// ones still run, and long ones.
func TestInterpreterOfStrangers(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	port := b.to(49999)
	without := with(port)
	delete(without, "X-Access-Token")
	made := 0
	for status := 200; made < 100; made++ {
		var text []byte
		if status, text, _ = d.raw(t, "POST", "/contexts", without, `{"language":"bash"}`); status != 200 {
			if status != 429 || !strings.Contains(string(text), "64") {
				t.Errorf("%d %s", status, text)
			}
			break
		}
	}
	if made != 64 {
		t.Errorf("%d contexts were made", made)
	}
	if status, text, _ := d.raw(t, "POST", "/execute", port, `{"code":"echo $((6*7))","language":"bash"}`); status != 200 || !strings.Contains(string(text), `"text":"42\n"`) {
		t.Errorf("%d %s", status, text)
	}
	// A long cell is run, and a longer one is refused by its size.
	for status, n := range map[int]int{200: 5 << 20, 413: 16 << 20} {
		if got, text, _ := d.raw(t, "POST", "/execute", port, `{"code":"x=`+strings.Repeat("a", n)+`\necho ${#x}","language":"bash"}`); got != status || status == 200 && !strings.Contains(string(text), "5242880") {
			t.Errorf("%d bytes: %d %.200s", n, got, text)
		}
	}
}

// A refusal is an error of the execution, with the rule: clients show no body of a status.
func TestInterpreterUnderAPolicy(t *testing.T) {
	f, err := policy.Parse("/w/p.yaml", []byte("version: 1\ncode: {python: {deny_imports: [socket]}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	d := newFrontendUnder(t, f)
	b := d.create(t, "")
	status, text, _ := d.raw(t, "POST", "/execute", b.to(49999), `{"code":"import socket"}`)
	lines := told(t, text)
	if status != 200 || !slices.Equal(types(lines), []string{"error", "end_of_execution"}) || lines[0]["name"] != "Denied" || !strings.Contains(lines[0]["traceback"].(string), "/w/p.yaml:2") {
		t.Errorf("%d %s", status, text)
	}
	// A private sandbox's interpreter is private, too.
	private := d.create(t, `,"network":{"allowPublicTraffic":false}`)
	if status, _, _ := d.raw(t, "GET", "/contexts", private.to(49999), ""); status != 403 {
		t.Errorf("contexts of a private one: %d", status)
	}
}
