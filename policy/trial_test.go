// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"
	"time"
)

func TestParseCall(t *testing.T) {
	w, err := ParseCall([]byte(`{"language":"bash","code":"ls\n\u00e9","env":{"A":"b"},"limits":{"wall":"2s"},"network":["pypi.org"],"operator":false}`))
	if err != nil {
		t.Fatal(err)
	}
	c := w.Call
	if c.Kind != RunCode || w.Source != "ls\né" || c.Env["A"] != "b" || c.Limits.Wall != 2*time.Second || !c.Limits.Explicit["wall"] || c.Operator || len(c.Network) != 1 {
		t.Errorf("%+v", w)
	}
	for _, src := range []string{
		``, `[]`, `{}x`, `{"argv":["ls"],"argv":["rm"]}`, `{"approved":true}`, `{"mounts":[]}`, `{"argv":[1]}`, `{"argv":["a\u0000"]}`, `{"code":"x"}`, `{"argv":null}`,
	} {
		if w, err := ParseCall([]byte(src)); err == nil {
			t.Errorf("%s is taken: %+v", src, w)
		}
	}
}

// A file has a number of cases.
func TestManyTrials(t *testing.T) {
	const one = "  - {call: {argv: [ls]}, want: allow}\n"
	head := "version: 1\ntests:\n"
	if _, err := Parse("p.yaml", []byte(head+strings.Repeat(one, maxTests))); err != nil {
		t.Error(err)
	}
	if _, err := Parse("p.yaml", []byte(head+strings.Repeat(one, maxTests+1))); err == nil || !strings.Contains(err.Error(), "more than 1000 tests") {
		t.Error(err)
	}
}

// FuzzParseCall: no call makes it panic, and what it takes can be decided.
func FuzzParseCall(f *testing.F) {
	f.Add([]byte(`{"argv":["git","push"],"terminal":true}`))
	f.Add([]byte(`{"language":"bash","code":"ls","limits":{"wall":"1s"}}`))
	f.Add([]byte("argv: [ls]\nenv: {A: b}"))
	p := policyOf(f, "", "commands: {allow: [ls], deny: [rm]}")
	f.Fuzz(func(t *testing.T, src []byte) {
		if w, err := ParseCall(src); err == nil {
			p.Decide(&w.Call)
		}
	})
}
