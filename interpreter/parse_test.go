// SPDX-License-Identifier: Apache-2.0

package interpreter_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/interpreter"
)

func TestParseEventRefuses(t *testing.T) {
	for name, line := range map[string]string{
		"nothing":           ``,
		"null":              `null`,
		"no JSON":           `{"type":"stdout"`,
		"no type":           `{"text":"x"}`,
		"a strange type":    `{"type":"exec"}`,
		"no number":         `{"type":"started"}`,
		"a negative number": `{"type":"started","count":-1}`,
		"no result":         `{"type":"display"}`,
		"no forms":          `{"type":"display","result":{"data":[1]}}`,
		"too many forms":    `{"type":"display","result":{"data":{` + strings.Repeat(`"a":1,`, 70) + `"b":1}}}`,
		"no error":          `{"type":"error"}`,
		"no end":            `{"type":"end"}`,
		"a strange end":     `{"type":"end","end":{"status":"fine"}}`,
		"a negative cut":    `{"type":"end","end":{"status":"ok","cut":-1}}`,
		"a relative file":   `{"type":"end","end":{"status":"ok","files":[{"path":"../x","size":1}]}}`,
		"a dirty file":      `{"type":"end","end":{"status":"ok","files":[{"path":"/a/../x","size":1}]}}`,
		"many files":        `{"type":"end","end":{"status":"ok","files":[` + strings.Repeat(`{},`, 2000) + `{}]}}`,
	} {
		if e, err := interpreter.ParseEvent([]byte(line)); err == nil {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// What it takes it gives as it was, within its bounds.
func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(`{"type":"started","time":"2026-01-02T03:04:05Z","count":1}`))
	f.Add([]byte(`{"type":"display","result":{"main":true,"data":{"text/plain":"1","application/json":{"a":[1]}}}}`))
	f.Add([]byte(`{"type":"error","error":{"name":"E","value":"v","traceback":"t"}}`))
	f.Add([]byte(`{"type":"end","end":{"status":"lost","reason":"killed","files":[{"path":"/a","size":1,"type":"text/csv"}],"more":true}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := interpreter.ParseEvent(line)
		if err != nil {
			return
		}
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := interpreter.ParseEvent(b); err != nil {
			t.Errorf("%s became %s: %v", line, b, err)
		}
	})
}

func TestChecks(t *testing.T) {
	for _, id := range []string{"", ".x", "a/b", "a b", strings.Repeat("a", 65), "a\x00"} {
		if interpreter.CheckID(id) == nil {
			t.Errorf("%q is an ID", id)
		}
	}
	for name, c := range map[string]interpreter.Cell{
		"relative directory": {Dir: "x"},
		"variable":           {Env: map[string]string{"A=B": ""}},
		"NUL in a variable":  {Env: map[string]string{"A": "\x00"}},
		"language":           {Language: "../../bin/sh"},
		"context":            {Context: "../x"},
		"timeout":            {Timeout: -1},
		"output":             {MaxOutput: -1},
	} {
		if c.Check() == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	if err := (&interpreter.Cell{Context: "a", Dir: "/x", Env: map[string]string{"A": "="}}).Check(); err != nil {
		t.Error(err)
	}
}
