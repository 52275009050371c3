// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

func TestPaths(t *testing.T) {
	parse := func(name, text string) *File {
		f, err := Parse(name, []byte("version: 1\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	p, err := New(Options{Defaults: sandbox.DefaultLimits(),
		System: parse("/etc/caisson/policy.yaml", "files: {deny: [\"**/.ssh\"]}\n"),
		File: parse("/p.yaml", `files: {deny: ["*.key", "/srv/data/**"]}
tools: [{name: write_file, params: {type: object, properties: {path: {type: string, maxLength: 30}}}, rules: ['path.under(params.path, "/home/user")'], rate: 5/min}, run_code]
`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind       Kind
		path, says string // empty: allowed
	}{
		{ReadFile, "/home/user/a", ""},
		{ReadFile, "/", ""},
		{ReadFile, "/etc/passwd", ""}, // its rules are of write_file
		{WriteFile, "/home/user/a", ""},
		{WriteFile, "/home/user", ""},
		{ReadFile, "/home/user/.ssh", "policy.yaml:2"},
		{ReadFile, "/root/.ssh/id", "policy.yaml:2"},
		{ReadFile, "/home/user/a.key", "p.yaml:2"},
		{ReadFile, "/tmp/a.key", ""}, // seen from the working directory
		{ReadFile, "/srv/data/a/b", "p.yaml:2"},
		{ReadFile, "/srv/data", "p.yaml:2"},
		{ReadFile, "/srv/database", ""},
		{WriteFile, "/tmp/a", "does not hold"},
		{RemoveFile, "/tmp/a", "does not hold"},
		{MoveFile, "/tmp/a", "does not hold"},
		{MakeDirectory, "/tmp/a", "does not hold"},
		{WriteFile, "/home/user/" + strings.Repeat("a", 30), "do not fit"},
		{ReadFile, "", "cannot be meant"},
		{ReadFile, "a", "cannot be meant"},
		{ReadFile, "/a/../b", "cannot be meant"},
		{ReadFile, "/a\x00", "cannot be meant"},
		{"link_file", "/a", "not known"},
	} {
		tool := "write_file"
		if c.kind == ReadFile {
			tool = "read_file"
		}
		v := p.Decide(&Call{Kind: c.kind, Path: c.path, Cwd: "/home/user", Actor: "key:a",
			Tool: &ToolCall{Name: tool, Args: map[string]any{"path": c.path, "sandbox_id": "x"}, Sandbox: "x"}})
		if (v.Decision == Allow) != (c.says == "") || c.says != "" && !strings.Contains(v.Reason+" "+v.Rule, c.says) {
			t.Errorf("%s %q: %v %s (%s), want %q", c.kind, c.path, v.Decision, v.Reason, v.Rule, c.says)
		}
		if c.kind == WriteFile && c.says == "" && len(v.Plan.Rates) != 1 {
			t.Errorf("%s %q: its rate is not counted", c.kind, c.path)
		}
	}
}
