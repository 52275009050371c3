// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Without sandboxes that live on there are only tools that need none.
func TestToolsOfASession(t *testing.T) {
	s := newBench(t, &stub{}, nil)
	for _, tool := range Of(s.Session).Tools() {
		if tool.Name != "run_code" && tool.Name != "run_command" {
			t.Errorf("%s is offered", tool.Name)
		}
	}
	a, err := Of(s.Session).CallTool(t.Context(), &ToolCall{Name: "run_command", Args: []byte(`{"command":"true"}`), Actor: "tester"})
	if err != nil || a.Failed {
		t.Errorf("%+v, %v", a, err)
	}
	for name, arguments := range map[string]string{"list_sandboxes": ``, "run_command": `{"command":"true","sandbox_id":"i0"}`} {
		if _, err := Of(s.Session).CallTool(t.Context(), &ToolCall{Name: name, Args: []byte(arguments)}); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A session that counts nothing does not pass a rate over.
func TestRatesNeedAStore(t *testing.T) {
	f, err := policy.Parse("/p.yaml", []byte("version: 1\ntools:\n  - {name: run_command, rate: 2/min}\n  - {name: run_code, approve: always}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.New(policy.Options{File: f})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, &stub{}, func(o *Options) { o.Policy = p })
	if _, err := Of(b.Session).CallTool(t.Context(), &ToolCall{Name: "run_command", Args: []byte(`{"command":"true"}`)}); !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "2/min") {
		t.Error(err)
	}
}
