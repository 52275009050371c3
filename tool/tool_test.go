// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool/params"
)

// What is built in is as well-formed as what others declare, and closed: an
// argument that is never read is refused.
func TestBuiltins(t *testing.T) {
	want := []string{"apply_changes", "create_sandbox", "keep_changes", "kill_sandbox", "list_changes", "list_files", "list_sandboxes", "read_file", "run_code", "run_command", "show_changes", "write_file"}
	adds := []string{"create_sandbox", "keep_changes"} // and changes nothing
	r, err := NewRegistry(Builtins()...)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range r.List() {
		names = append(names, b.Name)
		if _, err := New(b.Definition); err != nil {
			t.Error(err)
		}
		if _, err := params.Compile(b.Output); err != nil {
			t.Errorf("%s: output: %v", b.Name, err)
		}
		if b.Description == "" || b.Title == "" || b.ReadOnly == b.Destructive && !slices.Contains(adds, b.Name) {
			t.Errorf("%s: it does not say what it does: %+v", b.Name, b.Definition)
		}
		var s struct {
			Type                 string
			AdditionalProperties *bool
			Properties           map[string]struct{ Type, Description any }
		}
		if err := json.Unmarshal(b.Params, &s); err != nil || s.Type != "object" || s.AdditionalProperties == nil || *s.AdditionalProperties {
			t.Errorf("%s: its arguments are not closed", b.Name)
		}
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if _, ok := (&Registry{}).Lookup("run_code"); ok {
		t.Error("an empty registry has a tool")
	}
	if _, err := NewRegistry(Builtins()[0], Builtins()[0]); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("two of one name: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, d := range []Definition{
		{Name: "", Params: json.RawMessage(`{}`)}, {Name: "a b", Params: json.RawMessage(`{}`)}, {Name: "pаth", Params: json.RawMessage(`{}`)},
		{Name: strings.Repeat("a", 65), Params: json.RawMessage(`{}`)}, {Name: "a", Params: nil}, {Name: "a", Params: json.RawMessage(`{"type":1}`)},
		{Name: "a", Params: json.RawMessage(`{"$ref":"#"}`)},
	} {
		if _, err := New(d); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%q: %v", d.Name, err)
		}
	}
}

func TestCheck(t *testing.T) {
	b, ok := Builtin("run_code")
	if !ok {
		t.Fatal("no run_code")
	}
	for src, want := range map[string][]string{
		`{"code":"1","language":"python"}`:                 nil,
		`{"code":1,"language":"cobol","unsandboxed":true}`: {"", "/code", "/language"},
		`[]`: {""},
		`{}`: {""},
	} {
		v, err := params.Read([]byte(src))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range b.Check(v) {
			got = append(got, f.Path)
		}
		if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
			t.Errorf("%s: %s", src, diff)
		}
	}
}

func TestCommand(t *testing.T) {
	for _, c := range []struct {
		template []string
		args     string
		want     []string
		fault    string
	}{
		{[]string{"convert", "{in}", "--size={w}x{h}", "{{raw}}"}, `{"in":"a b; rm -rf /","w":3,"h":4.5}`, []string{"convert", "a b; rm -rf /", "--size=3x4.5", "{raw}"}, ""},
		{[]string{"cat", "--", "{files...}"}, `{"files":["-n","$(id)"]}`, []string{"cat", "--", "-n", "$(id)"}, ""},
		{[]string{"cat", "{files...}"}, `{"files":[]}`, []string{"cat"}, ""},
		{[]string{"cat", "{file}"}, `{}`, []string{"cat"}, ""},
		{[]string{"x", "{b}"}, `{"b":true}`, []string{"x", "true"}, ""},
		{[]string{"x", "-{b}"}, `{"b":"rf"}`, []string{"x", "-rf"}, ""}, // the template's own word
		{[]string{"x", "{b}"}, `{"b":""}`, []string{"x", ""}, ""},
		// What a program would read as an option.
		{[]string{"git", "log", "{rev}"}, `{"rev":"--output=/etc/x"}`, nil, "option"},
		{[]string{"x", "{a}{b}"}, `{"a":"","b":"-rf"}`, nil, "option"},
		{[]string{"x", "{n}"}, `{"n":-1}`, nil, "option"},
		{[]string{"cat", "{files...}"}, `{"files":["a","-n"]}`, nil, "option"},
		// -o would take the -- that is to end the options.
		{[]string{"x", "-o", "{out}", "--", "{in}"}, `{"in":"-rf"}`, nil, "option"},
		{[]string{"x", "-o", "{out...}", "--", "{in}"}, `{"out":[],"in":"-rf"}`, nil, "option"},
		{[]string{"x", "-o", "{out}", "--", "{in}"}, `{"in":"a"}`, []string{"x", "-o", "--", "a"}, ""},
		{[]string{"x", "-o", "{out}", "--", "{in}"}, `{"out":"o","in":"-rf"}`, []string{"x", "-o", "o", "--", "-rf"}, ""},
		{[]string{"x", "{out}", "--", "{in}"}, `{"in":"-rf"}`, []string{"x", "--", "-rf"}, ""},
		{[]string{"x", "a{b}"}, `{}`, nil, "not given"},
		{[]string{"x", "{b}"}, `{"b":{"c":1}}`, nil, "neither"},
		{[]string{"x", "{b}"}, `{"b":null}`, nil, "neither"},
		{[]string{"x", "{b...}"}, `{"b":"c"}`, nil, "not a list"},
	} {
		cmd, err := ParseCommand(c.template)
		if err != nil {
			t.Fatal(err)
		}
		v, err := params.Read([]byte(c.args))
		if err != nil {
			t.Fatal(err)
		}
		got, err := cmd.Argv(v.(map[string]any))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q with %s: %s", c.template, c.args, diff)
		}
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%q with %s: %v, want %q", c.template, c.args, err, c.fault)
		}
	}
	if _, err := argvOf(t, []string{"x", "{a}"}).Argv(map[string]any{"a": "b\x00c"}); err == nil {
		t.Error("a NUL byte is taken")
	}
}

