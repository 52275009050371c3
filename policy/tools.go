// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/policy/expr"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/tool/params"
)

// Tools is the section tools: what may be called, with which arguments, how often,
// and what a person has to say yes to. Where no layer has it, the tools that are
// built in may be called, which do nothing that the rest of the policy does not
// allow; where one has it, those that it lists, and no other.
type Tools struct {
	At   Pos
	List []*ToolRule
}

// ToolRule is one entry of tools.
type ToolRule struct {
	At   Pos
	Name string // or *: every tool that is built in and has no entry of its own

	// Title and Description are for who is offered the tool; Params is a JSON Schema
	// that arguments have to fit, besides the tool's own.
	Title, Description Value[string]
	Params             Value[json.RawMessage]
	// Command makes it a tool that runs a program in a sandbox.
	Command Value[[]Value[string]]
	// HTTP makes it one that makes a request, from a sandbox of its own.
	HTTP Value[tool.HTTPSpec]

	Rules   []Condition
	Rates   []Value[CallRate]
	Approve Value[string] // always or never
	When    *Condition    // ask when it holds
	// Channels may answer; nil is those of approvals.
	Channels []string
	Redact   []Value[string]

	schema  *params.Schema // of Params
	command *tool.Command
	http    *tool.HTTP
	shape   *expr.Params // what conditions see
}

// Condition is a CEL expression over the call.
type Condition struct {
	Value[string]
	Message string // what people are told; empty is the condition
	expr    *expr.Expr
}

const (
	approveAlways = "always"
	approveNever  = "never"
	maxTools      = 2000
	maxConditions = 1000 // of one tool
)

// tools reads the section.
func (d *decoder) tools(n *yaml.Node) {
	t := &d.file.Tools
	t.At = d.key
	seen := map[string]Pos{}
	d.list(n, "tools", func(n *yaml.Node) {
		if len(t.List) == maxTools {
			d.fault(at(n), "", "tools has more than %d entries", maxTools)
			return
		}
		r := &ToolRule{At: at(n)}
		if n.Kind == yaml.MappingNode {
			d.mapping(n, "a tool", d.toolFields(r))
			if r.Name == "" && !hasKey(n, "name") {
				d.fault(at(n), "write name: run_code", "a tool has no name")
			}
			d.completeTool(n, r)
		} else {
			r.Name = d.text(n, "tools", checkListedTool).V
			d.known(n, r)
		}
		if r.Name == "" {
			return
		}
		if p, twice := seen[r.Name]; twice {
			d.fault(at(n), "keep one of them", "%s is already in line %d", quote(r.Name), p.Line)
			return
		}
		seen[r.Name] = r.At
		t.List = append(t.List, r)
	})
}

// checkListedTool takes a tool's name, or *. Tools of servers may have dots.
func checkListedTool(s string) error {
	if s == "*" {
		return nil
	}
	return checkToolName(s)
}

