// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func p(s string) *string { return &s }
func n(i int) *int       { return &i }

func TestApply(t *testing.T) {
	for name, c := range map[string]struct {
		e         Edit
		old, want string // want "!" is an error
	}{
		"replaced":            {Edit{Command: "str_replace", Old: p("b"), New: p("x")}, "abc", "axc"},
		"taken out":           {Edit{Command: "str_replace", Old: p("b")}, "abc", "ac"},
		"not there":           {Edit{Command: "str_replace", Old: p("z"), New: p("x")}, "abc", "!"},
		"there twice":         {Edit{Command: "str_replace", Old: p("b"), New: p("x")}, "abcb", "!"},
		"no pattern":          {Edit{Command: "str_replace", Old: p("a.c"), New: p("$1")}, "a.c abc", "$1 abc"},
		"before all":          {Edit{Command: "insert", Line: n(0), Inserted: p("x")}, "a\nb\n", "x\na\nb\n"},
		"behind all":          {Edit{Command: "insert", Line: n(2), Inserted: p("x\n")}, "a\nb\n", "a\nb\nx\n"},
		"behind no line end":  {Edit{Command: "insert", Line: n(2), Inserted: p("x")}, "a\nb", "a\nb\nx\n"},
		"into an empty file":  {Edit{Command: "insert", Line: n(0), Inserted: p("x")}, "", "x\n"},
		"behind what is not":  {Edit{Command: "insert", Line: n(3), Inserted: p("x")}, "a\nb\n", "!"},
		"nothing is inserted": {Edit{Command: "insert", Line: n(1), Inserted: p("")}, "a\nb\n", "a\nb\n"},
		"created":             {Edit{Command: "create", Text: p("x")}, "", "x"},
	} {
		got, err := c.e.Apply(c.old)
		if (err != nil) != (c.want == "!") || err == nil && got != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, c := range map[string][3]string{
		"all":             {``, "a\nb\n", "     1\ta\n     2\tb\n"},
		"the end":         {`[2,-1]`, "a\nb\nc", "     2\tb\n     3\tc\n"},
		"beyond the end":  {`[2,9]`, "a\nb", "     2\tb\n"},
		"all beyond":      {`[3,4]`, "a\nb", "!"},
		"nothing to view": {``, "", "     1\t\n"},
	} {
		e := &Edit{Command: "view"}
		if c[0] != "" {
			json.Unmarshal([]byte(c[0]), &e.Range)
		}
		got, err := e.View(c[1])
		if (err != nil) != (c[2] == "!") || err == nil && got != c[2] {
			t.Errorf("view %s: %q, %v", name, got, err)
		}
	}
}

func TestReadEdit(t *testing.T) {
	for _, bad := range []string{``, `{}`, `{"command":"view"}`, `{"command":"rm","path":"/x"}`, `{"command":"view","path":"/x","view_range":[0,1]}`, `{"command":"view","path":"/x","view_range":[5,2]}`,
		`{"command":"view","path":"/x","view_range":[1]}`, `{"command":"create","path":"/x"}`, `{"command":"str_replace","path":"/x","old_str":""}`, `{"command":"insert","path":"/x","insert_line":-1,"insert_text":"x"}`,
		`{"command":"insert","path":"/x","insert_text":"x"}`, `{"command":"undo_edit","path":"/x"}`, `{"command":"view","path":"/x","as":"root"}`, `[]`} {
		if e, err := ReadEdit(json.RawMessage(bad)); err == nil {
			t.Errorf("%s: %+v", bad, e)
		}
	}
	// Of an older version.
	if e, err := ReadEdit(json.RawMessage(`{"command":"insert","path":"/x","insert_line":1,"new_str":"y"}`)); err != nil || *e.Inserted != "y" {
		t.Error(e, err)
	}
}

// What a model writes is read or refused; what is answered is JSON that names the
// call, whatever the tool said.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		`{"type":"tool_use","id":"t","name":"bash","input":{"command":"ls"}}`, `{"type":"function_call","call_id":"c","name":"x","arguments":"{}"}`,
		`{"type":"function","id":"c","function":{"name":"x","arguments":"{}"}}`, `{"type":"shell_call","call_id":"c","action":{"commands":["a"],"max_output_length":1}}`,
		`{"type":"tool_use","id":"t","name":"str_replace_based_edit_tool","input":{"command":"insert","path":"/x","insert_line":0,"insert_text":"é"}}`,
	} {
		f.Add(s, "out é\n")
	}
	f.Fuzz(func(t *testing.T, text, out string) {
		c, err := ReadCall([]byte(text))
		if err != nil {
			return
		}
		for _, v := range []any{c.Result(Answer{Text: out, Failed: true}), c.ShellResult([]Ended{{Stdout: out, Stderr: out}})} {
			b, err := json.Marshal(v)
			id, _ := json.Marshal(c.ID)
			if err != nil || !strings.Contains(string(b), string(id)) {
				t.Errorf("%v: %s", err, b)
			}
		}
		if c.Shell != nil && c.Shell.MaxOutput != nil && utf8.ValidString(out) {
			b, _ := json.Marshal(c.ShellResult([]Ended{{Stdout: out, Stderr: out}}))
			var r struct {
				Output []struct{ Stdout, Stderr string }
			}
			json.Unmarshal(b, &r)
			if n := int64(utf8.RuneCountInString(r.Output[0].Stdout + r.Output[0].Stderr)); n > max(*c.Shell.MaxOutput, 0) {
				t.Errorf("%d characters of at most %d", n, *c.Shell.MaxOutput)
			}
		}
		e, err := ReadEdit(c.Args)
		if err != nil {
			return
		}
		if e.Command == "view" {
			e.View(out)
			return
		}
		e.Apply(out)
	})
}
