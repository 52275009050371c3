// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/session/toolcall"
)

// client is one that says what it likes.
type client struct {
	t      *testing.T
	say    io.WriteCloser
	answer *bufio.Reader
	left   chan error
}

func rawClient(t *testing.T, b box) *client {
	in, say := io.Pipe()
	answer, out := io.Pipe()
	c := &client{t, say, bufio.NewReader(answer), make(chan error, 1)}
	go func() { c.left <- Serve(context.Background(), b, "v0", in, out); out.Close() }()
	t.Cleanup(func() { say.Close() })
	return c
}

type answer struct {
	ID     any
	Result map[string]any
	Error  struct {
		Code    int
		Message string
	}
}

// ask says s and returns the next that is answered.
func (c *client) ask(s string) (a answer) {
	c.t.Helper()
	go io.WriteString(c.say, s)
	said, err := c.answer.ReadBytes('\n')
	if err != nil {
		c.t.Fatalf("%.80q: %v", s, err)
	}
	if err := json.Unmarshal(said, &a); err != nil {
		c.t.Fatalf("%.80q: %s: %v", s, said, err)
	}
	return a
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}` + "\n"

// What is no message is answered with what JSON-RPC has for that, and the next is heard.
func TestOddLines(t *testing.T) {
	c := rawClient(t, box{})
	c.ask(hello)
	for name, s := range map[string]struct {
		says string
		code int
		id   any
	}{
		"garbage":                       {"hello\x1b[2J\n", -32700, nil},
		"half a message":                {`{"jsonrpc":"2.0","id":7,"method":` + "\n", -32700, nil},
		"two in a line":                 {`{"jsonrpc":"2.0","id":7,"method":"ping"}{}` + "\n", -32700, nil},
		"a byte order mark":             {"\ufeff{}\n", -32700, nil},
		"no text":                       {"\xff\xfe\n", -32700, nil},
		"a number":                      {"5\n", -32600, nil},
		"an empty object":               {"{}\n", -32600, nil},
		"another version":               {`{"jsonrpc":"1.0","id":"a\u0000","method":"ping"}` + "\n", -32600, "a\x00"},
		"no version":                    {`{"id":7,"method":"ping"}` + "\n", -32600, 7.0},
		"a method that is no text":      {`{"jsonrpc":"2.0","id":7,"method":7}` + "\n", -32600, 7.0},
		"an ID that is an object":       {`{"jsonrpc":"2.0","id":{},"method":"ping"}` + "\n", -32600, nil},
		"an ID that is long":            {`{"id":"` + strings.Repeat("a", maxEchoed) + `","method":"ping"}` + "\n", -32600, nil},
		"nested too deep":               {`{"jsonrpc":"2.0","id":7,"method":"ping","params":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + "}\n", -32600, 7.0},
		"too long":                      {strings.Repeat("a", maxFrame+1) + "\n", -32600, nil},
		"of too much":                   {`{"jsonrpc":"2.0","id":7,"method":"ping","params":[` + strings.Repeat("[],", maxValues/2) + "[]]}\n", -32600, 7.0},
		"an empty batch":                {"[]\n", -32600, nil},
		"a batch with what is none":     {`[{"jsonrpc":"2.0","id":7,"method":"ping"},7]` + "\n", -32600, nil},
		"a message after an empty line": {"\n\r\n \n" + `{"jsonrpc":"2.0","id":8,"method":"ping"}` + "\r\n", 0, 8.0},
		"a batch":                       {`[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":8,"method":"ping"}]` + "\n", 0, 8.0},
	} {
		if a := c.ask(s.says); a.Error.Code != s.code || a.ID != s.id || strings.Contains(a.Error.Message, "\x1b") || s.code != 0 && a.Error.Message == "" {
			t.Errorf("%s: %+v", name, a)
		}
	}
	// An answer is not answered, whatever is wrong with it.
	a := c.ask(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}` + "\n" + `{"id":7,"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":9,"method":"ping"}` + "\n")
	if a.ID != 9.0 {
		t.Errorf("%+v", a)
	}
	c.say.Close()
	if err := <-c.left; err != nil {
		t.Error(err)
	}
}

// A call whose text is not UTF-8 is answered as a call.
func TestOddText(t *testing.T) {
	c := rawClient(t, box{func(_ context.Context, call *toolcall.Call) (*toolcall.Answer, error) {
		return ran(map[string]any{"status": "success", "exit_code": 0, "stdout": string(call.Args), "stderr": ""}), nil
	}})
	c.ask(hello)
	if a := c.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"` + "\xff" + `"}}}` + "\n"); a.ID != 1.0 || a.Error.Code == -32700 {
		t.Errorf("%+v", a)
	}
}

// endless is a line of n bytes.
type endless int

func (e *endless) Read(p []byte) (int, error) {
	n := min(len(p), int(*e))
	if *e -= endless(n); n == 0 {
		return 0, io.EOF
	}
	for i := range p[:n] {
		p[i] = 'a'
	}
	return n, nil
}

// A line costs no more than the longest that is taken.
func TestEndlessLine(t *testing.T) {
	long := endless(512 << 20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l := newLines(io.MultiReader(&long, strings.NewReader("\nnext")))
	if one, err := l.next(); one != nil || err != errLong {
		t.Errorf("%d bytes, %v", len(one), err)
	}
	if one, err := l.next(); string(one) != "next" || err != nil {
		t.Errorf("%q %v", one, err)
	}
	if one, err := l.next(); one != nil || err != io.EOF {
		t.Errorf("%q %v", one, err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 10*maxFrame {
		t.Errorf("%d bytes", n)
	}
}

// What a server prints beside its messages is shown, and ends nothing; but a caller that
// waits for what was meant as one would wait in vain.
func TestServerPrints(t *testing.T) {
	for name, bad := range map[string]string{"another version": `{"id":7,"result":{}}`, "two at once": `{"jsonrpc":"2.0",Done.`} {
		b := newBench(t, func(ctx context.Context, in io.Reader, out, errs io.Writer) int {
			io.WriteString(out, "Starting\x1b[2J up\n\n{\"msg\":\"ready\"}\n[1,2]\n"+`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`+"\n")
			return scripted(func(method string) string {
				if method == "tools/list" {
					return `{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`
				}
				io.WriteString(out, bad+"\n")
				return `{"content":[]}`
			})(ctx, in, out, errs)
		})
		stop := b.serve()
		for _, shown := range []string{"[s] Starting[2J up", `[s] {"msg":"ready"}`, "[s] [1,2]", `[s] {"jsonrpc":"2.0","id":null,`} {
			if b.tools(); !b.noticed(shown) {
				t.Errorf("%s: %q", shown, b.notices)
			}
		}
		if text, res := b.call("a", `{}`); !res.IsError || !strings.Contains(text, "unavailable: server s: ") {
			t.Errorf("%s: %q", name, text)
		}
		b.until("it is started again", func() bool { return b.level.starts() >= 2 })
		stop()
	}
}
