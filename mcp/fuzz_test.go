// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/policy"
)

// FuzzFrames reads what a server says, frame by frame: whatever it is, it ends,
// and what is taken of it is bounded and plain.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","description":"\u202e","inputSchema":{"type":"object"}}]}}` + "\n"))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"},{"type":"image","data":"AAAA","mimeType":"image/png"}],"structuredContent":{}}}` + "\n"))
	f.Add([]byte(`[{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1e999}}]` + "\n"))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"x":{"type":"object","x-mcp-header":"a"}}},"outputSchema":[]}]}}` + "\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		var shown strings.Builder
		u := newUpstream(&Gateway{o: GatewayOptions{Notice: func(string) {}}}, Upstream{Name: "s", Server: &policy.Server{}})
		way := wire{in: newMeter(io.NopCloser(bytes.NewReader(src))), out: nopCloser{io.Discard}, odd: u.odd(&complaints{to: func(s string) { shown.WriteString(s) }})}
		conn, err := way.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for {
			if _, err := conn.Read(t.Context()); err != nil {
				break
			}
		}
		if strings.ContainsFunc(shown.String(), unicode.IsControl) {
			t.Errorf("%q is shown", shown.String())
		}
		for _, one := range bytes.Split(src, []byte("\n")) {
			var frame struct{ Result json.RawMessage }
			if json.Unmarshal(one, &frame) == nil && frame.Result != nil {
				offerAll(t, frame.Result)
				cutResult(t, frame.Result)
			}
		}
	})
}

// FuzzClient reads what a client says: all of it is read, however it is cut into lines,
// and what is answered to what is no message is one that the other end can read.
func FuzzClient(f *testing.F) {
	for _, s := range []string{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `[]`, `[{"jsonrpc":"2.0","id":"a","method":"x","params":[]},7]`, "\xff\r\n\r\n{}", `{"id":3,"result":{}}`, `{"ID":[],"method":""}`} {
		f.Add([]byte(s), []byte(s))
	}
	f.Fuzz(func(t *testing.T, one, other []byte) {
		last := `{"jsonrpc":"2.0","id":"the last","method":"x"}`
		src := slices.Concat(one, []byte("\n"), other, []byte("\n"+last+"\n"))
		var out bytes.Buffer
		way := wire{in: io.NopCloser(bytes.NewReader(src)), out: nopCloser{&out}, odd: func(one []byte, why error) ([]byte, error) { return fault(one, why), nil }}
		conn, _ := way.Connect(t.Context())
		defer conn.Close()
		var heard jsonrpc.Message
		for {
			m, err := conn.Read(t.Context())
			if err != nil {
				break
			}
			heard = m
		}
		if req, ok := heard.(*jsonrpc.Request); !ok || req.ID.Raw() != "the last" {
			t.Errorf("%+v", heard)
		}
		for said := range bytes.Lines(out.Bytes()) {
			var e struct {
				JSONRPC string
				Error   struct{ Code int }
				ID      any
			}
			if err := json.Unmarshal(said, &e); err != nil || e.JSONRPC != "2.0" || e.Error.Code > -32600 || len(said) > maxEchoed+512 {
				t.Errorf("%q: %v", said, err)
			}
			switch e.ID.(type) {
			case nil, string, float64:
			default:
				t.Errorf("%q", said)
			}
			if bytes.Contains(said, []byte("the last")) {
				t.Errorf("%q", said)
			}
		}
	})
}

// offerAll shows the tools of a list as a gateway does.
func offerAll(t *testing.T, src []byte) {
	var list sdk.ListToolsResult
	if json.Unmarshal(src, &list) != nil {
		return
	}
	g := &Gateway{face: sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)}
	u := newUpstream(g, Upstream{Name: "s", Server: &policy.Server{Tools: []policy.ServerTool{{Name: "*"}}}})
	var tools []*sdk.Tool
	for _, tool := range list.Tools {
		if tool != nil {
			tools = append(tools, tool)
		}
	}
	pin, err := u.pinOf(tools, time.Now())
	if err != nil {
		return
	}
	shown, not := u.catalog(tools, pin)
	if len(shown)+len(not) != len(tools) {
		t.Errorf("%d tools became %d and %d", len(tools), len(shown), len(not))
	}
	for _, o := range shown {
		if !callable().MatchString(o.def.Name) || len(o.def.Description) > maxDescription+3 || o.def.Meta != nil {
			t.Errorf("%+v", o.def)
		}
		b, err := json.Marshal(o.def)
		if err != nil {
			t.Fatal(err)
		}
		var back sdk.Tool
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		for _, r := range back.Description + back.Title {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
				t.Errorf("%q", back.Description)
			}
		}
		_ = g.show(u, o) // a definition that the library panics over is refused
	}
}

func cutResult(t *testing.T, src []byte) {
	var res sdk.CallToolResult
	if json.Unmarshal(src, &res) != nil {
		return
	}
	const maximum = 256
	bounded(&res, maximum)
	if n := size(&res); n > 6*maximum+1024 { // what is text may be longer when it is written
		t.Errorf("%d bytes of %d", n, maximum)
	}
}

func FuzzArguments(f *testing.F) {
	f.Add([]byte(`{"path":"/data/a"}`))
	f.Add([]byte(`{"path":"/data/a","path":"/etc"}`))
	u := newUpstream(&Gateway{}, Upstream{Name: "s", Server: &policy.Server{}})
	schema, err := compile(map[string]any{"type": "object", "required": []any{"path"}, "additionalProperties": false, "properties": map[string]any{"path": map[string]any{"type": "string", "pattern": "^/data/"}}})
	if err != nil {
		f.Fatal(err)
	}
	tool := &offered{schema: schema}
	f.Fuzz(func(t *testing.T, src []byte) {
		if _, v := tool.judge(t.Context(), u, src); v != nil {
			if v.Reason == "" || len(v.result().Content) != 1 {
				t.Errorf("%+v", v)
			}
			return
		}
		var args struct{ Path string }
		if err := json.Unmarshal(src, &args); err != nil || len(args.Path) < 6 || args.Path[:6] != "/data/" {
			t.Errorf("%q was let through: %v", src, err)
		}
	})
}
