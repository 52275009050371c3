// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// modelLog is the variable of a directory in which the scripted model leaves what it was
// asked, as its files "line" and "line.NUMBER"; the first has what it wants to be run.
const modelLog = "CAISSON_TEST_MODEL"

var asked atomic.Int64

// serveModel is a scripted model behind the APIs of Anthropic's and OpenAI's: offered a
// tool that runs commands it has one run, once, and what comes back is its answer's text.
func serveModel(w http.ResponseWriter, r *http.Request) bool {
	dir := os.Getenv(modelLog)
	answer := map[string]func(http.ResponseWriter, []byte, string){
		"api.anthropic.com/v1/messages": anthropic, "api.openai.com/v1/responses": openai,
	}[r.Host+r.URL.Path]
	if dir == "" || answer == nil {
		return false
	}
	line, err := os.ReadFile(filepath.Join(dir, "line"))
	if err != nil {
		return false
	}
	if r.Header.Get("Upgrade") != "" {
		w.WriteHeader(http.StatusUpgradeRequired)
		return true
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		return true
	}
	_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("line.%d", asked.Add(1))), body, 0o600)
	if auth := r.Header.Get("Authorization"); auth != "Bearer "+accessAfter && auth != "Bearer "+apiKey {
		http.Error(w, `{"type":"error","error":{"type":"authentication_error","message":"no"}}`, http.StatusUnauthorized)
		return true
	}
	answer(w, body, string(line))
	return true
}

func events(w http.ResponseWriter, list ...map[string]any) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range list {
		b, _ := json.Marshal(e) // of JSON's types
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], b)
	}
}

// anthropic answers by the Messages API.
func anthropic(w http.ResponseWriter, body []byte, line string) {
	var q struct {
		Tools    []struct{ Name string }
		Messages []struct{ Content json.RawMessage }
	}
	_ = json.Unmarshal(body, &q) // what it cannot read has no tools
	result := ""
	for _, m := range q.Messages {
		var parts []struct {
			Type    string
			Content json.RawMessage
		}
		_ = json.Unmarshal(m.Content, &parts)
		for _, p := range parts {
			if p.Type == "tool_result" {
				result = string(p.Content)
			}
		}
	}
	block, delta, stop := map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": "it said: " + result}, "end_turn"
	for _, t := range q.Tools {
		if t.Name == "Bash" && result == "" {
			input, _ := json.Marshal(map[string]string{"command": line, "description": "work"})
			block = map[string]any{"type": "tool_use", "id": "toolu_1", "name": t.Name, "input": map[string]any{}}
			delta, stop = map[string]any{"type": "input_json_delta", "partial_json": string(input)}, "tool_use"
		}
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

// openai answers by the Responses API.
func openai(w http.ResponseWriter, body []byte, line string) {
	var q struct {
		Input []struct {
			Type   string
			Output json.RawMessage
		}
	}
	_ = json.Unmarshal(body, &q)
	result := ""
	for _, item := range q.Input {
		if item.Type == "function_call_output" {
			result = string(item.Output)
		}
	}
	item := map[string]any{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
		"content": []any{map[string]any{"type": "output_text", "text": "it said: " + result, "annotations": []any{}}}}
	if result == "" && strings.Contains(string(body), "exec_command") {
		input, _ := json.Marshal(map[string]string{"cmd": line})
		item = map[string]any{"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "exec_command", "arguments": string(input), "status": "completed"}
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
