// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool/params"
)

const mailTools = `tools:
  - run_code
  - name: send_email
    params: {type: object, properties: {to: {type: string, format: email}, key: {type: string, pattern: "^[a-c]*$"}, n: {type: integer}}, required: [to], additionalProperties: false}
    rules:
      - email.domain(params.to) == "company.com"
      - {check: '!has(params.n) || params.n < 10', message: at most ten}
    rate: [10/min, 100/h]
    approve: {when: has(params.n) && params.n > 5}
    redact: [key]`

// toolCall is a call of a tool whose arguments came as JSON.
func toolCall(t testing.TB, name, args string) *Call {
	t.Helper()
	v, err := params.Read([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	return &Call{Kind: CallTool, Actor: "key:ci", Tool: &ToolCall{Name: name, Args: v}}
}

func TestDecideTool(t *testing.T) {
	for _, c := range []struct {
		system, file string
		tool, args   string
		want         Decision
		says         string // in reason, rule or hint
	}{
		// No list: those that are built in.
		{"", "", "run_code", `{"code":"1","language":"python"}`, Allow, ""},
		{"", "", "run_code", `{"code":"1"}`, Deny, "language"},
		{"", "", "send_email", `{}`, Deny, "not listed"},
		{"", "", "", `{}`, Deny, "not listed"},
		{"", "limits: {wall: 1s}", "run_code", `{"code":"1","language":"python"}`, Allow, ""},
		// A list is all there is; * is every tool that is built in.
		{"", mailTools, "run_code", `{"code":"1","language":"python"}`, Allow, ""},
		{"", mailTools, "run_command", `{"command":"id"}`, Deny, "p.yaml:2"},
		{"", mailTools, "run_command", `{"command":"id"}`, Deny, "tools: [run_command]"},
		{"", `tools: []`, "run_command", `{"command":"id"}`, Deny, "not listed"},
		{"", `tools: ["*"]`, "run_command", `{"command":"id"}`, Allow, ""},
		{"", `tools: ["*"]`, "send_email", `{}`, Deny, "not listed"},
		{"", `tools: [{name: "*", approve: always}, run_code]`, "run_command", `{"command":"id"}`, Ask, "needs approval"},
		{"", `tools: [{name: "*", approve: always}, run_code]`, "run_code", `{"code":"1","language":"sh"}`, Allow, ""},
		// Every layer that lists has to.
		{`tools: [run_code]`, `tools: ["*"]`, "run_command", `{"command":"id"}`, Deny, "caisson/policy.yaml:2"},
		{`tools: [run_code]`, mailTools, "send_email", `{"to":"a@company.com"}`, Deny, "caisson/policy.yaml:2"},
		{`tools: ["*"]`, ``, "run_command", `{"command":"id"}`, Allow, ""},
		{`tools: [{name: run_command, rules: ["!has(params.env)"]}]`, `tools: [run_command]`, "run_command", `{"command":"id","env":{"A":"b"}}`, Deny, "caisson/policy.yaml:2"},
		{`tools: [{name: run_command, approve: always}]`, `tools: [{name: run_command, approve: never}]`, "run_command", `{"command":"id"}`, Ask, "caisson/policy.yaml:2"},
		// Arguments: the tool's own schema, the entry's, and rules.
		{"", mailTools, "send_email", `{"to":"a@company.com"}`, Allow, ""},
		{"", mailTools, "send_email", `{"to":"a@evil.com"}`, Deny, "p.yaml:7"},
		{"", mailTools, "send_email", `{"to":"a@company.com","n":11}`, Deny, "at most ten does not hold"},
		{"", mailTools, "send_email", `{"to":"a@company.com","n":6}`, Ask, "p.yaml:10"},
		// All rules that do not hold are told at once, whatever layer has them.
		{"", mailTools, "send_email", `{"to":"a@evil.com","n":11}`, Deny, "at most ten does not hold [/w/p.yaml:8] change the arguments so that all of them hold"},
		{`tools: [{name: run_code, rules: ["params.code != '1'"]}]`, `tools: [{name: run_code, rules: ["params.language != 'sh'"]}]`, "run_code", `{"code":"1","language":"sh"}`, Deny, "does not hold; params.language != 'sh' does not hold [/w/p.yaml:2]"},
		// A name that is nearly one that may be called.
		{"", mailTools, "send_mail", `{}`, Deny, "did you mean send_email? else add to"},
		{"", "", "run_cod", `{}`, Deny, "did you mean run_code? else see"},
		{`tools: [run_command]`, mailTools, "run_cod", `{}`, Deny, "policy.yaml:2 tool \"run_cod\" is not listed add to"},
		{"", mailTools, "send_email", `{"to":"nobody","cc":"x"}`, Deny, "/to"},
		{"", mailTools, "send_email", `{"to":"nobody","cc":"x"}`, Deny, "cc"},
		{"", `tools: [{name: run_code, params: {properties: {language: {const: python}}, type: object}}]`, "run_code", `{"code":"1","language":"sh"}`, Deny, "/language"},
		{"", `tools: [{name: run_code, params: {type: object}}]`, "run_code", `{"code":"1"}`, Deny, "language"}, // its own holds still
		{"", `tools: [{name: run_code, rules: ["params.cwd == '/x'"]}]`, "run_code", `{"code":"1","language":"sh"}`, Deny, "cwd is not given"},
		// What cannot be told asks.
		{"", `tools: [{name: run_code, approve: {when: "params.cwd == '/x'"}}]`, "run_code", `{"code":"1","language":"sh"}`, Ask, ""},
	} {
		v := policyOf(t, c.system, c.file).Decide(toolCall(t, c.tool, c.args))
		if all := v.Rule + " " + v.Reason + " " + v.Hint; v.Decision != c.want || !strings.Contains(all, c.says) {
			t.Errorf("%s | %s: %s %s: %v: %s; want %v, %q", c.system, c.file, c.tool, c.args, v.Decision, all, c.want, c.says)
		}
	}
}

// What does not fit is told fault by fault, but of what no record has only where.
func TestMisfit(t *testing.T) {
	p := policyOf(t, "", `tools: [{name: send, params: {type: object, properties: {key: {type: string, pattern: ^k}, n: {type: integer}}, required: [to]}, command: [x], redact: [key]}]`)
	v := p.Decide(toolCall(t, "send", `{"key":"sesame","n":"x"}`))
	var m *Misfit
	if err := v.Err(); v.Decision != Deny || !errors.As(err, &m) || !errors.Is(err, sandbox.ErrInvalid) || errors.Is(err, sandbox.ErrDenied) || strings.Contains(err.Error(), "sesame") {
		t.Fatalf("%v: %v", v.Decision, v.Err())
	}
	var got []string
	for _, f := range m.Faults {
		got = append(got, f.Path+": "+f.Problem)
	}
	if text := strings.Join(got, "|"); len(got) != 3 || !strings.Contains(got[0], "to") || got[1] != "/key: it does not fit" || !strings.HasPrefix(got[2], "/n: got string") {
		t.Error(text)
	}
	if v := p.Decide(toolCall(t, "other", `{}`)); errors.As(v.Err(), &m) {
		t.Error("what is not listed is no misfit")
	}
}

// A tool of a server is listed there; what tools says of it holds all the same.
func TestDecideServersTool(t *testing.T) {
	p := policyOf(t, "", `tools: [{name: read_file, params: {type: object, properties: {path: {type: string}}}, rules: ['path.under(params.path, "/data")'], rate: 1/s}]`)
	for args, want := range map[string]Decision{`{"path":"/data/x"}`: Allow, `{"path":"/etc/passwd"}`: Deny, `{"path":1}`: Deny} {
		c := toolCall(t, "read_file", args)
		c.Tool.Server = "files"
		if v := p.Decide(c); v.Decision != want || want == Allow && len(v.Plan.Rates) != 1 {
			t.Errorf("%s: %+v", args, v)
		}
	}
	c := toolCall(t, "other", `{}`)
	c.Tool.Server = "files"
	if v := p.Decide(c); v.Decision != Allow {
		t.Errorf("one that only servers lists: %+v", v)
	}
}

// The decision about what a tool does has the tool in it.
func TestDecideToolWithEffect(t *testing.T) {
	p := policyOf(t, "", "tools: [{name: run_command, approve: always, rate: 5/min}]\ncommands: {allow: [ls]}")
	c := toolCall(t, "run_command", `{"command":"ls"}`)
	c.Kind, c.Argv = RunCommand, []string{"sh", "-c", "ls"}
	if v := p.Decide(c); v.Decision != Ask || v.Plan.Isolation != "gvisor" || len(v.Plan.Rates) != 1 || v.Err() == nil || !strings.Contains(v.Err().Error(), "approval") {
		t.Errorf("%+v", v)
	}
	c.Argv = []string{"sh", "-c", "rm x"}
	if v := p.Decide(c); v.Decision != Deny || !strings.Contains(v.Reason, "rm") {
		t.Errorf("what it does is not judged: %+v", v)
	}
	c.Tool.Name = "run_code"
	c.Argv = []string{"ls"}
	if v := p.Decide(c); v.Decision != Deny {
		t.Errorf("the tool is not judged: %+v", v)
	}
}

func TestToolsOffered(t *testing.T) {
	names := func(p *Policy) (out []string) {
		for _, t := range p.Tools().List() {
			out = append(out, t.Name)
		}
		return out
	}
	if got := names(policyOf(t, "", "")); len(got) != 12 {
		t.Errorf("%q", got)
	}
	if diff := cmp.Diff([]string{"run_code", "send_email"}, names(policyOf(t, "", mailTools))); diff != "" {
		t.Error(diff)
	}
	if got := names(policyOf(t, "tools: []", mailTools)); len(got) != 0 {
		t.Errorf("%q", got)
	}
	p := policyOf(t, "", `tools: [{name: count, command: [wc, -l, --, "{file}"], params: {type: object, properties: {file: {type: string}}, required: [file], additionalProperties: false}}]`)
	tool, ok := p.Tools().Lookup("count")
	if !ok || tool.Command == nil || len(tool.Output) == 0 {
		t.Fatal("a command is not offered")
	}
	if argv, err := tool.Command.Argv(map[string]any{"file": "-x"}); err != nil || !slices.Equal(argv, []string{"wc", "-l", "--", "-x"}) {
		t.Errorf("%q, %v", argv, err)
	}
}

// What is marked stands in no record and in no verdict.
func TestToolRedaction(t *testing.T) {
	p := policyOf(t, `tools: ["*", {name: send_email, redact: [headers/auth], params: {type: object}}]`, mailTools)
	c := toolCall(t, "send_email", `{"to":"a@company.com","key":"hunter2","headers":[{"auth":"hunter2","x":"y"}]}`)
	b, _ := json.Marshal(p.ToolRecord(c.Tool))
	if got := string(b); strings.Contains(got, "hunter2") || !strings.Contains(got, `"x":"y"`) || strings.Count(got, Redacted) != 2 {
		t.Errorf("recorded: %s", got)
	}
	if v := p.Decide(c); strings.Contains(v.Reason, "hunter2") || !strings.Contains(v.Reason, "/key") {
		t.Errorf("%+v", v)
	}
	c = toolCall(t, "run_command", `{"command":"x","env":{"TOKEN":"hunter2"}}`)
	b, _ = json.Marshal(p.ToolRecord(c.Tool))
	if got := string(b); strings.Contains(got, "hunter2") || !strings.Contains(got, "TOKEN") {
		t.Errorf("variables are recorded: %s", got)
	}
	if c.Tool.Args.(map[string]any)["env"].(map[string]any)["TOKEN"] != "hunter2" {
		t.Error("the call itself was changed")
	}
	testMarkedObjects(t)
	// A rule of a layer that marks nothing fails with the value that another marks.
	const rule = `tools: [{name: send_email, params: {type: object}, rules: ["email.domain(params.key) == 'x'"]}]`
	const marks = `tools: [{name: send_email, params: {type: object}, redact: [key]}]`
	for _, layers := range [][2]string{{rule, marks}, {marks, rule}} {
		v := policyOf(t, layers[0], layers[1]).Decide(toolCall(t, "send_email", `{"key":"hunter2"}`))
		if v.Decision != Deny || strings.Contains(v.Reason, "hunter2") {
			t.Errorf("%+v", v)
		}
	}
	for _, s := range []string{`{name: run_command, redact: [command]}`, `{name: run_code, redact: [env, code]}`, `{name: "*", redact: [path]}`} {
		if _, err := Parse("/w/p.yaml", []byte("version: 1\ntools: ["+s+"]\n")); err == nil || !strings.Contains(err.Error(), "cannot be marked") {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// testMarkedObjects: names within what is marked are marked; only those of variables are
// recorded, unless env itself is marked.
func testMarkedObjects(t *testing.T) {
	t.Helper()
	const schema = `{type: object, properties: {list: {type: array}, secret: {type: object, additionalProperties: {type: integer}}}}`
	p := policyOf(t, "", `tools: [{name: keep, params: `+schema+`, redact: [secret, list/auth]}, {name: run_code, redact: [env]}]`)
	for _, c := range []struct{ name, args, want string }{
		{"keep", `{"secret":{"TOPSECRET6":1}}`, `{"secret":"[redacted]"}`},
		{"keep", `{"list":[{"auth":{"TOPSECRET6":1},"x":"y"}]}`, `{"list":[{"auth":"[redacted]","x":"y"}]}`},
		{"run_code", `{"code":"1","language":"sh","env":{"TOPSECRET6":"x"}}`, `{"code":"1","env":"[redacted]","language":"sh"}`},
		{"run_command", `{"command":"x","env":{"TOKEN":"x"}}`, `{"command":"x","env":{"TOKEN":"[redacted]"}}`},
	} {
		b, _ := json.Marshal(p.ToolRecord(toolCall(t, c.name, c.args).Tool))
		if got := string(b); got != c.want {
			t.Errorf("recorded of %s: %s", c.name, got)
		}
	}
	v := p.Decide(toolCall(t, "keep", `{"secret":{"TOPSECRET6":"x"}}`))
	if v.Decision != Deny || strings.Contains(v.Reason, "TOPSECRET6") || !strings.Contains(v.Reason, "/secret: it does not fit") {
		t.Errorf("%+v", v)
	}
	for _, c := range []struct {
		mark, path string
		parts      int
	}{
		{"secret", "secret", 1}, {"secret", "secret/x", 1}, {"list/auth", "list/0/auth/x", 3}, {"list/auth", "list/0/1/auth", 4},
		{"secret", "other", 0}, {"list/auth", "list", 0}, {"list/auth", "list/0/x", 0},
	} {
		parts, ok := secretPath{at: splitPath(c.mark)}.covers(splitPath(c.path))
		if ok != (c.parts > 0) || ok && parts != c.parts {
			t.Errorf("%s covers %s: %d, %v", c.mark, c.path, parts, ok)
		}
	}
}

// TestToolsInDigest: whatever an entry says is in the policy's digest.
func TestToolsInDigest(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{
		"", "tools: []", `tools: ["*"]`, "tools: [run_code]", "tools: [{name: run_code, rate: 1/s}]", "tools: [{name: run_code, rate: 2/s}]", "tools: [{name: run_code, approve: always}]",
		"tools: [{name: run_code, approve: never}]", "tools: [{name: run_code, approve: {when: 'true'}}]", "tools: [{name: run_code, rules: ['true']}]", "tools: [{name: run_code, redact: [content]}]",
		"tools: [{name: run_code, params: {type: object}}]", "tools: [{name: x, params: {type: object}}]", "tools: [{name: x, params: {type: object}, command: [ls]}]",
		"tools: [{name: x, params: {type: object}, title: T}]", "tools: [{name: x, params: {type: object}, description: T}]", "tools: [{name: run_code, rules: [{check: 'true', message: x}]}]",
	} {
		d := policyOf(t, "", s).Digest()
		if other, twice := seen[d]; twice {
			t.Errorf("%q and %q have one digest", s, other)
		}
		seen[d] = s
	}
}

// TestToolsAreBounded is attack case P07: arguments that take long elsewhere.
func TestToolsAreBounded(t *testing.T) {
	p := policyOf(t, "", `tools: [{name: t, params: {type: object, properties: {l: {type: array, items: {type: string}}}}, rules: ["params.l.all(a, params.l.all(b, a == b))"]}]`)
	args := fmt.Sprintf(`{"l":[%s"x"]}`, strings.Repeat(`"x",`, 19_000))
	before := used(t)
	if v := p.Decide(toolCall(t, "t", args)); v.Decision != Deny || !strings.Contains(v.Reason, "too long") {
		t.Errorf("%+v", v)
	}
	if took := used(t) - before; took > 20*time.Second { // some ten milliseconds
		t.Errorf("it took %v", took)
	}
}

func BenchmarkDecideTool(b *testing.B) {
	p := policyOf(b, "", `tools:
  - name: send_email
    params: {type: object, properties: {to: {type: string, format: email}, body: {type: string}, n: {type: integer}}, required: [to], additionalProperties: false}
    rules: ['email.domain(params.to) == "company.com"', "!has(params.n) || params.n < 10", "params.body.size() < 10000"]
    rate: 10/min`)
	benchDecide(b, p, `{"to":"a@company.com","body":"Hello there","n":3}`)
}

func BenchmarkDecideTool1000Rules(b *testing.B) {
	b.Run("of one tool", func(b *testing.B) {
		var rules strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&rules, "      - params.n != %d\n", i+10)
		}
		p := policyOf(b, "", "tools:\n  - name: send_email\n    params: {type: object, properties: {to: {type: string}, n: {type: integer}}, additionalProperties: false}\n    rules:\n"+rules.String())
		benchDecide(b, p, `{"to":"a@company.com","n":3}`)
	})
	b.Run("of 1000 tools", func(b *testing.B) {
		var tools strings.Builder
		tools.WriteString("tools:\n")
		for i := range 999 {
			fmt.Fprintf(&tools, "  - {name: t%d, params: {type: object, properties: {n: {type: integer}}}, rules: [params.n < 10]}\n", i)
		}
		tools.WriteString("  - {name: send_email, params: {type: object, properties: {n: {type: integer}}, additionalProperties: false}, rules: [params.n < 10], rate: 10/min}\n")
		benchDecide(b, policyOf(b, "", tools.String()), `{"n":3}`)
	})
}

func benchDecide(b *testing.B, p *Policy, args string) {
	src := []byte(args)
	p.Tools()
	for b.Loop() {
		v, err := params.Read(src)
		if err != nil {
			b.Fatal(err)
		}
		c := &Call{Kind: CallTool, Actor: "key:ci", Tool: &ToolCall{Name: "send_email", Args: v}}
		if v := p.Decide(c); v.Decision != Allow {
			b.Fatal(v)
		}
	}
}

func TestDecideRisk(t *testing.T) {
	const risky = "network: {allow: [pypi.org]}\nrisk: {high: [call.network]}"
	tool := func(name, args string) *Call { return toolCall(t, name, args) }
	for _, c := range []struct {
		system, file string
		call         *Call
		want         Decision
		says         string
	}{
		{"", risky, command(nil), Ask, "p.yaml:3 it is risky: call.network"},
		{"", risky, command(func(c *Call) { c.NoNetwork = true }), Allow, ""},
		{"", "risk: {high: [call.network], on_high: deny}", command(nil), Allow, ""},
		{"", "network: {allow: [pypi.org]}\nrisk: {high: [{check: call.network, message: it has a network}], on_high: deny}", command(nil), Deny, "it has a network"},
		{"", `risk: {high: ["tool.name == 'kill_sandbox'"]}`, tool("kill_sandbox", `{"sandbox_id":"x"}`), Ask, "kill_sandbox"},
		{"", `risk: {high: ["tool.name == 'kill_sandbox'"]}`, tool("list_sandboxes", `{}`), Allow, ""},
		{"", `risk: {high: ["has(params.cwd) && params.cwd == '/x'"]}`, tool("run_command", `{"command":"ls","cwd":"/x"}`), Ask, ""},
		{"", `risk: {high: ["has(params.cwd) && params.cwd == '/x'"]}`, command(nil), Allow, ""},
		{"", `risk: {high: ["call.argv[0] == 'rm'"]}`, command(func(c *Call) { c.Argv = []string{"rm"} }), Ask, ""},
		{"", `risk: {high: ["call.argv[5] == 'rm'"]}`, command(nil), Ask, ""}, // it cannot be told
		// The layer that refuses wins, whichever asks.
		{`risk: {high: ["true"], on_high: deny}`, `risk: {high: ["true"]}`, command(nil), Deny, "caisson/policy.yaml:2"},
		{`risk: {high: ["true"]}`, `risk: {high: ["true"], on_high: deny}`, command(nil), Deny, "/w/p.yaml:2"},
		{`risk: {high: ["true"]}`, ``, command(nil), Ask, "caisson/policy.yaml:2"},
	} {
		v := policyOf(t, c.system, c.file).Decide(c.call)
		if all := v.Rule + " " + v.Reason; v.Decision != c.want || !strings.Contains(all, c.says) {
			t.Errorf("%s | %s: %v: %s; want %v, %q", c.system, c.file, v.Decision, all, c.want, c.says)
		}
	}
	p := policyOf(t, "", `risk: {high: ["true"], on_high: deny}`)
	if v := p.DecideTool(tool("list_sandboxes", `{}`)); v.Decision != Allow {
		t.Errorf("the tool alone: %+v", v)
	}
	if a, b := policyOf(t, "", `risk: {high: ["true"]}`).Digest(), p.Digest(); a == b || a == policyOf(t, "", "").Digest() {
		t.Error("risk is not in the digest")
	}
}

// Where tools are listed, what a key starts without one is decided by the same list.
func TestListedToolsDecide(t *testing.T) {
	program := Call{Kind: RunCommand, Actor: "key:ci", Argv: []string{"ls"}}
	source := Call{Kind: RunCode, Actor: "key:ci", Language: "sh", Program: []string{"sh", "main.sh"}, Script: "ls"}
	for _, c := range []struct {
		system, file    string
		program, source string // what says no; empty is allowed
	}{
		{"", "", "", ""},
		{"", "limits: {wall: 1s}", "", ""},
		{"", "tools: [run_code]", "p.yaml:2: tool run_command is not listed", ""},
		{"", "tools: [run_command]", "", "tool run_code is not listed"},
		{"", "tools: []", "not listed", "not listed"},
		{"", `tools: ["*"]`, "", ""},
		{"", `tools: [{name: "*", approve: never}]`, "", ""},
		{"", `tools: [{name: "*", approve: always}, run_code]`, "more to say", ""},
		{"", "tools: [{name: run_command, rate: 1/min}, {name: run_code, rules: ['params.language == \"python\"']}]", "more to say", "more to say"},
		{"", "tools: [{name: run_command, approve: {when: 'true'}}, {name: run_code, redact: [content]}]", "more to say", "more to say"},
		{"", "tools: [{name: run_command, params: {type: object, properties: {command: {const: ls}}}}]", "more to say", "not listed"},
		// commands is the word that opens them.
		{"", "tools: []\ncommands: {allow: [ls]}", "", ""},
		{"", "tools: []\ncommands: {allow: [\"*\"]}", "", ""},
		{"", "tools: []\ncommands: {deny: [rm]}", "not listed", "not listed"},
		{"", "tools: []\ncommands: {allow: [cat]}", "among the commands", "among the commands"},
		// Each layer has its say.
		{"tools: [run_code]", "commands: {allow: [\"*\"]}", "/etc/caisson/policy.yaml:2: tool run_command", ""},
		{"tools: [run_code]\ncommands: {allow: [\"*\"]}", "tools: []", "p.yaml:2: tool run_command", "p.yaml:2: tool run_code"},
		{"tools: [\"*\"]", "tools: [run_command, run_code]", "", ""},
	} {
		for _, call := range []struct {
			Call
			says string
		}{{program, c.program}, {source, c.source}} {
			p := policyOf(t, c.system, c.file)
			v := p.Decide(&call.Call)
			said := v.Rule + ": " + v.Reason
			if (v.Decision == Allow) != (call.says == "") {
				t.Errorf("%q, %q, %s: %s, %s", c.system, c.file, call.Kind, v.Decision, said)
			}
			for part := range strings.SplitSeq(call.says, ": ") {
				if !strings.Contains(said, part) {
					t.Errorf("%q, %q, %s: %s, want %s", c.system, c.file, call.Kind, said, call.says)
				}
			}
			if strings.Contains(said, "listed") && !strings.Contains(v.Hint, "commands: {allow:") {
				t.Errorf("%q: the hint is %q", c.file, v.Hint)
			}
			// What a tool would do is the tool's, and the operator is no key.
			call.Operator = true
			if v := p.Decide(&call.Call); v.Decision == Deny && strings.Contains(v.Reason, "tool") {
				t.Errorf("%q, %q, %s of the operator: %s", c.system, c.file, call.Kind, v.Reason)
			}
		}
	}
	var said []string
	for _, c := range Explain(policyOf(t, "", "tools: [run_command]"), nil) {
		said = append(said, c.Value)
	}
	if s := strings.Join(said, "; "); !strings.Contains(s, "keys have no run_code without a tool") || strings.Contains(s, "no run_command") {
		t.Errorf("explain: %s", s)
	}
	// A sandbox is made all the same.
	if v := policyOf(t, "", "tools: []").Decide(&Call{Kind: StartSandbox, Actor: "key:ci"}); v.Decision != Allow {
		t.Errorf("a sandbox: %s", v.Reason)
	}
	greet := toolCall(t, "greet", `{}`)
	greet.Kind, greet.Argv = RunCommand, []string{"echo"}
	if v := policyOf(t, "", "tools: [{name: greet, params: {type: object}, command: [echo]}]").Decide(greet); v.Decision != Allow {
		t.Errorf("a declared tool: %s", v.Reason)
	}
}
