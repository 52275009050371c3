// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// shapes are what each API calls a tool by, and takes back.
func TestModelCalls(t *testing.T) {
	d := newFrontend(t)
	id := d.create(t, "{}")
	beside := `,"sandbox_id":"` + id + `"`
	edit := func(input string) string {
		return `{"call":{"type":"tool_use","id":"t1","name":"str_replace_based_edit_tool","input":` + input + `}` + beside + `}`
	}
	for _, c := range []struct {
		name, body string
		status     int
		want       string // of the result, as JSON
	}{
		{"tool_use", `{"call":{"type":"tool_use","id":"t1","name":"run_command","caller":{"type":"direct"},"input":{"command":"echo hi"}}}`, 200,
			`{"content":[{"text":"hi\n[success; exit code: 0]","type":"text"}],"tool_use_id":"t1","type":"tool_result"}`},
		{"function_call", `{"call":{"type":"function_call","id":"fc_1","call_id":"c1","name":"run_command","arguments":"{\"command\":\"exit 3\"}","status":"completed"}}`, 200,
			`{"call_id":"c1","output":"[error; exit code: 3]","type":"function_call_output"}`},
		{"chat", `{"call":{"type":"function","id":"c2","function":{"name":"run_command","arguments":"{\"command\":\"echo hi\"}"}}}`, 200,
			`{"content":"hi\n[success; exit code: 0]","role":"tool","tool_call_id":"c2"}`},
		{"shell", `{"call":{"type":"shell_call","call_id":"c3","action":{"commands":["echo a > /home/user/f; echo out; echo err >&2","cat /home/user/f; exit 4"],"timeout_ms":60000,"max_output_length":null}}` + beside + `}`, 200,
			`{"call_id":"c3","output":[{"outcome":{"exit_code":0,"type":"exit"},"stderr":"err\n","stdout":"out\n"},{"outcome":{"exit_code":4,"type":"exit"},"stderr":"","stdout":"a\n"}],"type":"shell_call_output"}`},
		{"bash", `{"call":{"type":"tool_use","id":"t1","name":"bash","input":{"command":"[[ a == a ]] && cat /home/user/f"}}` + beside + `}`, 200, `"text":"a\n[success; exit code: 0]"`},
		{"restart", `{"call":{"type":"tool_use","id":"t1","name":"bash","input":{"restart":true}}` + beside + `}`, 200, `the shell was restarted`},
		{"bash elsewhere", `{"call":{"type":"tool_use","id":"t1","name":"bash","input":{"command":"cd /tmp; A=b; false"}}` + beside + `}`, 200, `"text":"[error; exit code: 1]"`},
		{"and on", `{"call":{"type":"tool_use","id":"t1","name":"bash","input":{"command":"pwd; cat; echo $A"}}` + beside + `}`, 200, `"text":"/tmp\nb\n[success; exit code: 0]"`},
		{"restart without a sandbox", `{"call":{"type":"tool_use","id":"t1","name":"bash","input":{"restart":true}}}`, 200, `nothing to restart`},
		{"create", edit(`{"command":"create","path":"/home/user/e.py","file_text":"one\ntwo\nthree\n"}`), 200, `"text":"/home/user/e.py is written"`},
		{"str_replace", edit(`{"command":"str_replace","path":"/home/user/e.py","old_str":"two","new_str":"TWO & <2>"}`), 200, `is written`},
		{"insert", edit(`{"command":"insert","path":"/home/user/e.py","insert_line":0,"insert_text":"zero"}`), 200, `is written`},
		{"view", edit(`{"command":"view","path":"/home/user/e.py","view_range":[1,3]}`), 200, `"text":"     1\tzero\n     2\tone\n     3\tTWO \u0026 \u003c2\u003e\n"`},
		{"view a directory", edit(`{"command":"view","path":"/home/user"}`), 200, `e.py`},
		{"not there", edit(`{"command":"str_replace","path":"/home/user/e.py","old_str":"two"}`), 400, `"is_error":true`},
		{"the sandbox beside it", `{"call":{"type":"function_call","call_id":"c1","name":"read_file","arguments":"{\"path\":\"e.py\",\"limit\":4}"}` + beside + `}`, 200, `"output":"zero"`},
	} {
		status, a := d.ask(t, "POST", "/v1/tools/call", c.body)
		got, _ := json.Marshal(a["result"])
		if status != c.status || strings.HasPrefix(c.want, "{") && string(got) != c.want || !strings.Contains(string(got), c.want) {
			t.Errorf("%s: %d %s, %v\nwant %s", c.name, status, got, a["detail"], c.want)
		}
	}
	// What is cut, and what comes too late. A busy machine may take longer for the first
	// command, too, and needs more time to tell them apart.
	var got []byte
	for ms := 300; ms < 60_000 && !strings.Contains(string(got), `{"outcome":{"exit_code":0,`); ms *= 4 {
		status, a := d.ask(t, "POST", "/v1/tools/call", fmt.Sprintf(`{"call":{"type":"shell_call","call_id":"c4","action":{"commands":["printf éàü","sleep 600"],"timeout_ms":%d,"max_output_length":2}}%s}`, ms, beside))
		if got, _ = json.Marshal(a["result"]); status != 200 {
			t.Fatalf("%d %v", status, a["detail"])
		}
	}
	want := `{"call_id":"c4","max_output_length":2,"output":[{"outcome":{"exit_code":0,"type":"exit"},"stderr":"","stdout":"éà"},{"outcome":{"type":"timeout"},"stderr":"","stdout":""}],"type":"shell_call_output"}`
	if string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// A call by name has the tool's own output, and a refusal is a problem.
func TestToolCalls(t *testing.T) {
	d := newFrontendUnder(t, "version: 1\ntools:\n  - run_command\n  - {name: read_file}\n  - name: greet\n    params: {type: object, additionalProperties: false, required: [who], properties: {who: {type: string, pattern: '^[a-z]+$'}}}\n    command: [echo, hello, '{who}']\n")
	status, a := d.ask(t, "POST", "/v1/tools/call", `{"name":"greet","arguments":{"who":"ada"}}`)
	if out, _ := a["output"].(map[string]any); status != 200 || out["stdout"] != "hello ada\n" || out["exit_code"] != 0.0 || a["failed"] != nil {
		t.Errorf("%d %v", status, a)
	}
	for _, c := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"not listed", `{"name":"run_code","arguments":{"language":"python","code":"1"}}`, 403, "run_code"},
		{"not there", `{"name":"nothing"}`, 403, "nothing"},
		{"bad arguments", `{"name":"greet","arguments":{"who":"A","more":1}}`, 400, "who"},
		{"a name twice", `{"name":"greet","arguments":{"who":"ada","who":"b"}}`, 400, "twice"},
		{"a name twice in a call", `{"call":{"type":"tool_use","id":"1","name":"greet","name":"x","input":{}}}`, 400, "twice"},
		{"a name twice in arguments", `{"call":{"type":"function_call","call_id":"1","name":"greet","arguments":"{\"who\":\"ada\",\"who\":\"b\"}"}}`, 400, "twice"},
		{"nothing", `{}`, 400, "names no tool"},
		{"both", `{"name":"greet","call":{"type":"tool_use"}}`, 400, "a name and a call"},
		{"another type", `{"call":{"type":"computer_call","call_id":"1"}}`, 501, "computer_call"},
		{"no ID", `{"call":{"type":"tool_use","name":"bash","input":{"command":"x"}}}`, 400, "no ID"},
		{"an unknown wish", `{"call":{"type":"tool_use","id":"1","name":"bash","input":{"command":"x","sudo":true}}}`, 400, "sudo"},
		{"no commands", `{"call":{"type":"shell_call","call_id":"1","action":{"commands":[]}}}`, 400, "0 commands"},
		{"Anthropic's of another", `{"call":{"type":"function_call","call_id":"1","name":"bash","arguments":"{}"}}`, 403, "bash"},
		{"an editor without a sandbox", `{"call":{"type":"tool_use","id":"1","name":"str_replace_based_edit_tool","input":{"command":"view","path":"/x"}}}`, 400, "no sandbox"},
		{"an editor whose writing is not listed", `{"call":{"type":"tool_use","id":"1","name":"str_replace_based_edit_tool","input":{"command":"create","path":"/x","file_text":"x"}},"sandbox_id":"i0"}`, 403, "write_file"},
		{"another key's sandbox", `{"call":{"type":"tool_use","id":"1","name":"bash","input":{"command":"x"}},"sandbox_id":"i00000000000000000000"}`, 404, "there is none"},
	} {
		status, a := d.ask(t, "POST", "/v1/tools/call", c.body)
		if detail, _ := a["detail"].(string); status != c.status || !strings.Contains(detail, c.says) {
			t.Errorf("%s: %d %v", c.name, status, a)
		}
	}
	// All that does not fit is told, and where, and the refusal is recorded as one.
	for _, body := range []string{
		`{"name":"greet","arguments":{"who":"A","more":1}}`,
		`{"call":{"type":"tool_use","id":"1","name":"greet","input":{"who":"A","more":1}}}`,
	} {
		status, a := d.ask(t, "POST", "/v1/tools/call", body)
		var at []string
		for _, f := range a["faults"].([]any) {
			at = append(at, f.(map[string]any)["at"].(string))
		}
		if got := strings.Join(at, " "); status != 400 || a["kind"] != "invalid" || got != "arguments arguments/who" || !strings.HasPrefix(a["rule"].(string), "/p.yaml") && a["rule"] != "built-in: arguments of greet" {
			t.Errorf("%d %v", status, a)
		}
	}
	for format, want := range map[string]string{"openai": `"parameters"`, "openai-chat": `"function"`, "anthropic": `"input_schema"`, "mcp": `"inputSchema"`} {
		resp, b := d.raw(t, "GET", "/v1/tools?format="+format, "")
		if text := string(b); resp.StatusCode != 200 || !strings.Contains(text, want) || !strings.Contains(text, "greet") || strings.Contains(text, "run_code") || !json.Valid(b) {
			t.Errorf("%s: %d %s", format, resp.StatusCode, b)
		}
	}
	if status, _ := d.ask(t, "GET", "/v1/tools?format=x", ""); status != 422 {
		t.Error(status)
	}
}

