// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/apitest"
)

// model is a scripted one, behind the APIs of Anthropic's and OpenAI's: asked with
// the tool run_code among its tools it calls that, once, and what comes back is its
// answer's text.
type model struct {
	code string // the arguments of the call

	mu    sync.Mutex
	calls int
	heard []string // what came back
	asked []string // requests, for when it fails
}

func (m *model) note(path string, body []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, path+" "+string(body[:min(len(body), 2000)]))
}

func (m *model) called() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
}

func (m *model) hear(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = append(m.heard, what)
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		return
	}
	m.note(r.Method+" "+r.URL.Path, body)
	switch {
	case strings.HasSuffix(r.URL.Path, "/messages/count_tokens"):
		io.WriteString(w, `{"input_tokens":1}`)
	case strings.HasSuffix(r.URL.Path, "/messages"):
		m.anthropic(w, body)
	case strings.HasSuffix(r.URL.Path, "/responses"):
		m.openai(w, body)
	default:
		http.NotFound(w, r)
	}
}

func events(w http.ResponseWriter, list ...map[string]any) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range list {
		b, _ := json.Marshal(e) // of JSON's types
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], b)
	}
}

// anthropic answers by the Messages API, as a stream.
func (m *model) anthropic(w http.ResponseWriter, body []byte) {
	var q struct {
		Tools    []struct{ Name string }
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	json.Unmarshal(body, &q) // what it cannot read has no tools
	name := ""
	for _, t := range q.Tools {
		if strings.HasSuffix(t.Name, "run_code") {
			name = t.Name
		}
	}
	result := ""
	for _, message := range q.Messages {
		var parts []struct {
			Type    string
			Content json.RawMessage
		}
		json.Unmarshal(message.Content, &parts)
		for _, p := range parts {
			if p.Type == "tool_result" {
				result = string(p.Content)
			}
		}
	}
	block, delta, stop := map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": "ok"}, "end_turn"
	switch {
	case result != "":
		m.hear(result)
		delta["text"] = "it said: " + result
	case name != "":
		m.called()
		block = map[string]any{"type": "tool_use", "id": "toolu_1", "name": name, "input": map[string]any{}}
		delta, stop = map[string]any{"type": "input_json_delta", "partial_json": m.code}, "tool_use"
	}
	events(w,
		map[string]any{"type": "message_start", "message": map[string]any{"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-scripted", "content": []any{},
			"stop_reason": nil, "stop_sequence": nil, "usage": map[string]any{"input_tokens": 1, "output_tokens": 1}}},
		map[string]any{"type": "content_block_start", "index": 0, "content_block": block},
		map[string]any{"type": "content_block_delta", "index": 0, "delta": delta},
		map[string]any{"type": "content_block_stop", "index": 0},
		map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": map[string]any{"output_tokens": 1}},
		map[string]any{"type": "message_stop"})
}

// openai answers by the Responses API, as a stream.
func (m *model) openai(w http.ResponseWriter, body []byte) {
	type tool struct {
		Type, Name string
		Tools      []struct{ Name string }
	}
	var q struct {
		Tools []tool
		Input []struct {
			Type   string
			Output json.RawMessage
		}
	}
	json.Unmarshal(body, &q)
	call := map[string]any{}
	for _, t := range q.Tools {
		if strings.HasSuffix(t.Name, "run_code") {
			call["name"] = t.Name
		}
		for _, in := range t.Tools {
			if in.Name == "run_code" {
				call["name"], call["namespace"] = in.Name, t.Name
			}
		}
	}
	result := ""
	for _, item := range q.Input {
		if item.Type == "function_call_output" {
			result = string(item.Output)
		}
	}
	text := "ok"
	if result != "" {
		m.hear(result)
		text = "it said: " + result
	}
	item := map[string]any{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []any{map[string]any{"type": "output_text", "text": text, "annotations": []any{}}}}
	if result == "" && call["name"] != nil {
		m.called()
		call["type"], call["id"], call["call_id"], call["arguments"], call["status"] = "function_call", "fc_1", "call_1", m.code, "completed"
		item = call
	}
	response := func(status string, output ...any) map[string]any {
		return map[string]any{"id": "resp_1", "object": "response", "created_at": 1, "model": "scripted", "status": status, "output": output,
			"usage": map[string]any{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}
	}
	events(w,
		map[string]any{"type": "response.created", "response": response("in_progress")},
		map[string]any{"type": "response.output_item.added", "output_index": 0, "item": item},
		map[string]any{"type": "response.output_item.done", "output_index": 0, "item": item},
		map[string]any{"type": "response.completed", "response": response("completed", item)})
}

// agent is an agent from npm without a person at it.
type agent struct {
	name string
	// command is how it is started, with a home of its own, a model and caisson as
	// its server.
	command func(t *testing.T, dir, home, url string, server tools) *exec.Cmd
}

// tools are where an agent finds caisson: a command, or an address with a key.
type tools struct {
	command  []string
	state    string
	url, key string
}

var agents = []agent{
	{"Claude Code", func(t *testing.T, dir, home, url string, server tools) *exec.Cmd {
		config := filepath.Join(home, "mcp.json")
		entry := map[string]any{"type": "http", "url": server.url, "headers": map[string]string{"Authorization": "Bearer " + server.key}}
		if server.url == "" {
			entry = map[string]any{"type": "stdio", "command": server.command[0], "args": server.command[1:], "env": map[string]string{"CAISSON_STATE": server.state}}
		}
		b, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"caisson": entry}})
		if err != nil || writeFile(config, string(b)) != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules/.bin/claude"), "-p", "go", "--mcp-config", config, "--strict-mcp-config",
			"--allowedTools", "mcp__caisson__run_code")
		cmd.Env = append(os.Environ(), "HOME="+home, "CLAUDE_CONFIG_DIR="+filepath.Join(home, ".claude"), "ANTHROPIC_BASE_URL="+url, "ANTHROPIC_API_KEY=none",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "ENABLE_TOOL_SEARCH=false")
		return cmd
	}},
	{"Codex", func(t *testing.T, dir, home, url string, server tools) *exec.Cmd {
		entry := fmt.Sprintf("url = %q\nbearer_token_env_var = \"CAISSON_API_KEY\"", server.url)
		if server.url == "" {
			args, err := json.Marshal(server.command[1:])
			if err != nil {
				t.Fatal(err)
			}
			entry = fmt.Sprintf("command = %q\nargs = %s\nenv = { CAISSON_STATE = %q }", server.command[0], args, server.state)
		}
		config := fmt.Sprintf(`model = "scripted"
model_provider = "scripted"
approval_policy = "never"

[model_providers.scripted]
name = "scripted"
base_url = %q
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 0
stream_max_retries = 0

[mcp_servers.caisson]
default_tools_approval_mode = "approve"
%s
`, url+"/v1", entry)
		if err := os.MkdirAll(filepath.Join(home, ".codex"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := writeFile(filepath.Join(home, ".codex/config.toml"), config); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules/.bin/codex"), "exec", "--skip-git-repo-check", "go")
		cmd.Env = append(os.Environ(), "HOME="+home, "CODEX_HOME="+filepath.Join(home, ".codex"), "SCRIPTED_KEY=none", "CAISSON_API_KEY="+server.key)
		return cmd
	}},
}

// TestAgents: Claude Code and Codex, as npm has them, with a scripted model on this
// machine, call a tool of a built caisson mcp on its default level. Where the policy
// asks the client's user, there is none: cancelling and declining are a final no.
// CAISSON_TEST_AGENTS says that they are there; make test-agents sees to it.
func TestAgents(t *testing.T) {
	if os.Getenv("CAISSON_TEST_AGENTS") == "" {
		t.Skip("make test-agents runs it")
	}
	dir, err := filepath.Abs("testdata/agents")
	if err != nil {
		t.Fatal(err)
	}
	asks := filepath.Join(t.TempDir(), "asks.yaml")
	if err := writeFile(asks, "version: 1\ntools:\n  - {name: run_code, approve: {when: 'true', channels: [elicitation]}}\napprovals: {channels: [elicitation]}\n"); err != nil {
		t.Fatal(err)
	}
	for _, a := range agents {
		for _, c := range []struct {
			name, want, not string
			args            []string
		}{
			{"a call", "4242", "", []string{"mcp"}},
			{"approval", "that is final", "4242", []string{"mcp", "--policy", asks}},
			{"a call over HTTP", "4242", "", []string{"serve", "--pool", "0"}},
			{"approval over HTTP", "that is final", "4242", []string{"serve", "--pool", "0", "--policy", asks}},
		} {
			t.Run(a.name+"/"+c.name, func(t *testing.T) {
				m := &model{code: `{"language":"python","code":"print(str(42)*2)"}`}
				s := httptest.NewServer(m)
				defer s.Close()
				caisson := apitest.BuiltCaisson(t, "test-agents")
				home, server := t.TempDir(), tools{command: append([]string{caisson.Binary}, c.args...), state: caisson.State}
				if c.args[0] == "serve" {
					server.key, server.url = caisson.Key(t, "agent"), caisson.Serve(t, c.args[1:]...)+"/mcp"
				}
				cmd := a.command(t, dir, home, s.URL, server)
				cmd.Dir = t.TempDir()
				cmd.WaitDelay = 10 * time.Second
				out, err := cmd.CombinedOutput()
				m.mu.Lock()
				defer m.mu.Unlock()
				said := strings.Join(m.heard, "\n")
				if err != nil || m.calls != 1 || !strings.Contains(said, c.want) || c.not != "" && strings.Contains(said, c.not) || !strings.Contains(string(out), "it said: ") {
					t.Errorf("%v, %d calls\n%.4000s\nthe model heard: %.2000s\nand was asked: %.6000s", err, m.calls, out, said, strings.Join(m.asked, "\n"))
				}
				ran, err := caisson.Command("audit", "ls", "--kind", "run_code", "--status", "allowed").Output()
				if err != nil || strings.Contains(string(ran), "run_code") != (c.not == "") {
					t.Errorf("what ran by the record: %v\n%s", err, ran)
				}
			})
		}
	}
}
