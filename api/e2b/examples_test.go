// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/apitest"
)

// TestExamples runs the agents in examples: with the scripted model, and with the official
// clients of OpenAI and Anthropic, whose server is here and says what the script has. make
// test-e2b sees to the clients.
func TestExamples(t *testing.T) {
	caisson := apitest.BuiltCaisson(t, "test-e2b")
	env := append(clientEnv(caisson.Serve(t), caisson.Key(t, "mine"), false), "OPENAI_API_KEY=none", "ANTHROPIC_API_KEY=none")
	for _, c := range []struct {
		name, says string
		pictures   int
	}{
		{"mathematician", "2^100 = 1267650600228229401496703205376. The integral is 0.746824132812. Simpson's rule and the error function agree to twelve digits: yes.", 0},
		{"data-analyst", "On average the wettest months are November (161 mm), December (156 mm), March (152 mm).", 1},
	} {
		dir := filepath.Join("..", "..", "examples", c.name)
		models := httptest.NewServer(scriptedModel(t, filepath.Join(dir, "script.json")))
		defer models.Close()
		for _, model := range []string{"scripted", models.URL + "/openai#some", "anthropic:some"} {
			t.Run(c.name+"/"+strings.NewReplacer(models.URL+"/", "", "#some", "", ":some", "").Replace(model), func(t *testing.T) {
				out := t.TempDir()
				cmd := exec.CommandContext(t.Context(), "node", "main.mjs", "--model", model, "--out", out)
				cmd.Dir, cmd.Env = dir, append(append(os.Environ(), env...), "ANTHROPIC_BASE_URL="+models.URL)
				said, err := cmd.CombinedOutput()
				if err != nil || !strings.Contains(string(said), c.says) {
					t.Errorf("%v, want %q:\n%s", err, c.says, said)
				}
				pictures, _ := filepath.Glob(filepath.Join(out, "chart-*.png"))
				if len(pictures) != c.pictures {
					t.Errorf("pictures %q, want %d:\n%s", pictures, c.pictures, said)
				}
			})
		}
	}
	t.Run("a daemon of its own", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "node", "main.mjs")
		cmd.Dir, cmd.Env = filepath.Join("..", "..", "examples", "mathematician"), append(os.Environ(), "CAISSON="+os.Getenv("CAISSON_TEST_BINARY"))
		if said, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(said), "1267650600228229401496703205376") {
			t.Errorf("%v:\n%s", err, said)
		}
	})
}

// scriptedModel speaks the protocols of OpenAI and of Anthropic as far as the examples
// use them. Which step is next goes by how many outcomes the request has.
func scriptedModel(t *testing.T, script string) http.Handler {
	t.Helper()
	b, err := os.ReadFile(script)
	var steps []struct{ Code, Text string }
	if err == nil {
		err = json.Unmarshal(b, &steps)
	}
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Messages []struct {
				Role    string
				Content json.RawMessage
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		var heard []string
		for _, m := range req.Messages {
			var text string
			var parts []struct{ Type, Content string }
			switch {
			case m.Role == "tool" && json.Unmarshal(m.Content, &text) == nil:
				heard = append(heard, text)
			case m.Role == "user" && json.Unmarshal(m.Content, &parts) == nil && len(parts) == 1 && parts[0].Type == "tool_result":
				heard = append(heard, parts[0].Content)
			}
		}
		step := steps[len(heard)]
		step.Text = regexp.MustCompile(`\{\d+\}`).ReplaceAllStringFunc(step.Text, func(s string) string {
			n, _ := strconv.Atoi(s[1 : len(s)-1])
			return strings.TrimSpace(heard[n-1])
		})
		code := map[string]string{"code": step.Code}
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch r.URL.Path {
		case "/openai/chat/completions":
			message := map[string]any{"role": "assistant", "content": step.Text}
			if step.Code != "" {
				arguments, _ := json.Marshal(code)
				message["tool_calls"] = []any{map[string]any{"id": "call", "type": "function", "function": map[string]any{"name": "run_python", "arguments": string(arguments)}}}
			}
			answer = map[string]any{"choices": []any{map[string]any{"message": message}}}
		case "/v1/messages":
			part := map[string]any{"type": "text", "text": step.Text}
			if step.Code != "" {
				part = map[string]any{"type": "tool_use", "id": "call", "name": "run_python", "input": code}
			}
			answer = map[string]any{"role": "assistant", "content": []any{part}}
		default:
			t.Errorf("a request for %s", r.URL.Path)
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
}
