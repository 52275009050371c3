// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/policy/expr"
	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/tool/params"
)

// PlanRate is how often a tool may be called, as a plan has it. Who carries the
// call out takes one from each before it does: the policy has no memory.
type PlanRate struct {
	Tool string   `json:"tool"`
	Rate CallRate `json:"rate"`
	From string   `json:"from"`
}

// Exceeded is the verdict on a call that came too soon.
func (r PlanRate) Exceeded(wait string) Verdict {
	return refuse(r.From, "try again in "+wait, "%s may be called %s, and has been", r.Tool, r.Rate).verdict()
}

// offered are the tools that the layers declare or list.
func (p *Policy) offered() *tool.Registry {
	var all []*tool.Tool
	for _, t := range tool.Builtins() {
		if p.lists(t.Name, true) {
			all = append(all, t)
		}
	}
	for _, f := range []*File{p.system, p.file} {
		if f == nil {
			continue
		}
		for _, r := range f.Tools.List {
			if _, isBuiltin := tool.Builtin(r.Name); isBuiltin || r.schema == nil || r.Name == "*" || tool.CheckName(r.Name) != nil || !p.lists(r.Name, false) {
				continue
			}
			def := tool.Definition{Name: r.Name, Title: r.Title.V, Description: r.Description.V, Params: r.Params.V, Destructive: true, OpenWorld: true}
			if program, ok := tool.Builtin("run_command"); ok && r.command != nil {
				def.Output = program.Output // a program answers as a program does
			}
			if r.http != nil {
				def.Output = tool.HTTPOutput()
			}
			t, err := tool.New(def)
			if err != nil { // Parse found it well-formed
				continue
			}
			t.Command, t.HTTP = r.command, r.http
			// The system's declaration is the first, and stands.
			if !slices.ContainsFunc(all, func(have *tool.Tool) bool { return have.Name == t.Name }) {
				all = append(all, t)
			}
		}
	}
	r, err := tool.NewRegistry(all...)
	if err != nil {
		return &tool.Registry{}
	}
	return r
}

// lists says whether every layer that has a list has the tool in it.
func (p *Policy) lists(name string, builtIn bool) bool {
	said := false
	for _, f := range []*File{p.system, p.file} {
		if f == nil || !f.Tools.At.Said() {
			continue
		}
		said = true
		if f.Tools.rule(name, builtIn) == nil {
			return false
		}
	}
	return said || builtIn
}

// Tools are the tools that may be offered, by name. Some of them may be for others
// to carry out: they have neither a carrier nor a Command.
func (p *Policy) Tools() *tool.Registry { return p.tools() }

// tool judges the tool of the call, if there is one: whether it is listed, its
// arguments by every schema, and then by every rule.
func (d *decision) tool() *refusal {
	c := d.call.Tool
	if c == nil {
		return nil
	}
	_, builtIn := tool.Builtin(c.Name)
	builtIn = builtIn && c.Server == ""
	entries, r := d.listed(c, builtIn)
	if r != nil {
		return r
	}
	var faults []params.Fault
	rule := "built-in: arguments of " + c.Name
	if t, ok := d.Tools().Lookup(c.Name); ok && c.Server == "" {
		faults = t.Check(c.Args)
	}
	for _, e := range entries {
		if e.schema == nil {
			continue
		}
		if more := e.schema.Check(c.Args); len(more) > 0 {
			rule = e.file.rule(e.Params.At)
			faults = append(faults, more...)
		}
	}
	if len(faults) > 0 {
		faults, text := shownFaults(faults, secretPaths(c, entries))
		r := refuse(rule, "mend them all, and call again", "%s: %s", c.Name, text)
		r.faults = faults
		return r
	}
	secret := secretPaths(c, entries)
	var broken []brokenRule
	for _, e := range entries {
		broken = append(broken, d.conditions(c, e, secret)...)
	}
	return refuseBroken(c.Name, broken)
}

// brokenRule is a rule that does not hold: what is said of it, and where it stands.
type brokenRule struct{ text, rule string }

// maxBroken is how many of them a verdict tells.
const maxBroken = 10

// refuseBroken tells all rules that do not hold, so that they can be met at once.
func refuseBroken(name string, broken []brokenRule) *refusal {
	if len(broken) == 0 {
		return nil
	}
	text, hint := broken[0].text, "change the arguments so that it holds"
	for _, b := range broken[1:min(len(broken), maxBroken)] {
		text += "; " + b.text + " [" + b.rule + "]"
		hint = "change the arguments so that all of them hold"
	}
	if more := len(broken) - maxBroken; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return refuse(broken[0].rule, hint, "%s: %s", name, text)
}

