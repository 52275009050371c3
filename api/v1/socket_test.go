// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/caisson-run/caisson/api/v1"
)

// dial opens the WebSocket of a sandbox's programs.
func (d *frontend) dial(t *testing.T, id string, header ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	h := http.Header{"X-Api-Key": {d.key}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	c, resp, err := websocket.Dial(t.Context(), strings.Replace(d.url, "http", "ws", 1)+"/v1/sandboxes/"+id+"/exec", &websocket.DialOptions{HTTPHeader: h})
	if err == nil {
		c.SetReadLimit(1 << 20)
	}
	return c, resp, err
}

// talk says something first, and returns all that is said until the end; heard is
// told of the output as it comes.
func talk(t *testing.T, c *websocket.Conn, first string, heard func(all string)) (out [3]string, end v1.Result, problem *v1.Problem) {
	t.Helper()
	if err := c.Write(t.Context(), websocket.MessageText, []byte(first)); err != nil {
		t.Fatal(err)
	}
	var all [3]strings.Builder
	for {
		kind, b, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if kind == websocket.MessageText {
			var l struct {
				End     *v1.Result
				Problem *v1.Problem
			}
			if err := json.Unmarshal(b, &l); err != nil || l.End == nil && l.Problem == nil {
				t.Fatalf("%s %v", b, err)
			}
			if l.End != nil {
				end = *l.End
			}
			for i := range all {
				out[i] = all[i].String()
			}
			if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
				t.Error(err)
			}
			return out, end, l.Problem
		}
		all[b[0]].Write(b[1:])
		if heard != nil {
			heard(all[1].String())
		}
	}
}

func TestSocket(t *testing.T) {
	d := newFrontend(t)
	id := d.create(t, "{}")
	open := func(t *testing.T) *websocket.Conn {
		c, _, err := d.dial(t, id)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.CloseNow() })
		return c
	}
	send := func(t *testing.T, c *websocket.Conn, kind websocket.MessageType, s string) {
		if err := c.Write(t.Context(), kind, []byte(s)); err != nil {
			t.Error(err)
		}
	}
	t.Run("input", func(t *testing.T) {
		c, sent := open(t), 0
		out, end, _ := talk(t, c, `{"command":["sh","-c","echo ready; cat; echo end >&2; exit 4"],"stdin":"first "}`, func(all string) {
			switch {
			case sent == 0 && strings.Contains(all, "first "):
				sent++
				send(t, c, websocket.MessageBinary, "one ")
			case sent == 1 && strings.Contains(all, "one "):
				sent++
				send(t, c, websocket.MessageBinary, "two")
				send(t, c, websocket.MessageText, `{"eof":true}`)
			}
		})
		if out[1] != "ready\nfirst one two" || out[2] != "end\n" || end.ExitCode == nil || *end.ExitCode != 4 {
			t.Errorf("%q %+v", out, end)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		c, sized := open(t), false
		out, end, _ := talk(t, c, `{"command":["sh","-c","trap 'stty size; exit 0' WINCH; stty size; while :; do :; done"],"terminal":{"rows":5,"cols":50}}`, func(all string) {
			if strings.Contains(all, "5 50") && !sized {
				sized = true
				send(t, c, websocket.MessageText, `{"resize":{"rows":6,"cols":60}}`)
			}
		})
		if out[1] != "5 50\r\n6 60\r\n" || end.Status != "success" {
			t.Errorf("%q %+v", out, end)
		}
	})
	t.Run("signal", func(t *testing.T) {
		c := open(t)
		out, end, _ := talk(t, c, `{"command":["sh","-c","trap 'echo got; exit 9' TERM; echo ready; while :; do :; done"]}`, func(all string) {
			if all == "ready\n" {
				send(t, c, websocket.MessageText, `{"signal":"SIGTERM"}`)
			}
		})
		if out[1] != "ready\ngot\n" || end.ExitCode == nil || *end.ExitCode != 9 {
			t.Errorf("%q %+v", out, end)
		}
	})
	t.Run("much", func(t *testing.T) {
		out, end, _ := talk(t, open(t), `{"shell":"head -c 20000000 /dev/zero"}`, nil)
		if out[1] != string(make([]byte, 20000000)) || end.Status != "success" {
			t.Errorf("%d bytes, %+v", len(out[1]), end)
		}
	})
	t.Run("input that nobody reads", func(t *testing.T) {
		c := open(t)
		_, end, _ := talk(t, c, `{"command":["sh","-c","echo ready; exec sleep 0.3"]}`, func(all string) {
			if all != "ready\n" { // the command comes first
				return
			}
			go func() {
				for c.Write(context.Background(), websocket.MessageBinary, bytes.Repeat([]byte("x"), 1<<19)) == nil {
				}
			}()
		})
		if end.Status != "success" {
			t.Errorf("%+v", end)
		}
	})
	t.Run("its caller goes", func(t *testing.T) {
		c := open(t)
		send(t, c, websocket.MessageText, `{"shell":"echo $$ > pid; sleep 600"}`)
		until(t, func() bool { return d.exec(t, id, "test -s pid")["status"] == "success" })
		c.CloseNow()
		until(t, func() bool { return d.exec(t, id, "! kill -0 $(cat pid) 2>/dev/null")["status"] == "success" })
	})
	t.Run("refused", func(t *testing.T) {
		for name, c := range map[string]struct {
			id     string
			status int
			header []string
		}{
			"no key":           {id, 401, []string{"X-Api-Key", ""}},
			"another key":      {id, 404, []string{"X-Api-Key", d.other}},
			"no id":            {"nothing", 404, nil},
			"a page elsewhere": {id, 403, []string{"Origin", "http://evil.example"}},
		} {
			conn, resp, err := d.dial(t, c.id, c.header...)
			if err == nil {
				conn.CloseNow()
			}
			if resp == nil || resp.StatusCode != c.status {
				t.Errorf("%s: %v", name, err)
			}
		}
		if status, _ := d.ask(t, "GET", "/v1/sandboxes/"+id+"/exec", ""); status != 426 {
			t.Error(status)
		}
	})
}

