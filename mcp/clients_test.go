// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inspect runs the Inspector, an official client, with a command as its server, and
// returns what it printed.
func inspect(t *testing.T, dir, state string, server []string, args ...string) (string, error) {
	t.Helper()
	// The Inspector hands little of its environment on.
	server = append([]string{"env", "CAISSON_STATE=" + state}, server...)
	args = append(append([]string{"node_modules/.bin/mcp-inspector", "--cli"}, server...), args...)
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestClients: official clients and servers with a built caisson and its default
// level.
func TestClients(t *testing.T) {
	dir := clients(t)
	binary, state := os.Getenv("CAISSON_TEST_BINARY"), filepath.Join(t.TempDir(), "state")
	notes := t.TempDir()
	for name, text := range map[string]string{"note.txt": "seven bells", "other.txt": "x"} {
		if err := writeFile(filepath.Join(notes, name), text); err != nil {
			t.Fatal(err)
		}
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	// The Inspector takes a -- for itself, so the servers are in a policy file.
	servers := filepath.Join(t.TempDir(), "servers.yaml")
	own := "    limits: {memory: 1GiB}\n    files: {toolchains: [" + filepath.Dir(filepath.Dir(node)) + "], mounts: [{source: " + dir + "/node_modules, target: /srv/node_modules}, {source: " + notes + ", target: /notes}]}\n"
	if err := writeFile(servers, `version: 1
servers:
  - name: files
    command: [node, /srv/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js, /notes]
    tools: [read_text_file, "list_*", write_file]
`+own+`  - name: everything
    command: [node, /srv/node_modules/@modelcontextprotocol/server-everything/dist/index.js, stdio]
    tools: ["*"]
    deny_tools: [get-env]
    resources: ["demo://*"]
    prompts: ["simple*"]
`+own); err != nil {
		t.Fatal(err)
	}
	files := []string{binary, "mcp", "gateway", "--policy", servers, "files"}
	everything := []string{binary, "mcp", "gateway", "--policy", servers, "everything"}
	for _, c := range []struct {
		name      string
		short     bool
		server    []string
		args      []string
		want, not string
	}{
		{"tools", true, []string{binary, "mcp"}, []string{"--method", "tools/list", "--strict"}, "run_code", ""},
		{"a run", true, []string{binary, "mcp"}, []string{"--method", "tools/call", "--tool-name", "run_code", "--tool-args-json", `{"language":"python","code":"print(6*7)"}`}, `"stdout": "42\n"`, ""},
		{"an older client", false, []string{binary, "mcp"}, []string{"--protocol-era", "legacy", "--method", "tools/call", "--tool-name", "run_command", "--tool-args-json", `{"command":"echo $((6*7))"}`}, `"stdout": "42\n"`, ""},
		{"a modern one", false, []string{binary, "mcp"}, []string{"--protocol-era", "modern", "--method", "tools/call", "--tool-name", "run_command", "--tool-args-json", `{"command":"echo $((6*7))"}`}, `"stdout": "42\n"`, ""},
		{"files: tools", false, files, []string{"--method", "tools/list"}, "read_text_file", "move_file"},
		{"files: read", true, files, []string{"--method", "tools/call", "--tool-name", "read_text_file", "--tool-args-json", `{"path":"/notes/note.txt"}`}, "seven bells", ""},
		{"files: outside", false, files, []string{"--method", "tools/call", "--tool-name", "read_text_file", "--tool-args-json", `{"path":"/etc/passwd"}`}, "denied", "root:"},
		{"files: a mount is read-only", false, files, []string{"--method", "tools/call", "--tool-name", "write_file", "--tool-args-json", `{"path":"/notes/new","content":"x"}`}, "EROFS", ""},
		{"everything: tools", false, everything, []string{"--method", "tools/list"}, "echo", "get-env"},
		{"everything: resources", false, everything, []string{"--method", "resources/list"}, "demo://", ""},
		{"everything: prompts", false, everything, []string{"--method", "prompts/list"}, "simple", "args-prompt"},
		{"everything: a prompt", false, everything, []string{"--method", "prompts/get", "--prompt-name", "simple-prompt"}, "messages", ""},
		{"everything: a call", false, everything, []string{"--method", "tools/call", "--tool-name", "echo", "--tool-args-json", `{"message":"ahoy"}`}, "ahoy", ""},
	} {
		if testing.Short() && !c.short {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			out, err := inspect(t, dir, state, c.server, c.args...)
			if !strings.Contains(out, c.want) || c.not != "" && strings.Contains(out, c.not) {
				t.Errorf("%v\n%.3000s", err, out)
			}
		})
	}
}
