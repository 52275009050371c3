// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/v1"
	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/sandbox"
)

func TestTools(t *testing.T) {
	c, _ := dial(t, "version: 1\ntools: [run_command]\n")
	if list, err := c.Tools(t.Context(), "anthropic"); err != nil || !strings.Contains(string(list), "input_schema") || strings.Contains(string(list), "run_code") {
		t.Errorf("%s, %v", list, err)
	}
	r, err := c.CallTool(t.Context(), client.ToolCall{Name: "run_command", Arguments: json.RawMessage(`{"command":"echo hi; exit 2"}`)})
	if err != nil || !r.Failed || r.Output["stdout"] != "hi\n" {
		t.Error(r, err)
	}
	r, err = c.CallTool(t.Context(), client.ToolCall{Call: json.RawMessage(`{"type":"shell_call","call_id":"c","action":{"commands":["echo hi"]}}`)})
	if err != nil || !strings.Contains(string(r.Result), `"stdout":"hi\n"`) {
		t.Error(r, err)
	}
	_, err = c.CallTool(t.Context(), client.ToolCall{Call: json.RawMessage(`{"type":"tool_use","id":"t","name":"run_code","input":{}}`)})
	var refused *client.Error
	if !errors.Is(err, sandbox.ErrDenied) || !errors.As(err, &refused) || !strings.Contains(string(refused.Result), `"is_error":true`) {
		t.Error(err)
	}
	for _, pair := range [][2]reflect.Type{{reflect.TypeFor[v1.ToolCall](), reflect.TypeFor[client.ToolCall]()}, {reflect.TypeFor[v1.ToolResult](), reflect.TypeFor[client.ToolResult]()}} {
		if a, b := words(pair[0]), words(pair[1]); a != b {
			t.Errorf("%s has %s, and the client's %s", pair[0], a, b)
		}
	}
}
