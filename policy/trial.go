// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool/params"
)

// Trial is a case of the section tests: a call, and what is to become of it.
type Trial struct {
	Wish
	At   Pos
	Name string
	Want Decision
}

// Wish is a call as people and programs write one down. Its Call lacks what
// only a frontend knows: the actor, and how the source is run (Program, Script).
type Wish struct {
	Call   Call
	Source string // of RunCode
	File   string // the name that the source has, where it is a file's
}

// ParseCall reads a call that is written as JSON, or as YAML, in the words of a
// policy file: {"argv": ["git", "push"]}, or {"language": "bash", "code": "ls"}.
// It is as strict as [Parse] is.
func ParseCall(src []byte) (w Wish, err error) {
	d := &decoder{file: &File{Name: "call", limitsAt: map[sandbox.LimitName]Pos{}}}
	defer func() {
		if p := recover(); p != nil {
			d.fault(Pos{1, 1}, "report this with the call", "reading it failed: %v", p)
			w, err = Wish{}, d.err()
		}
	}()
	if root := d.load(src); root != nil {
		w = d.wish(root)
	}
	if err := d.err(); err != nil {
		return Wish{}, err
	}
	return w, nil
}

// maxTests is how many cases a file has: each may have a text read in a sandbox.
const maxTests = 1000

// trials reads the section tests.
func (d *decoder) trials(n *yaml.Node) {
	d.list(n, "tests", func(n *yaml.Node) {
		if len(d.file.Tests) == maxTests {
			d.fault(at(n), "spread them over several files", "there are more than %d tests", maxTests)
			return
		}
		t := Trial{At: at(n)}
		d.mapping(n, "a test", d.trialFields(&t))
		for _, key := range []string{"call", "want"} {
			if n.Kind == yaml.MappingNode && !hasKey(n, key) {
				d.fault(at(n), `write {call: {argv: [git, push]}, want: deny}`, "a test has no %s", key)
			}
		}
		d.file.Tests = append(d.file.Tests, t)
	})
}

func (d *decoder) trialFields(t *Trial) []field {
	return []field{
		{"name", func(n *yaml.Node) { t.Name = d.text(n, "name", func(string) error { return nil }).V }},
		{"call", func(n *yaml.Node) { t.Wish = d.wish(n) }},
		{"want", func(n *yaml.Node) {
			switch d.text(n, "want", oneOf("allow", "deny", "ask")).V {
			case "allow":
				t.Want = Allow
			case "ask":
				t.Want = Ask
			}
		}},
	}
}

// wish reads a call.
func (d *decoder) wish(n *yaml.Node) Wish {
	w := Wish{Call: Call{Operator: true}}
	// The keys of limits write into the decoder's file: this call has its own.
	sub := &decoder{file: &File{Name: d.file.Name, limitsAt: map[sandbox.LimitName]Pos{}}}
	sub.mapping(n, "a call", sub.wishFields(&w))
	w.Call.Limits = sub.file.Limits
	switch {
	case n.Kind != yaml.MappingNode:
	case hasKey(n, "code") != hasKey(n, "language"):
		sub.fault(at(n), "write language: bash, code: …", "code and language go together")
	case hasKey(n, "params") && !hasKey(n, "tool"):
		sub.fault(at(n), "write tool: NAME, params: {…}", "params are of a tool")
	case hasKey(n, "tool"):
		w.Call.Kind = CallTool
		if w.Call.Tool != nil && w.Call.Tool.Args == nil {
			w.Call.Tool.Args = map[string]any{}
		}
		if hasKey(n, "argv") || hasKey(n, "code") {
			sub.fault(at(n), "write the tool and its params alone", "a call of a tool says nothing else that runs")
		}
	case hasKey(n, "code"):
		w.Call.Kind = RunCode
	default:
		w.Call.Kind = RunCommand
	}
	d.faults = append(d.faults, sub.faults...)
	return w
}

func (d *decoder) wishFields(w *Wish) []field {
	c := &w.Call
	some := func(what string) func(string) error {
		return func(s string) error {
			if strings.ContainsRune(s, 0) {
				return invalid("", "%s has a NUL byte", what)
			}
			return nil
		}
	}
	text := func(name string, to *string, check func(string) error) field {
		return field{name, func(n *yaml.Node) { *to = d.text(n, name, check).V }}
	}
	list := func(name string, to *[]string, check func(string) error) field {
		return field{name, func(n *yaml.Node) { *to = texts(d.texts(n, name, check)) }}
	}
	flag := func(name string, to *bool) field {
		return field{name, func(n *yaml.Node) { *to = d.boolean(n, name).V }}
	}
	called := func() *ToolCall {
		if c.Tool == nil {
			c.Tool = &ToolCall{}
		}
		return c.Tool
	}
	return []field{
		{"tool", func(n *yaml.Node) { called().Name = d.text(n, "tool", some("tool")).V }},
		{"params", func(n *yaml.Node) { called().Args = d.arguments(n) }},
		{"actor", func(n *yaml.Node) { c.Actor = d.text(n, "actor", some("actor")).V }},
		list("argv", &c.Argv, some("argv")), text("language", &c.Language, some("language")), text("code", &w.Source, some("code")),
		text("file", &w.File, some("file")), text("cwd", &c.Cwd, some("cwd")),
		{"env", func(n *yaml.Node) {
			c.Env = map[string]string{}
			for key, value := range d.pairs(n, "env") {
				c.Env[key.Value] = d.text(value, "env."+key.Value, checkEnvValue).V
			}
		}},
		text("isolation", &c.Isolation, isLevel), text("image", &c.Image, checkImage),
		list("network", &c.Network, checkAllow), list("writable", &c.Writable, checkTarget),
		{"limits", func(n *yaml.Node) { d.mapping(n, "limits", d.limits()) }},
		flag("terminal", &c.Terminal), flag("root", &c.Root), flag("best_effort", &c.BestEffort), flag("operator", &c.Operator),
	}
}

// arguments reads the arguments of a tool, as strictly as a frontend does.
func (d *decoder) arguments(n *yaml.Node) any {
	var v any
	if !d.allPlain(n) {
		return nil
	}
	err := n.Decode(&v)
	var b []byte
	if err == nil {
		b, err = json.Marshal(v)
	}
	if err == nil {
		v, err = params.Read(b)
	}
	if err != nil {
		d.fault(at(n), "", "params: %v", err)
		return nil
	}
	return v
}