func argvOf(t *testing.T, template []string) *Command {
	t.Helper()
	c, err := ParseCommand(template)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestParseCommandRefuses(t *testing.T) {
	for _, template := range [][]string{
		nil, {}, {""}, {"{program}"}, {"/bin/{x}", "a"}, {"sh", "-c", "{line}"}, {"/usr/bin/env", "{a}"}, {"busybox", "sh", "-c", "{a}"},
		{"x", "{"}, {"x", "}"}, {"x", "{a b}"}, {"x", "{}"}, {"x", "a{list...}"}, {"x", "a\x00"}, {"x", "{a..}"},
	} {
		if _, err := ParseCommand(template); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%q: %v", template, err)
		}
	}
	if got := argvOf(t, []string{"x", "{a}{b}", "{a...}"}).Arguments(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("arguments %q", got)
	}
	argvOf(t, []string{"sh", "-c", "echo fixed"}) // its author's own words
}

// FuzzCommand: whatever a template and a value are, the value stays in its
// element, and a program that takes options gets none from it.
func FuzzCommand(f *testing.F) {
	f.Add("--size={a}x", "3")
	f.Add("{a}", "-rf")
	f.Add("{{{a}}}", "b")
	f.Fuzz(func(t *testing.T, element, value string) {
		c, err := ParseCommand([]string{"program", element, "last"})
		if err != nil {
			return
		}
		argv, err := c.Argv(map[string]any{"a": value})
		if err != nil {
			return
		}
		if len(argv) < 2 || len(argv) > 3 || argv[0] != "program" || argv[len(argv)-1] != "last" {
			t.Fatalf("%q with %q: %q", element, value, argv)
		}
		if len(argv) == 3 && strings.HasPrefix(element, "{a}") && strings.HasPrefix(argv[1], "-") {
			t.Fatalf("%q with %q gives an option: %q", element, value, argv)
		}
	})
}

// Each format has every tool, with the schema that is checked.
func TestExport(t *testing.T) {
	tools := Builtins()
	for _, format := range Formats() {
		text, err := Export(tools, format)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		if m, ok := v.(map[string]any); ok {
			v = m["tools"]
		}
		list, _ := v.([]any)
		if len(list) != len(tools) {
			t.Errorf("%s has %d tools", format, len(list))
		}
		for i, one := range list {
			m := one.(map[string]any)
			if f, ok := m["function"].(map[string]any); ok {
				m = f
			}
			var want any
			json.Unmarshal(tools[i].Params, &want)
			var got any
			for _, key := range []string{"parameters", "input_schema", "inputSchema"} {
				if s, ok := m[key]; ok {
					got = s
				}
			}
			if m["name"] != tools[i].Name || m["description"] != tools[i].Description || !cmp.Equal(got, want) {
				t.Errorf("%s: %v", format, m)
			}
		}
	}
	if text, err := Export(nil, "mcp"); err != nil || !strings.Contains(string(text), `"tools": []`) {
		t.Errorf("none: %s, %v", text, err)
	}
	if _, err := Export(nil, "x"); !errors.Is(err, sandbox.ErrInvalid) {
		t.Error(err)
	}
}