func (d *decoder) toolFields(r *ToolRule) []field {
	some := func(string) error { return nil }
	return []field{
		{"name", func(n *yaml.Node) { r.Name = d.text(n, "name", checkListedTool).V }},
		{"title", func(n *yaml.Node) { r.Title = d.text(n, "title", some) }},
		{"description", func(n *yaml.Node) { r.Description = d.text(n, "description", some) }},
		{"params", func(n *yaml.Node) {
			if r.Params = d.paramsSchema(n); r.Params.Said() {
				r.schema, _ = params.Compile(r.Params.V) // paramsSchema did
			}
		}},
		{"command", func(n *yaml.Node) {
			r.Command = Value[[]Value[string]]{d.texts(n, "command", checkWord), at(n)}
			var err error
			if r.command, err = tool.ParseCommand(texts(r.Command.V)); err != nil {
				d.refused(n, "command", err)
			}
		}},
		{"http", func(n *yaml.Node) {
			before := len(d.faults)
			r.HTTP.At = at(n)
			d.mapping(n, "http", d.httpFields(&r.HTTP.V))
			if n.Kind != yaml.MappingNode || len(d.faults) > before {
				return
			}
			var err error
			if r.http, err = tool.ParseHTTP(r.HTTP.V); err == nil {
				err = checkAllow(r.http.Endpoint())
			}
			if err != nil {
				d.fault(at(n), sandbox.Hint(err), "%s", problemOf(err))
			}
		}},
		{"rules", func(n *yaml.Node) {
			d.list(n, "rules", func(n *yaml.Node) {
				if len(r.Rules) < maxConditions {
					r.Rules = append(r.Rules, d.condition(n, "a rule"))
				} else {
					d.fault(at(n), "", "a tool has more than %d rules", maxConditions)
				}
			})
		}},
		{"rate", func(n *yaml.Node) {
			if n.Kind != yaml.SequenceNode {
				r.Rates = append(r.Rates, d.rate(n, "rate"))
				return
			}
			d.list(n, "rate", func(n *yaml.Node) { r.Rates = append(r.Rates, d.rate(n, "rate")) })
		}},
		{"approve", func(n *yaml.Node) {
			if n.Kind == yaml.MappingNode {
				d.mapping(n, "approve", d.approveFields(r))
				if !hasKey(n, "when") {
					r.Approve = Value[string]{approveAlways, at(n)}
				}
				return
			}
			r.Approve = d.text(n, "approve", oneOf(approveAlways, approveNever))
		}},
		{"redact", func(n *yaml.Node) { r.Redact = d.texts(n, "redact", checkRedact) }},
	}
}

// httpFields are the keys of a declared request.
func (d *decoder) httpFields(s *tool.HTTPSpec) []field {
	some := func(string) error { return nil }
	return []field{
		{"method", func(n *yaml.Node) { s.Method = d.text(n, "method", some).V }},
		{"url", func(n *yaml.Node) { s.URL = d.text(n, "url", some).V }},
		{"headers", func(n *yaml.Node) {
			s.Headers = map[string]string{}
			var fields []field
			if n.Kind == yaml.MappingNode {
				for i := 0; i+1 < len(n.Content); i += 2 {
					name := n.Content[i].Value
					fields = append(fields, field{name, func(n *yaml.Node) { s.Headers[name] = d.text(n, "headers", some).V }})
				}
			}
			d.mapping(n, "headers", fields)
		}},
		{"body", func(n *yaml.Node) { s.Body = d.text(n, "body", oneOf("json", "form")).V }},
		{"response", func(n *yaml.Node) {
			d.value(n, "response", scalarTextOrInt, func(t string) (err error) { s.Response, err = ParseSize(t); return err })
		}},
		{"timeout", func(n *yaml.Node) {
			d.value(n, "timeout", scalarText, func(t string) (err error) { s.Timeout, err = ParseDuration(t); return err })
		}},
		{"redirects", func(n *yaml.Node) {
			d.value(n, "redirects", scalarInt, func(t string) (err error) {
				if s.Redirects, err = strconv.Atoi(t); err != nil {
					err = invalid("write a number up to 10", "%s is no number", quote(t))
				}
				return err
			})
		}},
	}
}

// problemOf is an error without what it was about.
func problemOf(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Problem
	}
	return err.Error()
}

func (d *decoder) approveFields(r *ToolRule) []field {
	return []field{
		{"when", func(n *yaml.Node) { c := d.condition(n, "when"); r.When = &c }},
		{"channels", func(n *yaml.Node) { r.Channels = texts(d.texts(n, "channels", oneOf(Channels()...))) }},
	}
}

// condition reads a condition, or one with a message. What it says is compiled
// when the whole entry is known.
func (d *decoder) condition(n *yaml.Node, what string) (c Condition) {
	some := func(string) error { return nil }
	if n.Kind != yaml.MappingNode {
		c.Value = d.text(n, what, some)
		return c
	}
	d.mapping(n, what, []field{
		{"check", func(n *yaml.Node) { c.Value = d.text(n, "check", some) }},
		{"message", func(n *yaml.Node) { c.Message = d.text(n, "message", some).V }},
	})
	if !hasKey(n, "check") {
		d.fault(at(n), `write {check: 'params.n < 10', message: "…"}`, "%s has no check", what)
	}
	return c
}

