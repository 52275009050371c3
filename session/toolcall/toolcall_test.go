// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// Without persistent sandboxes there are only tools that need none.
func TestToolsOfASession(t *testing.T) {
	s := newBench(t, "")
	for _, tool := range s.Tools.Tools() {
		if tool.Name != "run_code" && tool.Name != "run_command" {
			t.Errorf("%s is offered", tool.Name)
		}
	}
	a, err := s.CallTool(t.Context(), &Call{Name: "run_command", Args: []byte(`{"command":"true"}`), Actor: "tester"})
	if err != nil || a.Failed {
		t.Errorf("%+v, %v", a, err)
	}
	for name, arguments := range map[string]string{"list_sandboxes": ``, "run_command": `{"command":"true","sandbox_id":"i0"}`} {
		if _, err := s.CallTool(t.Context(), &Call{Name: name, Args: []byte(arguments)}); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A session that counts nothing does not pass a rate over.
func TestRatesNeedAStore(t *testing.T) {
	b := newBench(t, "version: 1\ntools:\n  - {name: run_command, rate: 2/min}\n  - {name: run_code, approve: always}\n")
	if _, err := b.CallTool(t.Context(), &Call{Name: "run_command", Args: []byte(`{"command":"true"}`)}); !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "2/min") {
		t.Error(err)
	}
}