// A model's call that is asked about says so, and runs by its token; what has
// several commands does not take one.
func TestToolApproval(t *testing.T) {
	d, _, credential := asker(t, "web")
	as := []string{"X-API-Key", "", "Authorization", "Bearer " + credential}
	const call = `{"call":{"type":"tool_use","id":"t1","name":"bash","input":{"command":"echo hi"}},"resumable":true%s}`
	status, a := d.ask(t, "POST", "/v1/tools/call", fmt.Sprintf(call, ""))
	waits, _ := a["approval"].(map[string]any)
	if status != 403 || waits == nil || !strings.Contains(fmt.Sprint(a["result"]), "it waits for approval") {
		t.Fatalf("%d %v", status, a)
	}
	_, q := d.ask(t, "GET", "/v1/approvals/"+waits["id"].(string), "", as...)
	if !strings.Contains(fmt.Sprint(q["view"]), "run_command") {
		t.Errorf("%v", q)
	}
	if status, a = d.ask(t, "POST", "/v1/approvals/"+waits["id"].(string)+"/approve", `{"digest":"`+q["digest"].(string)+`"}`, as...); status != 200 {
		t.Fatalf("%d %v", status, a)
	}
	if status, a = d.ask(t, "POST", "/v1/tools/call", fmt.Sprintf(call, `,"approval":"`+waits["token"].(string)+`"`)); status != 200 || !strings.Contains(fmt.Sprint(a["result"]), "hi") {
		t.Errorf("%d %v", status, a)
	}
	if status, a = d.ask(t, "POST", "/v1/tools/call", `{"call":{"type":"shell_call","call_id":"1","action":{"commands":["true","echo x"]}},"resumable":true}`); status != 400 {
		t.Errorf("%d %v", status, a)
	}
}