// The first message of a WebSocket is held to what the body of the same request by
// POST is, and refused in the same words.
func TestFirstMessageIsABody(t *testing.T) {
	d := newFrontend(t)
	id := d.create(t, "{}")
	for _, first := range []string{
		"{", "[]", "null", "{}", `{"shell":"true"}{}`, `{"shell":"true","mounts":[]}`, `{"SHELL":"true"}`, `{"shell":7}`, `{"shell":"true","command":["true"]}`,
		`{"command":[` + strings.Repeat(`"x",`, 4096) + `"x"]}`, `{"shell":"true","cwd":"/` + strings.Repeat("x", 4096) + `"}`,
		`{"shell":"true","user":"x"}`, `{"shell":"true","user":""}`, `{"shell":"true","env":{"A":1}}`, `{"shell":"true","stdin_base64":"?"}`,
		`{"shell":"true","timeout":-1}`, `{"shell":"true","timeout":31536001}`, `{"shell":"true","timeout":1e300}`, `{"shell":"true","timeout":1e400}`,
		`{"shell":"true","keep":-1}`, `{"shell":"true","keep":16777217}`, `{"shell":"true","keep":0.5}`,
		`{"shell":"true","terminal":{}}`, `{"shell":"true","terminal":{"rows":5}}`, `{"shell":"true","terminal":{"rows":5,"cols":10001}}`,
		`{"shell":"true","terminal":{"rows":0,"cols":0}}`, `{"shell":"true","terminal":{"rows":5,"cols":50,"depth":1}}`,
		`{"shell":"true","terminal":{"rows":5,"cols":50,"term":"` + strings.Repeat("x", 65) + `"}}`, `{"shell":"true","approval":"` + strings.Repeat("x", 257) + `"}`,
	} {
		t.Run(clipped(first), func(t *testing.T) {
			c, _, err := d.dial(t, id)
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseNow()
			status, said := d.ask(t, "POST", "/v1/sandboxes/"+id+"/exec", first)
			b, err := json.Marshal(said)
			if err != nil {
				t.Fatal(err)
			}
			var want v1.Problem
			if err := json.Unmarshal(b, &want); err != nil || want.Status != status || status < 400 {
				t.Fatalf("by POST: %d %s %v", status, b, err)
			}
			if _, end, p := talk(t, c, first, nil); p == nil || !reflect.DeepEqual(*p, want) {
				t.Errorf("%+v %+v, by POST %+v", end, p, want)
			}
		})
	}
}

func clipped(s string) string { return s[:min(len(s), 60)] }
