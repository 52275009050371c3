// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// An answer as a whole, what is refused of one, and the contexts beside it.
func TestCells(t *testing.T) {
	d := newFrontend(t)
	path := "/v1/sandboxes/" + d.create(t, "{}") + "/"
	status, a := d.ask(t, "POST", path+"cells", `{"code":"import sys\nprint('ä')\nprint('b', file=sys.stderr)\nopen('f','w').write('x')\n[1]","env":{"A":"b"}}`)
	b, _ := json.Marshal(a)
	delete(a, "wall_ms")
	if got, _ := json.Marshal(a); status != 200 || string(got) != `{"execution":1,"files":[{"path":"/home/user/f","size":1}],"results":[{"data":{"text/plain":"[1]"},"main":true}],"status":"ok","stderr":"b\n","stdout":"ä\n"}` {
		t.Errorf("%d %s", status, b)
	}
	status, a = d.ask(t, "POST", path+"cells", `{"code":"def f():\n  g()\nf()"}`)
	if e, _ := a["error"].(map[string]any); status != 200 || a["status"] != "error" || e["name"] != "NameError" || !strings.Contains(e["traceback"].(string), "line 2") {
		t.Errorf("%d %v", status, a)
	}
	status, a = d.ask(t, "POST", path+"cells", `{"code":"while True: pass","timeout":0.3}`)
	if status != 200 || a["status"] != "timeout" {
		t.Errorf("%d %v", status, a)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "cells", `{"code":"1","cwd":"tmp"}`, 400}, {"POST", "cells", `{"code":"1","context":"none"}`, 404}, {"POST", "cells", `{"code":"1","language":"nosuchkernel"}`, 501},
		{"POST", "cells", `{"code":"1","language":"../x"}`, 400}, {"POST", "cells", `{"code":"a\u0000b"}`, 400}, {"POST", "cells", `{"code":"1","more":1}`, 422},
		{"POST", "contexts", `{"id":"one","cwd":"/tmp"}`, 201}, {"POST", "contexts", `{"id":"one"}`, 400}, {"POST", "contexts", `{"id":".."}`, 400},
		{"POST", "contexts/one/interrupt", "", 204}, {"POST", "contexts/one/restart", "", 204}, {"DELETE", "contexts/one", "", 204}, {"DELETE", "contexts/one", "", 404},
	} {
		if status, a := d.ask(t, c.method, path+c.path, c.body); status != c.status {
			t.Errorf("%s %s %s: %d %v", c.method, c.path, c.body, status, a)
		}
	}
	if status, a := d.ask(t, "GET", path+"contexts", ""); status != 200 || len(a["contexts"].([]any)) != 1 {
		t.Errorf("%d %v", status, a)
	}
}

// Contexts side by side have states of their own, and a cell may be long: as a request may.
func TestManyCells(t *testing.T) {
	d := newFrontend(t)
	path := "/v1/sandboxes/" + d.create(t, "{}") + "/"
	const many = 50
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			id := fmt.Sprintf("c%d", i)
			if status, a := d.ask(t, "POST", path+"contexts", `{"id":"`+id+`","language":"bash"}`); status != 201 {
				t.Errorf("%d %v", status, a)
			}
			for _, code := range []string{fmt.Sprintf("x=%d", i), "echo $x"} {
				status, a := d.ask(t, "POST", path+"cells", `{"code":"`+code+`","context":"`+id+`"}`)
				if status != 200 || a["status"] != "ok" || code == "echo $x" && a["stdout"] != fmt.Sprintf("%d\n", i) {
					t.Errorf("%s: %d %v", id, status, a)
				}
			}
		})
	}
	all.Wait()
	for status, n := range map[int]int{200: 3 << 20, 413: 5 << 20} {
		body := `{"code":"x=` + strings.Repeat("a", n) + `\necho ${#x}","context":"c1"}`
		if got, a := d.ask(t, "POST", path+"cells", body); got != status || status == 200 && a["stdout"] != fmt.Sprintf("%d\n", n) {
			t.Errorf("%d bytes: %d %v", n, got, a)
		}
	}
}
