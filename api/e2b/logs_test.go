// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestLogs(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	key := map[string]string{"X-API-Key": d.key}
	d.sh(t, b, "echo one; echo two")
	d.sh(t, b, "echo bad >&2; exit 3")
	var v struct {
		Logs       []struct{ Line, Level, Message string }
		LogEntries []struct{ Level, Message string }
	}
	ask := func(path string) (int, string) {
		t.Helper()
		status, text, _ := d.raw(t, "GET", path, key, "")
		v.Logs, v.LogEntries = nil, nil
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatalf("%s: %s", path, text)
		}
		var all []string
		for _, l := range v.Logs {
			all = append(all, strings.TrimSpace(l.Level+" "+l.Message+l.Line))
		}
		return status, strings.Join(all, "; ")
	}
	// A program's end is in the log when it is recorded, which is behind its client's back.
	for {
		if _, got := ask("/v2/sandboxes/" + b.id + "/logs"); strings.Contains(got, "code 3") {
			break
		}
	}
	const ok, failed = "exited with code 0: /bin/sh -c echo one; echo two", "exited with code 3: /bin/sh -c echo bad >&2; exit 3"
	for query, want := range map[string]string{
		"":                             "info one; info two; info " + ok + "; warn bad; error " + failed,
		"?limit=1":                     "info one",
		"?limit=1&direction=backward":  "error " + failed,
		"?level=warn":                  "warn bad; error " + failed,
		"?search=two&level=info":       "info two; info " + ok,
		"?cursor=4102444800000":        "",
		"?cursor=1&direction=backward": "",
		"?cursor=1&limit=1":            "info one",
	} {
		if status, got := ask("/v2/sandboxes/" + b.id + "/logs" + query); status != 200 || got != want {
			t.Errorf("%s: %d %s, want %s", query, status, got, want)
		}
	}
	if _, got := ask("/sandboxes/" + b.id + "/logs?limit=2"); got != `{"command":"/bin/sh -c echo one; echo two","level":"info","logger":"process","message":"one","stream":"stdout"}; `+
		`{"command":"/bin/sh -c echo one; echo two","level":"info","logger":"process","message":"two","stream":"stdout"}` || len(v.LogEntries) != 2 {
		t.Errorf("version 1: %s, %+v", got, v.LogEntries)
	}
	for _, bad := range []string{"?limit=-1", "?limit=x", "?level=loud", "?direction=up", "?cursor=-1", "?cursor=x"} {
		if status, _, _ := d.raw(t, "GET", "/v2/sandboxes/"+b.id+"/logs"+bad, key, ""); status != 400 {
			t.Errorf("%s: %d", bad, status)
		}
	}
	if status, _, _ := d.raw(t, "GET", "/v2/sandboxes/"+b.id+"/logs", map[string]string{"X-API-Key": d.other}, ""); status != 404 {
		t.Errorf("another key's: %d", status)
	}
}

func TestTemplates(t *testing.T) {
	d := newFrontend(t)
	key := map[string]string{"X-API-Key": d.key}
	for path, want := range map[string]string{
		"/templates": `"templateID":"base"`, "/v2/templates": `"names":["base"]`, "/templates/base": `"builds":[]`, "/templates/aliases/base": `"templateID":"base"`,
	} {
		if status, text, _ := d.raw(t, "GET", path, key, ""); status != 200 || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d %s", path, status, text)
		}
		if status, _, _ := d.raw(t, "GET", path, nil, ""); status != 401 {
			t.Errorf("%s without a key: %d", path, status)
		}
	}
	for _, path := range []string{"/templates/other", "/templates/aliases/other"} {
		if status, a := d.ask(t, "GET", path, key, ""); status != 404 || a["code"] != 404.0 {
			t.Errorf("%s: %d %v", path, status, a)
		}
	}
}