// entry is what one layer says of a tool.
type entry struct {
	*ToolRule
	file *File
}

// listed finds what the layers say of a tool; one that has a list without it
// refuses.
func (d *decision) listed(c *ToolCall, builtIn bool) (entries []entry, _ *refusal) {
	said := false
	for _, f := range d.layers {
		if !f.Tools.At.Said() {
			continue
		}
		said = true
		switch r := f.Tools.rule(c.Name, builtIn); {
		case r != nil:
			entries = append(entries, entry{r, f})
		case c.Server == "": // else servers lists it
			return nil, refuse(f.rule(f.Tools.At), d.meant(c.Name)+f.add("tools: ["+shownName(c.Name)+"]"), "tool %s is not listed", quote(shownName(c.Name)))
		}
	}
	if !said && !builtIn && c.Server == "" {
		return nil, refuse("built-in: listed tools", d.meant(c.Name)+"see caisson tools ls; others are declared in a policy's tools", "tool %s is not listed", quote(shownName(c.Name)))
	}
	if c.Server == "" && !builtIn && !slices.ContainsFunc(entries, func(e entry) bool { return e.schema != nil }) {
		return nil, refuse("built-in: listed tools", "declare it with params", "the policy does not say what the arguments of tool %s are", quote(shownName(c.Name)))
	}
	return entries, nil
}

// meant is the beginning of a hint: a tool that may be called and has nearly that name.
func (d *decision) meant(name string) string {
	var names []string
	for _, t := range d.Tools().List() {
		names = append(names, t.Name)
	}
	if w := nearest(name, names); w != "" {
		return "did you mean " + w + "? else "
	}
	return ""
}

func shownName(s string) string { return short(strings.ToValidUTF8(s, "\uFFFD")) }

// conditions asks the rules of one entry, and notes what else it wants. What any
// layer marks is secret.
func (d *decision) conditions(c *ToolCall, e entry, secret []secretPath) (broken []brokenRule) {
	var call *expr.Prepared
	holds := func(cond *Condition) (bool, error) {
		if call == nil {
			call = expr.Prepare(expr.Input{Tool: c.Name, Params: e.shape.Value(c.Args), Actor: d.call.Actor, Sandbox: c.Sandbox, Operator: d.call.Operator})
		}
		return cond.expr.Holds(call)
	}
	for i := range e.Rules {
		cond := &e.Rules[i]
		switch ok, err := holds(cond); {
		case err != nil:
			broken = append(broken, brokenRule{cond.said() + ": " + hidden(secret, cond, err), e.file.rule(cond.At)})
		case !ok:
			broken = append(broken, brokenRule{cond.said() + " does not hold", e.file.rule(cond.At)})
		}
	}
	for _, r := range e.Rates {
		d.plan.Rates = append(d.plan.Rates, PlanRate{c.Name, r.V, e.file.rule(r.At)})
	}
	if e.Approve.V == approveAlways {
		d.ask(e.file, e.Approve.At, e.Channels, "tool %s needs approval", c.Name)
	}
	if e.When != nil {
		// What cannot be told is asked, too: a person sees the whole call.
		if ok, err := holds(e.When); ok || err != nil {
			d.ask(e.file, e.When.At, e.Channels, "tool %s needs approval: %s", c.Name, e.When.said())
		}
	}
	return broken
}

// said is a condition as people read it.
func (c *Condition) said() string {
	if c.Message != "" {
		return c.Message
	}
	return c.V
}

// hidden is an error without values where one of them may be marked: a condition
// that names no variables cannot tell one.
func hidden(secret []secretPath, c *Condition, err error) string {
	marked := slices.ContainsFunc(secret, func(p secretPath) bool { return p.at[0] != "env" || strings.Contains(c.V, "env") })
	if errors.Is(err, expr.ErrMissing) || !marked {
		return err.Error()
	}
	return "it cannot be told"
}

// shownFaults are all faults, each once, and a sentence of them. Of what is marked it
// is not said what it was, nor what it has in it.
func shownFaults(faults []params.Fault, secret []secretPath) (all []params.Fault, text string) {
	var texts []string
	for _, f := range faults {
		path := splitPath(strings.TrimPrefix(f.Path, "/"))
		for _, s := range secret {
			parts, ok := s.covers(path)
			if ok {
				f.Problem = "it does not fit"
			}
			if ok && !s.named {
				path = path[:parts]
				f.Path = "/" + strings.Join(path, "/")
			}
		}
		f.Problem = strings.ToValidUTF8(f.Problem, "\uFFFD")
		if !slices.Contains(all, f) {
			all, texts = append(all, f), append(texts, cmp.Or(f.Path, "/")+": "+f.Problem)
		}
	}
	return all, "the arguments do not fit: " + strings.Join(texts, "; ")
}