// known says whether an entry that is only a name, or that declares nothing, can be
// of a tool: one that is built in, or one of an upstream server, which says what
// its arguments are.
func (d *decoder) known(n *yaml.Node, r *ToolRule) {
	if r.Name == "" || r.Name == "*" || r.Params.Said() || r.Command.Said() || r.HTTP.Said() {
		return
	}
	if _, ok := tool.Builtin(r.Name); ok {
		return
	}
	names := []string{"*"}
	for _, t := range tool.Builtins() {
		names = append(names, t.Name)
	}
	hint := "give it params, a JSON Schema; built in are " + quote(names[1]) + " and others: caisson tools ls"
	if near := nearest(r.Name, names); near != "" {
		hint = didYouMean(r.Name, names) + " Else give it params, a JSON Schema"
	}
	d.fault(at(n), hint, "tool %s is not built in, and its arguments are not said", quote(r.Name))
}

// completeTool looks at an entry as a whole, and compiles its conditions.
func (d *decoder) completeTool(n *yaml.Node, r *ToolRule) {
	d.known(n, r)
	builtIn, isBuiltin := tool.Builtin(r.Name)
	for _, m := range r.Redact {
		if (isBuiltin || r.Name == "*") && m.V != "env" && m.V != "content" {
			d.fault(m.At, "caisson audit redact takes what is recorded out again", "%s of a tool that is built in is recorded besides its arguments, and cannot be marked", quote(m.V))
		}
	}
	switch {
	case r.Name == "*" && (r.Params.Said() || r.Command.Said() || r.HTTP.Said() || r.Title.Said() || r.Description.Said()):
		d.fault(at(n), "give the tool an entry of its own", "an entry for every tool describes none")
	case isBuiltin && r.Command.Said():
		d.fault(r.Command.At, "choose another name", "tool %s is built in, and runs what it runs", quote(r.Name))
	case r.Command.Said() && tool.CheckName(r.Name) != nil:
		d.fault(at(n), "use letters, digits, _ and -", "models cannot call a tool of the name %s", quote(r.Name))
	case isBuiltin && r.HTTP.Said():
		d.fault(r.HTTP.At, "choose another name", "tool %s is built in, and does what it does", quote(r.Name))
	case r.HTTP.Said() && r.Command.Said():
		d.fault(r.HTTP.At, "declare a tool for each", "tool %s runs a command and makes a request", quote(r.Name))
	case r.HTTP.Said() && tool.CheckName(r.Name) != nil:
		d.fault(r.HTTP.At, "use letters, digits, _ and -", "models cannot call a tool of the name %s", quote(r.Name))
	case r.http != nil && !r.Params.Said():
		d.fault(r.HTTP.At, "write params: {type: object, additionalProperties: false, properties: {…}}", "a request needs the schema of its arguments")
	case r.command != nil && !r.Params.Said():
		d.fault(r.Command.At, "write params: {type: object, additionalProperties: false, properties: {…}}", "a command needs the schema of its arguments")
	}
	switch {
	case r.Params.Said():
		r.shape = expr.ParamsOf(r.Params.V)
		if !objects(r.Params.V) {
			d.fault(r.Params.At, "write params: {type: object, …}", "the arguments of a tool are an object")
		}
	case isBuiltin:
		r.shape = expr.ParamsOf(builtIn.Params)
	}
	d.commandArguments(r)
	for i := range r.Rules {
		d.compile(&r.Rules[i], r.shape)
	}
	if r.When != nil {
		d.compile(r.When, r.shape)
	}
}

// objects says whether a schema takes objects alone.
func objects(schema []byte) bool {
	var s struct{ Type any }
	return json.Unmarshal(schema, &s) == nil && s.Type == "object"
}

