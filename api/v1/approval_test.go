// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/approval/approvaltest"
)

const asks = "version: 1\ncommands: {allow: [sh, echo], ask: [\"echo *\"]}\napprovals: {channels: [CHANNELS], timeout: 5m}\n"

// asker is a frontend whose policy asks, and an approver's credential.
func asker(t *testing.T, channels string) (d *frontend, s *apitest.Server, credential string) {
	t.Helper()
	s = apitest.Start(t, strings.Replace(asks, "CHANNELS", channels, 1))
	return &frontend{s.URL, s.Key, s.Other}, s, approvaltest.Enroll(t, approvaltest.Store(t, s.Approvals))
}

const askedRun = `{"command":["echo","%s"],"resumable":true%s}`

// Asked over HTTP, shown, answered by the approver, and run once by its token.
func TestApprovals(t *testing.T) {
	d, _, credential := asker(t, "web")
	as := []string{"X-API-Key", "", "Authorization", "Bearer " + credential}
	status, a := d.ask(t, "POST", "/v1/runs", fmt.Sprintf(askedRun, "hello", ""))
	waits, _ := a["approval"].(map[string]any)
	if status != 403 || waits["token"] == nil || waits["url"] != d.url+"/approvals/"+waits["id"].(string) {
		t.Fatalf("%d %v", status, a)
	}
	id, token := waits["id"].(string), `,"approval":"`+waits["token"].(string)+`"`
	if status, a = d.ask(t, "POST", "/v1/runs", fmt.Sprintf(askedRun, "hello", token)); status != 403 || a["approval"].(map[string]any)["id"] != id {
		t.Errorf("nobody has answered: %d %v", status, a)
	}
	status, a = d.ask(t, "GET", "/v1/approvals?wait=1", "", as...)
	list, _ := a["approvals"].([]any)
	if status != 200 || len(list) != 1 || list[0].(map[string]any)["id"] != id || list[0].(map[string]any)["view"] != nil || !strings.Contains(list[0].(map[string]any)["about"].(string), "echo hello") {
		t.Fatalf("%d %v", status, a)
	}
	status, a = d.ask(t, "GET", "/v1/approvals/"+id, "", as...)
	if status != 200 || a["state"] != "pending" || !strings.Contains(fmt.Sprint(a["view"]), "│ hello") {
		t.Fatalf("%d %v", status, a)
	}
	digest := a["digest"].(string)
	// What was not shown is not approved.
	if status, a = d.ask(t, "POST", "/v1/approvals/"+id+"/approve", `{"digest":"sha256:`+strings.Repeat("0", 64)+`"}`, as...); status != 409 {
		t.Errorf("another digest: %d %v", status, a)
	}
	status, a = d.ask(t, "POST", "/v1/approvals/"+id+"/approve", `{"digest":"`+digest+`"}`, as...)
	if status != 200 || a["state"] != "approved" || a["approver"] != "approver:ada" || a["channel"] != "web" {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "POST", "/v1/runs", fmt.Sprintf(askedRun, "hello", token), "X-API-Key", d.other); status != 403 || a["approval"] != nil {
		t.Errorf("another key's: %d %v", status, a)
	}
	if status, a = d.ask(t, "POST", "/v1/runs", fmt.Sprintf(askedRun, "hello", token)); status != 200 || a["stdout"] != "hello\n" {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "POST", "/v1/runs", fmt.Sprintf(askedRun, "hello", token)); status != 403 || a["stdout"] != nil {
		t.Errorf("a second time: %d %v", status, a)
	}
	// A no is final.
	_, a = d.ask(t, "POST", "/v1/runs", fmt.Sprintf(askedRun, "no", ""))
	waits = a["approval"].(map[string]any)
	if status, a = d.ask(t, "POST", "/v1/approvals/"+waits["id"].(string)+"/deny", `{"note":"not on a Friday"}`, as...); status != 200 || a["state"] != "denied" {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "POST", "/v1/runs", fmt.Sprintf(askedRun, "no", `,"approval":"`+waits["token"].(string)+`"`)); status != 403 || !strings.Contains(a["detail"].(string), "not on a Friday") {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "GET", "/v1/approvals?state=used,denied&limit=1", "", as...); status != 200 || len(a["approvals"].([]any)) != 1 || a["next"] == nil {
		t.Errorf("%d %v", status, a)
	} else if status, a = d.ask(t, "GET", "/v1/approvals?state=used,denied&limit=1&cursor="+a["next"].(string), "", as...); status != 200 || len(a["approvals"].([]any)) != 1 || a["next"] != nil {
		t.Errorf("%d %v", status, a)
	}
}

