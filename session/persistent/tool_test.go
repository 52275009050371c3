// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/registry"
	"github.com/caisson-run/caisson/session/toolcall"
	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/tool/params"
)

// tool calls a tool, and compares its answer with the tool's own schema.
func (h *home) tool(t testing.TB, name, arguments string) (*toolcall.Answer, error) {
	t.Helper()
	a, err := h.CallTool(t.Context(), h.key, &toolcall.Call{Name: name, Args: []byte(arguments), Frontend: "test"})
	if err != nil {
		return a, err
	}
	fits(t, name, a)
	return a, nil
}

func fits(t testing.TB, name string, a *toolcall.Answer) {
	t.Helper()
	def, _ := tool.Builtin(name)
	schema, err := params.Compile(def.Output)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(a.Output)
	if err != nil {
		t.Fatal(err)
	}
	v, err := params.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if faults := schema.Check(v); faults != nil {
		t.Errorf("%s answers %s: %+v", name, b, faults)
	}
}

// mustTool is tool for calls that succeed.
func (h *home) mustTool(t testing.TB, name, arguments string) map[string]any {
	t.Helper()
	a, err := h.tool(t, name, arguments)
	if err != nil {
		t.Fatalf("%s %s: %v", name, arguments, err)
	}
	return a.Output
}

func TestTools(t *testing.T) {
	h := newHome(t, nil)
	made := h.mustTool(t, "create_sandbox", `{"timeout": 60, "env": {"A": "b"}, "metadata": {"for": "tests"}, "network": []}`)
	id := made["sandbox_id"].(string)
	in := func(more string) string { return `{"sandbox_id":"` + id + `"` + more + `}` }

	// In it, and again in it.
	out := h.mustTool(t, "run_command", in(`,"command":"echo $A > f; cat f; echo no >&2; exit 3"`))
	if out["stdout"] != "b\n" || out["stderr"] != "no\n" || out["exit_code"] != 3 || out["status"] != "error" || out["sandbox_id"] != id {
		t.Errorf("run_command: %v", out)
	}
	if out := h.mustTool(t, "run_command", in(`,"command":"cat","args":["f"]`)); out["stdout"] != "b\n" {
		t.Errorf("with arguments: %v", out)
	}
	if out := h.mustTool(t, "run_command", in(`,"command":"echo","args":["$(id)",";ls"]`)); out["stdout"] != "$(id) ;ls\n" {
		t.Errorf("a shell read the arguments: %v", out)
	}
	if out := h.mustTool(t, "run_code", in(`,"language":"sh","code":"echo $1; cat; echo $C; ls /tmp","args":["x y"],"stdin":"in\n","env":{"C":"d"}`)); !strings.HasPrefix(out["stdout"].(string), "x y\nin\nd\nsbx_") {
		t.Errorf("run_code: %v", out)
	}
	if out := h.mustTool(t, "run_command", in(`,"command":"ls /tmp; printf '\\377'"`)); out["stdout_encoding"] != "base64" || out["stdout"] != "/w==" {
		t.Errorf("code is left, or bytes are text: %v", out)
	}

	// Files.
	h.mustTool(t, "write_file", in(`,"path":"dir/text","content":"grüße"`))
	h.mustTool(t, "write_file", in(`,"path":"/tmp/bytes","content":"/wA=","encoding":"base64"`))
	if out := h.mustTool(t, "read_file", in(`,"path":"dir/text"`)); out["content"] != "grüße" || out["encoding"] != "text" || out["path"] != "/home/user/dir/text" {
		t.Errorf("read_file: %v", out)
	}
	if out := h.mustTool(t, "read_file", in(`,"path":"dir/text","limit":3`)); out["content"] != "gr" || out["truncated"] != true {
		t.Errorf("a part of it: %v", out)
	}
	if out := h.mustTool(t, "read_file", in(`,"path":"/tmp/bytes"`)); out["content"] != "/wA=" || out["encoding"] != "base64" {
		t.Errorf("bytes: %v", out)
	}
	if out := h.mustTool(t, "list_files", in(`,"path":"dir"`)); len(out["entries"].([]any)) != 1 {
		t.Errorf("list_files: %v", out)
	}
	if _, err := h.tool(t, "read_file", in(`,"path":"/nowhere"`)); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("a file that is not there: %v", err)
	}

	if out := h.mustTool(t, "list_sandboxes", `{"metadata":{"for":"tests"}}`); len(out["sandboxes"].([]any)) != 1 {
		t.Errorf("list_sandboxes: %v", out)
	}
	// Another key's is as one that is not there.
	other := *h
	other.key = h.newKey(t, "other of tools")
	for name, arguments := range map[string]string{
		"run_command": `,"command":"id"`, "read_file": `,"path":"/x"`, "write_file": `,"path":"/x","content":""`, "list_files": ``, "kill_sandbox": ``,
	} {
		if _, err := other.tool(t, name, in(arguments)); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("another key's %s: %v", name, err)
		}
	}
	if out := other.mustTool(t, "list_sandboxes", ``); len(out["sandboxes"].([]any)) != 0 {
		t.Errorf("another key lists: %v", out)
	}

	// Without one it runs in its own.
	var live bytes.Buffer
	a, err := h.CallTool(t.Context(), h.key, &toolcall.Call{Name: "run_command", Args: []byte(`{"command":"echo alone; test -e ~/f"}`), Stdout: &live})
	if err != nil || a.Output["stdout"] != "alone\n" || live.String() != "alone\n" || !a.Failed || a.Output["sandbox_id"] != nil {
		t.Errorf("alone: %+v, %v, %q", a, err, &live)
	}
	h.mustTool(t, "kill_sandbox", in(``))
	if _, err := h.tool(t, "list_files", in(``)); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("in one that was ended: %v", err)
	}
}

