// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// codeHome is a home whose key is bound to rules about code.
func codeHome(t *testing.T, rules string) *home {
	f, err := policy.Parse("/w/p.yaml", []byte("version: 1\ncode: "+rules+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return newHome(t, func(o *SandboxesOptions) { o.Policies = map[string]*policy.File{"": f} })
}

// In a persistent sandbox, what is read is read in a sandbox of its own: what
// runs in the first has no say in it.
func TestCodeInLivingSandboxes(t *testing.T) {
	h := codeHome(t, "{python: {deny_imports: [socket]}, javascript: {deny_imports: [fs]}}")
	id := h.mustTool(t, "create_sandbox", `{"timeout": 60}`)["sandbox_id"].(string)
	for _, tt := range []struct{ name, args, denied string }{
		{"run_code", `"language":"python","code":"print(1)"`, ""},
		{"run_code", `"language":"python","code":"import socket"`, `"main.py" line 1:1 imports socket`},
		{"run_code", `"language":"javascript","code":"require('fs')"`, "imports fs"},
		{"run_code", `"language":"bash","code":"cd / && python3 -c 'import socket'"`, "imports socket"},
		{"run_command", `"command":"python3 -c 'import math; print(2)'"`, ""},
		{"run_command", `"command":"python3","args":["-c","import socket"]`, "imports socket"},
		{"run_command", `"command":"python3 -","stdin":"import socket"`, "imports socket"},
		{"run_command", `"command":"python3 f.py"`, "a file that is inside"},
	} {
		a, err := h.tool(t, tt.name, `{"sandbox_id":"`+id+`",`+tt.args+`}`)
		if tt.denied == "" {
			if err != nil || a.Failed {
				t.Errorf("%s: %+v, %v", tt.args, a, err)
			}
			continue
		}
		var e *sandbox.Error
		if !errors.As(err, &e) || !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(e.Error(), tt.denied) || !strings.HasPrefix(e.Rule, "/w/p.yaml:2") {
			t.Errorf("%s: %v", tt.args, err)
		}
	}
	// What is followed as it runs (E2B's commands, terminals) obeys, too.
	c := &session.Call{Call: policy.Call{Argv: []string{"/bin/bash", "-l", "-c", "python3 -c 'import socket'"}}}
	if _, err := h.Handle(h.key, id).Start(t.Context(), c, StartOptions{}); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("E2B's form: %v", err)
	}
	c = &session.Call{Call: policy.Call{Argv: []string{"python3"}}}
	if _, err := h.Handle(h.key, id).Start(t.Context(), c, StartOptions{Stdin: true}); !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), "typed") {
		t.Errorf("an interpreter that is written to: %v", err)
	}

	read, refused := 0, 0
	for e, err := range h.log.Query(t.Context(), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Call.Kind == session.KindReadCode {
			read++
			if e.Call.Sandbox == id || e.Call.Network != "none" {
				t.Errorf("it was read in %s, with network %s", e.Call.Sandbox, e.Call.Network)
			}
		}
		if e.Ending != nil && e.Ending.Result != nil && len(e.Ending.Result.Findings) > 0 && e.Ending.Result.Status == sandbox.StatusDenied {
			refused++
		}
	}
	if read < 6 || refused < 8 {
		t.Errorf("%d records of readers, %d refusals with findings", read, refused)
	}
}

// A warning stands in what the model gets.
func TestCodeWarnings(t *testing.T) {
	h := codeHome(t, "{python: {deny_calls: [open], on_finding: warn}}")
	out := h.mustTool(t, "run_code", `{"language":"python","code":"open('/dev/null')"}`)
	list, ok := out["findings"].([]sandbox.Finding)
	if !ok || len(list) != 1 || list[0].Kind != "call" || list[0].Action != "warn" || list[0].Rule != "/w/p.yaml:2" || out["status"] != "success" {
		t.Errorf("%v", out)
	}
}
