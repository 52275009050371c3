// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"bytes"
	"net/url"
	"strings"
	"testing"
)

// Files go in and out whole, and are listed, moved and removed.
func TestFiles(t *testing.T) {
	d := newFrontend(t)
	id := d.create(t, "{}")
	at := func(what, path string) string {
		return "/v1/sandboxes/" + id + "/files" + what + "?path=" + url.QueryEscape(path)
	}
	big := strings.Repeat("0123456789abcdef", 1<<20) // more than a message may have
	status, a := d.ask(t, "PUT", at("", "/home/user/d/big")+"&mode=750", big)
	if status != 200 || a["size"] != float64(len(big)) || a["mode"] != "750" || a["kind"] != "file" {
		t.Fatalf("%d %v", status, a)
	}
	resp, b := d.raw(t, "GET", at("", "d/big"), "")
	if resp.StatusCode != 200 || string(b) != big || resp.Header.Get("Content-Disposition") != "attachment" || resp.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("%d, %d bytes, %v", resp.StatusCode, len(b), resp.Header)
	}
	if resp, b = d.raw(t, "GET", at("", "d/big"), "", "Range", "bytes=4-7"); resp.StatusCode != 206 || string(b) != "4567" {
		t.Errorf("%d %q", resp.StatusCode, b)
	}
	if status, a = d.ask(t, "GET", at("", "d/big"), "", "Range", "bytes=99999999-"); status != 416 || a["kind"] != nil || a["detail"] == nil {
		t.Errorf("%d %v", status, a)
	}
	d.raw(t, "PUT", at("", "empty"), "")
	if status, a = d.ask(t, "POST", at("/move", "empty")+"&to=e/f", ""); status != 200 || a["path"] != "/home/user/e/f" {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "POST", at("/directory", "e/g"), ""); status != 201 || a["kind"] != "directory" {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "GET", at("/list", "e"), ""); status != 200 || len(a["files"].([]any)) != 2 {
		t.Errorf("%d %v", status, a)
	}
	if resp, _ = d.raw(t, "DELETE", at("", "e"), ""); resp.StatusCode != 204 {
		t.Error(resp.StatusCode)
	}
	for path, want := range map[string]int{"e": 404, "/nothing/there": 404, "/home/user/d\x00": 400, "": 422, strings.Repeat("a/", 3000): 422} {
		if status, a = d.ask(t, "GET", at("", path), ""); status != want {
			t.Errorf("%.20q: %d %v", path, status, a)
		}
	}
	for _, path := range []string{"/etc/passwd", "/proc/1/mem", "/nothing", "../../../../etc/x"} {
		if status, a = d.ask(t, "PUT", at("", path), "x"); status < 400 || status == 500 {
			t.Errorf("%s was written: %d %v", path, status, a)
		}
		if status == 403 && a["kind"] != "denied" { // as docs/api.md has it
			t.Errorf("%s: %v", path, a)
		}
	}
	if status, _ = d.ask(t, "GET", at("", "/etc/hostname"), "", "X-API-Key", d.other); status != 404 {
		t.Errorf("another key's: %d", status)
	}
	// A link leads where it leads inside, never out.
	d.exec(t, id, "ln -s /etc/hostname link")
	inside := d.exec(t, id, "cat /etc/hostname 2>/dev/null || true")["stdout"].(string)
	if _, b = d.raw(t, "GET", at("", "link"), ""); inside != "" && !bytes.Equal(b, []byte(inside)) {
		t.Errorf("%q, and inside it is %q", b, inside)
	}
}

// A run has a sandbox of its own, with the limits of a run, and leaves nothing.
func TestRuns(t *testing.T) {
	d := newFrontend(t)
	status, a := d.ask(t, "POST", "/v1/runs", `{"code":"import sys; print(sys.argv[1:])","language":"python","args":["a","b"],"limits":{"memory":134217728}}`)
	if status != 200 || a["stdout"] != "['a', 'b']\n" || a["posture"].(map[string]any)["isolation"] != "gvisor" {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "POST", "/v1/runs", `{"command":["cat"],"stdin":"in"}`); status != 200 || a["stdout"] != "in" {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "POST", "/v1/runs", `{"shell":"sleep 60","timeout":0.2}`); status != 200 || a["status"] != "timeout" {
		t.Errorf("%d %v", status, a)
	}
	resp, b := d.raw(t, "POST", "/v1/runs", `{"shell":"echo x"}`, "Accept", "text/event-stream")
	if resp.StatusCode != 200 || !strings.Contains(string(b), `data: {"stream":"stdout","text":"x\n"}`) || !strings.Contains(string(b), "event: end\n") {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	for body, want := range map[string]int{
		`{}`: 400, `{"code":"x","shell":"y"}`: 400, `{"code":"x"}`: 400, `{"code":"x","language":"cobol"}`: 400, `{"shell":"true","template":"/etc"}`: 404,
		`{"shell":"true","network":{"allow":["example.com"]}}`: 403, `{"shell":"true","workspace":"/"}`: 422, `{"shell":"true","image":"/etc"}`: 422,
	} {
		if status, a = d.ask(t, "POST", "/v1/runs", body); status != want {
			t.Errorf("%s: %d %v", body, status, a)
		}
	}
	if status, a = d.ask(t, "GET", "/v1/sandboxes", ""); len(a["sandboxes"].([]any)) != 0 {
		t.Errorf("%d %v", status, a)
	}
}