// Who asks does not approve, and who approves does not ask.
func TestWhoApproves(t *testing.T) {
	d, _, credential := asker(t, "cli")
	_, a := d.ask(t, "POST", "/v1/runs", fmt.Sprintf(askedRun, "hello", ""))
	id := a["approval"].(map[string]any)["id"].(string)
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
	}{
		{"a key", "GET", "", "", nil, 401},
		{"a key as a bearer", "GET", "", "", []string{"X-API-Key", "", "Authorization", "Bearer " + d.key}, 401},
		{"the key shows", "GET", "/" + id, "", nil, 401},
		{"the key approves", "POST", "/" + id + "/approve", `{"digest":"000000000000"}`, nil, 401},
		{"the key denies", "POST", "/" + id + "/deny", `{}`, nil, 401},
		{"nobody", "POST", "/" + id + "/approve", `{"digest":"000000000000"}`, []string{"X-API-Key", ""}, 401},
		{"no credential", "GET", "", "", []string{"X-API-Key", "", "Authorization", "Bearer approver_" + strings.Repeat("0", 40)}, 401},
		{"a credential as a key", "GET", "", "", []string{"X-API-Key", credential}, 401},
		{"an encoded path", "GET", "%2F..%2Fsandboxes", "", nil, 401},
		{"no beginning", "GET", "/ap", "", []string{"X-API-Key", "", "Authorization", "Bearer " + credential}, 404},
		{"a pattern", "GET", "/apv_*", "", []string{"X-API-Key", "", "Authorization", "Bearer " + credential}, 404},
		{"by no channel of the policy's", "POST", "/" + id + "/deny", `{}`, []string{"X-API-Key", "", "Authorization", "Bearer " + credential}, 403},
	} {
		if status, a := d.ask(t, c.method, "/v1/approvals"+c.path, c.body, c.header...); status != c.status || a["detail"] == nil {
			t.Errorf("%s: %d %v, want %d", c.name, status, a, c.status)
		}
	}
	for _, path := range []string{"/v1/sandboxes", "/v1/events", "/v1/approvals/../sandboxes"} {
		if status, a := d.ask(t, "GET", path, "", "X-API-Key", "", "Authorization", "Bearer "+credential); status != 401 && status != 307 {
			t.Errorf("a credential is a key at %s: %d %v", path, status, a)
		}
	}
}

// The page is for everybody, has no one's data, and runs its own script alone.
func TestApprovalPage(t *testing.T) {
	d := newFrontend(t)
	resp, b := d.raw(t, "GET", "/approvals/apv_x", "", "X-API-Key", "")
	policy := resp.Header.Get("Content-Security-Policy")
	if resp.StatusCode != 200 || !strings.Contains(policy, "default-src 'none'; script-src 'sha256-") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("%d %q", resp.StatusCode, policy)
	}
	for _, bad := range []string{"innerHTML", "http:", "https:", "onclick=", "localStorage", "document.cookie", "apv_x"} {
		if strings.Contains(string(b), bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if resp, _ := d.raw(t, "POST", "/approvals/apv_x", "", "X-API-Key", ""); resp.StatusCode != 405 {
		t.Error(resp.StatusCode)
	}
	if resp, _ := d.raw(t, "GET", "/approvals/apv_x", "", "Host", "evil.example"); resp.StatusCode != 421 {
		t.Error(resp.StatusCode)
	}
}