// What does not fit goes nowhere, says all that does not fit, and is recorded.
func TestToolsRefuse(t *testing.T) {
	h := newHome(t, nil)
	for _, c := range []struct{ name, arguments, want string }{
		{"rm_rf", `{}`, "not listed"},
		{"run_code", ``, "language"},
		{"run_code", `{"code":1,"language":"cobol","unsandboxed":true}`, "/code: got number"},
		{"run_code", `{"code":1,"language":"cobol","unsandboxed":true}`, "/language"},
		{"run_code", `{"code":1,"language":"cobol","unsandboxed":true}`, "unsandboxed"},
		{"run_command", `{"command":"id","command":"ls"}`, "twice"},
		{"run_command", `[]`, "got array"},
		{"run_command", `{"command":NaN}`, "not JSON"},
		{"run_command", `{"command":"id","__proto__":{"sandbox_id":"x"}}`, "more than a name"},
		{"run_command", `{"сommand":"id"}`, "not plain ASCII"},
		{"run_command", `{"command":"id\u0000"}`, "U+0000"},
		{"run_command", `{"command":"id","args":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, "not JSON"},
		{"run_command", `{"command":"id","timeout":99999999999999999999}`, "write it as text"},
		{"run_command", `{"command":"id","timeout":1e400}`, "too large"},
		{"run_command", `{"command":"id","mounts":["/"]}`, "mounts"},
		{"create_sandbox", `{"network":["example.com"]}`, "example.com"},
		{"create_sandbox", `{"template":"none"}`, "there is none"},
	} {
		if a, err := h.tool(t, c.name, c.arguments); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %+v, %v; want %s", c.name, c.arguments, a, err, c.want)
		}
	}
	n := 0
	for r, err := range h.log.Query(t.Context(), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Call != nil && r.Call.Tool != "" {
			n++
		}
	}
	if n < 17 {
		t.Errorf("%d calls of tools are recorded", n)
	}
}

// Who calls what a frontend does not offer leaves a record, without arguments.
func TestRefuseTool(t *testing.T) {
	h := newHome(t, nil)
	if err := h.RefuseTool(t.Context(), h.key, &toolcall.Call{Name: "nothing", Args: []byte(`{"password":"hunter2"}`), Frontend: "mcp"}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r, err := range h.log.Query(t.Context(), audit.Filter{Kind: "call_tool"}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %s %v", r.Call.Tool, r.Status, r.Call.Actor, r.Call.Params != nil))
	}
	if diff := cmp.Diff([]string{"nothing refused " + h.key.Actor() + " false"}, got); diff != "" {
		t.Error(diff)
	}
}

const toolPolicy = `version: 1
tools:
  - list_sandboxes
  - {name: run_command, rate: 2/min}
  - {name: run_code, approve: always}
  - name: greet
    description: Greets.
    params: {type: object, properties: {whom: {type: string}, password: {type: string}, loud: {type: boolean}, sandbox_id: {type: string}}, required: [whom], additionalProperties: false}
    rules: ['params.whom.size() < 20', 'call.sandbox == ""']
    command: [echo, "hello {whom}", "{password}", --, "{loud}"]
    redact: [password]
  - name: elsewhere
    params: {type: object}
`

// A policy's tools: what it declares runs, what it marks is in no record, what it
// bounds is bounded for each key, and what it asks about does not run.
func TestToolsOfAPolicy(t *testing.T) {
	clock := registry.Instant{Boot: "boot", Since: time.Hour}
	h := newHome(t, func(o *SandboxesOptions) {
		f, err := policy.Parse("/p.yaml", []byte(toolPolicy))
		if err != nil {
			t.Fatal(err)
		}
		o.Policies = map[string]*policy.File{"": f}
		o.Boot = func() registry.Instant { return clock }
	})
	var names []string
	offered, err := h.Sandboxes.Tools(h.key)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range offered {
		names = append(names, o.Name)
	}
	if diff := cmp.Diff([]string{"greet", "list_sandboxes", "run_code", "run_command"}, names); diff != "" {
		t.Error(diff)
	}
	call := func(name, arguments string) (*toolcall.Answer, error) {
		return h.CallTool(t.Context(), h.key, &toolcall.Call{Name: name, Args: []byte(arguments)})
	}
	a, err := call("greet", `{"whom":"you; id","password":"hunter2","sandbox_id":"x"}`)
	if err != nil || a.Output["stdout"] != "hello you; id hunter2 --\n" {
		t.Errorf("%+v, %v", a, err)
	}
	for arguments, want := range map[string]string{
		`{"whom":"you","password":"-n"}`: "option", `{"whom":"aaaaaaaaaaaaaaaaaaaaaaaaaaa"}`: "does not hold", `{"whom":3,"password":4}`: "/whom",
	} {
		if a, err := call("greet", arguments); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", arguments, a, err)
		}
	}
	for name, want := range map[string]string{"run_code": "approv", "kill_sandbox": "not listed", "elsewhere": "nothing here carries it out"} {
		arguments := map[string]string{"run_code": `{"code":"1","language":"sh"}`}[name]
		if a, err := call(name, arguments); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	testToolRates(t, h, call, &clock)
	testToolRecords(t, h)
}

func testToolRates(t *testing.T, h *home, call func(name, arguments string) (*toolcall.Answer, error), clock *registry.Instant) {
	run := func() error { _, err := call("run_command", `{"command":"true"}`); return err }
	if err := errors.Join(run(), run()); err != nil {
		t.Fatal(err)
	}
	var e *sandbox.Error
	if err := run(); !errors.Is(err, sandbox.ErrDenied) || !errors.As(err, &e) || e.Rule != "/p.yaml:4" || !strings.Contains(e.Hint, "1m0s") {
		t.Errorf("the third: %v", err)
	}
	if _, err := call("list_sandboxes", ``); err != nil {
		t.Errorf("another tool: %v", err)
	}
	other := *h
	if _, err := h.keys.Revoke(t.Context(), h.key.ID); err != nil {
		t.Fatal(err)
	}
	other.key = h.newKey(t, h.key.Name) // of the same name, and another key
	if _, err := other.tool(t, "run_command", `{"command":"true"}`); err != nil {
		t.Errorf("another key: %v", err)
	}
	clock.Since += time.Minute
	if err := run(); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

func testToolRecords(t *testing.T, h *home) {
	status := map[string]int{}
	for r, err := range h.log.Query(t.Context(), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Call == nil || r.Call.Tool == "" {
			continue
		}
		status[r.Call.Tool+" "+string(r.Status)]++
		if r.Call.Params == nil {
			t.Errorf("%s: its arguments are not recorded", r.Call.Tool)
		}
		d, err := h.log.Show(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		// What the program wrote is its own affair.
		if all := fmt.Sprintf("%s %q %+v", d.Params, r.Command, r.Ending); strings.Contains(all, "hunter2") || len(d.Params) == 0 {
			t.Errorf("what is marked is recorded: %s", all)
		}
	}
	want := map[string]int{
		"greet allowed": 1, "greet refused": 3, "run_code refused": 1, "kill_sandbox refused": 1, "elsewhere refused": 1,
		"run_command allowed": 4, "run_command refused": 1, "list_sandboxes allowed": 1,
	}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Error(diff)
	}
}

// A call that needs an approval counts once: when it is asked about. A token is no
// way round a rate where no question is asked.
func TestRateOfWhatIsApproved(t *testing.T) {
	f, err := policy.Parse("/p.yaml", []byte(`version: 1
tools:
  - {name: run_command, rate: 1/h, approve: {when: params.command == "asked"}}
  - {name: list_sandboxes, rate: 1/h, approve: always}
`))
	if err != nil {
		t.Fatal(err)
	}
	h, approvals, ada := newAskingHome(t, f)
	call := func(name, arguments, token string) error {
		_, err := h.CallTool(t.Context(), h.key, &toolcall.Call{Name: name, Args: []byte(arguments), Ways: question.Ways{Resumable: true, Approval: token}})
		return err
	}
	for name, arguments := range map[string]string{"run_command": `{"command":"asked"}`, "list_sandboxes": `{}`} {
		var p *question.Pending
		if err := call(name, arguments, ""); !errors.As(err, &p) {
			t.Fatalf("%s: %v", name, err)
		}
		if err := call(name, arguments, ""); !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), "1/h") {
			t.Errorf("%s is asked about again: %v", name, err)
		}
		if _, err := approvals.Answer(t.Context(), ada, p.Request.ID, question.Answer{Yes: true, Digest: p.Request.Digest}); err != nil {
			t.Fatal(err)
		}
		if err := call(name, arguments, p.Token); err != nil {
			t.Errorf("%s, approved: %v", name, err)
		}
		if err := call(name, arguments, p.Token); !errors.Is(err, sandbox.ErrDenied) {
			t.Errorf("%s, again: %v", name, err)
		}
	}
	// The limit is used up, so a made-up token reaches no frontend.
	for name, arguments := range map[string]string{"run_command": `{"command":"asked"}`, "list_sandboxes": `{}`} {
		if err := call(name, arguments, "made up"); !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), "1/h") {
			t.Errorf("%s with a token that is made up: %v", name, err)
		}
	}
	if err := call("run_command", `{"command":"true"}`, "made up"); !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), "1/h") {
		t.Errorf("a token where nobody is asked: %v", err)
	}
}

// What files.deny names no tool reads, writes or lists.
func TestToolsHoldDeniedFiles(t *testing.T) {
	h := newHome(t, func(o *SandboxesOptions) {
		f, err := policy.Parse("/p.yaml", []byte("version: 1\nfiles: {deny: [\"**/.env\", \"/srv/**\"]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		o.Policies = map[string]*policy.File{"": f}
	})
	id := h.mustTool(t, "create_sandbox", `{"timeout": 60}`)["sandbox_id"].(string)
	in := func(more string) string { return `{"sandbox_id":"` + id + `",` + more + `}` }
	h.mustTool(t, "write_file", in(`"path":"env","content":"x"`))
	for _, c := range []struct{ tool, args string }{
		{"read_file", `"path":".env"`}, {"read_file", `"path":"/home/user/x/../.env"`}, {"write_file", `"path":".env","content":"x"`}, {"list_files", `"path":"/srv/a"`},
	} {
		if _, err := h.tool(t, c.tool, in(c.args)); !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), "files.deny") {
			t.Errorf("%s %s: %v", c.tool, c.args, err)
		}
	}
	if out := h.mustTool(t, "read_file", in(`"path":"env"`)); out["content"] != "x" {
		t.Errorf("read_file: %v", out)
	}
}

// run_code in a context keeps its state, and its answer has what was shown.
func TestToolInAContext(t *testing.T) {
	h := newHome(t, nil)
	id := h.mustTool(t, "create_sandbox", `{"timeout": 60}`)["sandbox_id"].(string)
	in := func(more string) string {
		return `{"sandbox_id":"` + id + `","context":"main","language":"python",` + more + `}`
	}
	h.mustTool(t, "run_code", in(`"code":"x = 6\nprint('said')"`))
	a, err := h.tool(t, "run_code", in(`"code":"class P:\n def _repr_mimebundle_(self, **k): return {'text/plain': 'p', 'image/png': '`+onePixel+`'}\nopen('f', 'w').write('a')\nP()"`))
	if err != nil {
		t.Fatal(err)
	}
	text, pictures := a.Shown()
	if a.Failed || len(pictures) != 1 || pictures[0].Kind != "image/png" || !strings.Contains(text, "p\n") || !strings.Contains(text, "/home/user/f") {
		t.Errorf("%q, %+v, %d pictures", text, a.Output, len(pictures))
	}
	out := h.mustTool(t, "run_code", in(`"code":"x * 7"`))
	results, _ := out["results"].([]any)
	if len(results) != 1 || results[0].(map[string]any)["text"] != "42" || out["context"] != "main" || out["status"] != "success" {
		t.Errorf("%v", out)
	}
	if a, err := h.tool(t, "run_code", in(`"code":"1/0"`)); err != nil || !a.Failed || !strings.Contains(a.Output["stderr"].(string), "ZeroDivisionError") {
		t.Errorf("%+v, %v", a, err)
	}
	for name, arguments := range map[string]string{
		"no sandbox": `{"language":"python","code":"1","context":"main"}`, "input": in(`"code":"1","stdin":"x"`), "a name": `{"sandbox_id":"` + id + `","language":"python","code":"1","context":"../x"}`,
		"another language": `{"sandbox_id":"` + id + `","language":"javascript","code":"1","context":"main"}`,
	} {
		if _, err := h.tool(t, "run_code", arguments); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// onePixel is a picture.
const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