// commandArguments: each place of a template is an argument that the schema knows.
func (d *decoder) commandArguments(r *ToolRule) {
	var names []string
	what, pos := "command", r.Command.At
	switch {
	case !r.Params.Said():
	case r.command != nil:
		names = r.command.Arguments()
	case r.http != nil:
		names, what, pos = r.http.Arguments(), "request", r.HTTP.At
	}
	var s struct{ Properties map[string]json.RawMessage }
	_ = json.Unmarshal(r.Params.V, &s) // it was compiled
	for _, name := range names {
		if _, ok := s.Properties[name]; !ok {
			d.fault(pos, "add it to the properties of params", "the %s has a place for %s, which is no argument", what, quote(name))
		}
	}
}

// compile reads what a condition says.
func (d *decoder) compile(c *Condition, shape *expr.Params) {
	if !c.Said() {
		return
	}
	var err error
	c.expr, err = expr.Compile(c.V, shape)
	d.conditionFaults(c, err)
}

// conditionFaults notes what is wrong with a condition, where it stands.
func (d *decoder) conditionFaults(c *Condition, err error) {
	if err == nil {
		return
	}
	faults, ok := err.(expr.Faults)
	if !ok {
		faults = expr.Faults{{Line: 1, Column: 1, Problem: err.Error()}}
	}
	for _, f := range faults {
		d.fault(d.within(c.At, f), "conditions are CEL over params, tool and call; see docs/tools.md", "%s", f.Problem)
	}
}

// within is the place of a fault in a text that begins at p. It is exact for what
// stands in one line.
func (d *decoder) within(p Pos, f expr.Fault) Pos {
	if f.Line > 1 {
		return Pos{p.Line + f.Line - 1, f.Column}
	}
	return Pos{p.Line, p.Column + f.Column - 1 + d.quoteAt(p)}
}

// quoteAt is 1 where a quoted text begins, which does not count.
func (d *decoder) quoteAt(p Pos) int {
	if d.quoted[p] {
		return 1
	}
	return 0
}

// refused notes a parser's error.
func (d *decoder) refused(n *yaml.Node, what string, err error) {
	d.parse(n, what, func(string) error { return err })
}

// checkRedact takes the name of an argument, or names with slashes between.
func checkRedact(s string) error {
	if !nameLike(s, "/") || slices.Contains(splitPath(s), "") {
		return invalid("name an argument, or one within it: headers/authorization", "%s is no argument", quote(s))
	}
	return nil
}

// rule finds the entry for a tool.
func (t *Tools) rule(name string, builtIn bool) *ToolRule {
	var every *ToolRule
	for _, r := range t.List {
		if r.Name == name {
			return r
		}
		if r.Name == "*" && builtIn {
			every = r
		}
	}
	return every
}

// sum is the section without places.
func (t *Tools) sum() any {
	if !t.At.Said() {
		return nil
	}
	type condition struct{ Check, Message string }
	type entry struct {
		Name, Title, Description string
		Params                   json.RawMessage `json:",omitempty"`
		Command                  []string
		HTTP                     *tool.HTTPSpec `json:",omitempty"`
		Rules                    []condition
		Rates                    []CallRate
		Approve                  string
		When                     *condition
		Redact, Channels         []string
	}
	out := []entry{}
	for _, r := range t.List {
		e := entry{r.Name, r.Title.V, r.Description.V, r.Params.V, texts(r.Command.V), nil, nil, nil, r.Approve.V, nil, texts(r.Redact), r.Channels}
		if r.http != nil {
			spec := r.http.Spec()
			e.HTTP = &spec
		}
		for _, c := range r.Rules {
			e.Rules = append(e.Rules, condition{c.V, c.Message})
		}
		for _, v := range r.Rates {
			e.Rates = append(e.Rates, v.V)
		}
		if r.When != nil {
			e.When = &condition{r.When.V, r.When.Message}
		}
		out = append(out, e)
	}
	return out
}
