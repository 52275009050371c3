// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"encoding/json"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/api/v1"
)

// A body is refused for what it is made of before it is read for what it says: it
// costs what was read of it. Without the bound a request below was 490 MB.
func TestBodyOfTooMuch(t *testing.T) {
	s := apitest.Start(t, "")
	d := &frontend{s.URL, s.Key, s.Other}
	id := d.create(t, "{}")
	many := "[" + strings.Repeat("[],", (4<<20)/3-50) + "[]]"
	for path, body := range map[string]string{
		"/v1/runs":                      `{"command":` + many + `}`,
		"/v1/sandboxes":                 `{"env":` + many + `}`,
		"/v1/sandboxes/" + id + "/exec": `{"x":` + many + `}`,
		"/v1/tools/call":                `{"name":"run_command","arguments":{"command":` + many + `}}`,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("X-API-Key", d.key)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.Handler.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		var p v1.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 413 || !strings.Contains(p.Detail, "more than 20000 values") {
			t.Errorf("%s: %d %.300s", path, w.Code, w.Body)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 32 {
			t.Errorf("%s: it took %d MiB", path, took)
		}
	}
	// What is long and made of little goes on.
	if status, a := d.ask(t, "POST", "/v1/sandboxes/"+id+"/exec", `{"shell":"wc -c","stdin":"`+strings.Repeat("[", 3<<20)+`"}`); status != 200 || strings.TrimSpace(a["stdout"].(string)) != "3145728" {
		t.Errorf("%d %.300v", status, a)
	}
}

// The first message of a WebSocket is held to the same.
func TestFirstMessageOfTooMuch(t *testing.T) {
	d := newFrontend(t)
	c, _, err := d.dial(t, d.create(t, "{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(websocket.StatusNormalClosure, "")
	_, _, p := talk(t, c, `{"env":{"x":[`+strings.Repeat("{},", api.MaxValues/2)+`{}]}}`, nil)
	if p == nil || p.Status != 413 || !strings.Contains(p.Detail, "values") {
		t.Errorf("%+v", p)
	}
}
