// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 what is deprecated is what older servers and clients use

package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// hostile is a server that answers what answers has by method, a result or an error,
// and everything else as it should be. version is of the protocol that it speaks.
func hostile(version string, answers map[string]string) func(context.Context, io.Reader, io.Writer, io.Writer) int {
	return func(_ context.Context, in io.Reader, out, _ io.Writer) int {
		usual := map[string]string{
			"tools/list":               `"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`,
			"prompts/list":             `"result":{"prompts":[{"name":"p"}]}`,
			"resources/list":           `"result":{"resources":[{"uri":"file:///r","name":"r"}]}`,
			"resources/templates/list": `"result":{"resourceTemplates":[]}`,
		}
		can := `"capabilities":{"tools":{},"prompts":{},"resources":{},"completions":{}},"serverInfo":{"name":"x","version":"1"}`
		if version >= firstStateless {
			usual["server/discover"] = `"result":{"supportedVersions":["` + version + `"],` + can + `}`
		} else {
			usual["server/discover"] = `"error":{"code":-32601,"message":"not found"}`
			usual["initialize"] = `"result":{"protocolVersion":"` + version + `",` + can + `}`
		}
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			var req struct {
				ID     json.RawMessage
				Method string
			}
			if json.Unmarshal(lines.Bytes(), &req) != nil || req.ID == nil {
				continue
			}
			answer, ok := answers[req.Method]
			if !ok {
				answer, ok = usual[req.Method]
			}
			if !ok {
				answer = `"result":{}`
			}
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,%s}`+"\n", req.ID, answer)
		}
		return 0
	}
}

// Whatever a server answers, it ends no more than the one request: not the gateway,
// nor what the client has with other servers.
func TestHostileAnswers(t *testing.T) {
	long := strings.Repeat("x", maxState+1)
	for _, c := range []struct{ method, answer string }{
		{"resources/read", `"result":{"contents":[null]}`},
		{"prompts/get", `"result":{"messages":[null]}`},
		{"prompts/get", `"error":{"code":-32021,"message":"x","data":"` + long + `"}`},
		{"tools/call", `"result":{"content":[{"type":"resource"},{"type":"tool_result","content":[{"type":"resource"}]}]}`},
		{"tools/call", `"result":null`},
		{"tools/call", `"result":{"resultType":"input_required","inputRequests":{"x":null}}`},
		{"tools/call", `"result":{"resultType":"input_required"}`},
		{"tools/call", `"error":{"code":-32021,"message":"x","data":"` + long + `"}`},
		{"completion/complete", `"result":null`},
	} {
		for _, version := range []string{lastWithSessions, firstStateless} {
			t.Run(version+" "+c.method+" "+c.answer[:min(len(c.answer), 80)], func(t *testing.T) {
				b := newBench(t, hostile(version, map[string]string{c.method: c.answer}))
				b.version = version
				b.serve(`{name: s, command: [server], tools: [a], prompts: ["*"], resources: ["*"]}`)
				switch c.method {
				case "tools/call":
					b.client.CallTool(t.Context(), &sdk.CallToolParams{Name: "a", Arguments: rawJSON("{}")})
				case "prompts/get":
					b.client.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "p"})
				case "resources/read":
					b.client.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "file:///r"})
				case "completion/complete":
					b.client.Complete(t.Context(), &sdk.CompleteParams{Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "p"}, Argument: sdk.CompleteParamsArgument{Name: "x"}})
				}
				if _, err := b.client.ListTools(t.Context(), nil); err != nil {
					t.Errorf("the gateway is gone: %v", err)
				}
			})
		}
	}
}

// The library panics over more than answers.
func TestOutlives(t *testing.T) {
	b := newBench(t, nil)
	g := b.make()
	res, err := g.outlives(func(context.Context, string, sdk.Request) (sdk.Result, error) { panic("o\u202eh") })(t.Context(), "tools/call", nil)
	if err == nil || res != nil || !b.noticed("tools/call could not be dealt with: oh") {
		t.Errorf("%v, %v, %q", res, err, b.notices)
	}
}

// What tells of nothing is not dealt with.
func TestToldOfNothing(t *testing.T) {
	u := newBench(t, nil).make(`{name: s, command: [server], resources: ["*"]}`).upstreams[0]
	u.updated(t.Context(), &sdk.ResourceUpdatedNotificationRequest{})
}

// A server's error has words, and no address that a client would show its user.
func TestHostileErrors(t *testing.T) {
	const more = `"data":{"elicitations":[{"mode":"url","url":"https://evil.example/","elicitationId":"e","message":"go"}]}`
	words := `"message":"a\u001b[31mb` + strings.Repeat("x", 1<<16) + `"`
	for _, version := range []string{lastWithSessions, firstStateless} {
		for theirs, ours := range map[int64]int64{
			sdk.CodeURLElicitationRequired: jsonrpc.CodeInternalError, olderNotFound: olderNotFound,
			jsonrpc.CodeInvalidParams: jsonrpc.CodeInvalidParams,
		} {
			answer := fmt.Sprintf(`"error":{"code":%d,%s,%s}`, theirs, words, more)
			b := newBench(t, hostile(version, map[string]string{"prompts/get": answer, "resources/read": answer, "completion/complete": answer}))
			b.version = version
			stop := b.serve(`{name: s, command: [server], prompts: ["*"], resources: ["*"]}`)
			_, prompt := b.client.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "p"})
			_, resource := b.client.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "file:///r"})
			_, completion := b.client.Complete(t.Context(), &sdk.CompleteParams{Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "p"}, Argument: sdk.CompleteParamsArgument{Name: "x"}})
			for what, err := range map[string]error{"prompt": prompt, "resource": resource, "completion": completion} {
				var e *jsonrpc.Error
				if !errors.As(err, &e) || e.Code != ours || e.Data != nil || len(e.Message) > 3000 || strings.Contains(e.Message, "\x1b") || !strings.Contains(e.Message, "a[31mb") {
					t.Errorf("%s, code %d: %s: %.300v", version, theirs, what, err)
				}
			}
			stop()
		}
	}
}