func splitPath(s string) []string { return strings.Split(s, "/") }

// secretPath is where an argument is that records do not have.
type secretPath struct {
	at    []string
	named bool // names in it are recorded: those of variables
}

// secretPaths are the arguments that records do not have: variables, and what
// entries mark.
func secretPaths(c *ToolCall, entries []entry) (out []secretPath) {
	if _, ok := tool.Builtin(c.Name); ok && c.Server == "" {
		out = append(out, secretPath{at: []string{"env"}, named: true})
	}
	for _, e := range entries {
		for _, r := range e.Redact {
			out = append(out, secretPath{at: splitPath(r.V)})
		}
	}
	return out
}

// covers says whether a fault's path leads to p or into it, and how many of its parts
// lead to p. As in records, the path goes on in each part of a list.
func (p secretPath) covers(path []string) (parts int, ok bool) {
	want := p.at
	for ; parts < len(path) && len(want) > 0; parts++ {
		switch _, err := strconv.ParseUint(path[parts], 10, 32); {
		case path[parts] == want[0]:
			want = want[1:]
		case err != nil:
			return 0, false
		}
	}
	return parts, len(want) == 0
}

// Redacted is what is left in the place of an argument that is marked.
const Redacted = "[redacted]"

// ToolRecord is the arguments of a tool as records have them: without variables,
// and without what the layers mark.
func (p *Policy) ToolRecord(c *ToolCall) any {
	var entries []entry
	for _, f := range []*File{p.system, p.file} {
		if f == nil {
			continue
		}
		if r := f.Tools.rule(c.Name, false); r != nil {
			entries = append(entries, entry{r, f})
		}
		if r := f.Tools.rule("*", false); r != nil {
			entries = append(entries, entry{r, f})
		}
	}
	args := c.Args
	for _, p := range secretPaths(c, entries) {
		args = without(args, p.at, p.named)
	}
	return args
}

// without is v with what is at path redacted; v is not changed.
func without(v any, path []string, named bool) any {
	switch v := v.(type) {
	case map[string]any:
		sub, ok := v[path[0]]
		if !ok {
			return v
		}
		out := maps.Clone(v)
		switch {
		case len(path) > 1:
			out[path[0]] = without(sub, path[1:], named)
		case named:
			out[path[0]] = redactedValues(sub)
		default:
			out[path[0]] = Redacted
		}
		return out
	case []any: // the path goes on in each
		out := make([]any, len(v))
		for i, sub := range v {
			out[i] = without(sub, path, named)
		}
		return out
	}
	return v
}

// redactedValues keeps the names of an object: those of variables are recorded.
func redactedValues(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return Redacted
	}
	out := map[string]any{}
	for k := range m {
		out[k] = Redacted
	}
	return out
}

// tools lists what may be called.
func (e *explainer) tools(p *Policy) {
	for _, f := range []*File{p.system, p.file} {
		if f == nil {
			continue
		}
		if f.Tools.At.Said() && len(f.Tools.List) == 0 {
			e.add("tools", "none", f.rule(f.Tools.At), e.always)
		}
		for _, r := range f.Tools.List {
			e.add("tools", r.String(), f.rule(r.At), e.always)
		}
		for _, kind := range []Kind{RunCommand, RunCode} {
			if f.untooledProgram(string(kind)) != nil {
				e.add("tools", "keys have no "+string(kind)+" without a tool", f.rule(f.Tools.At), e.always)
			}
		}
	}
}

// String is an entry in a line.
func (r *ToolRule) String() string {
	parts := []string{r.Name}
	if r.command != nil {
		b, _ := json.Marshal(r.command.Template())
		parts = append(parts, "runs "+string(b))
	}
	if r.http != nil {
		parts = append(parts, "asks "+r.http.Spec().Method+" "+r.http.Spec().URL)
	}
	switch n := len(r.Rules); n {
	case 0:
	case 1:
		parts = append(parts, "1 rule")
	default:
		parts = append(parts, fmt.Sprintf("%d rules", n))
	}
	for _, v := range r.Rates {
		parts = append(parts, v.V.String())
	}
	switch {
	case r.Approve.V == approveAlways:
		parts = append(parts, "asks")
	case r.When != nil:
		parts = append(parts, "asks when "+r.When.V)
	}
	return strings.Join(parts, ", ")
}
