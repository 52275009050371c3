// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/policy/code"
	"github.com/caisson-run/caisson/sandbox"
)

// Code is the section code: what the text of a program may say (see policy/code).
// It is advice: a program can say a thing in ways that no reader finds.
type Code struct {
	At         Pos
	Python     *CodeRules
	JavaScript *CodeRules // and TypeScript
}

// CodeRules are the rules for one language.
type CodeRules struct {
	At          Pos
	Allow       Value[[]Value[string]] // not said: every module; an empty list: none
	DenyImports []Value[string]
	DenyCalls   []Value[string]
	Ignore      []Value[string] // kinds of finding
	OnFinding   Value[string]   // deny when it is not said
}

// What becomes of a call with a finding.
const (
	OnFindingDeny = "deny"
	OnFindingWarn = "warn"
)

// warns says that findings refuse nothing.
func (r *CodeRules) warns() bool { return r.OnFinding.V == OnFindingWarn }

// rules are those of the section for a language; nil is none.
func (c *Code) rules(l code.Language) *CodeRules {
	switch l {
	case code.PythonLanguage:
		return c.Python
	case code.JavaScriptLanguage, code.TypeScriptLanguage:
		return c.JavaScript
	}
	return nil
}

// code are the keys of code.
func (d *decoder) code() []field {
	c := &d.file.Code
	read := func(name string, to **CodeRules) field {
		return field{name, func(n *yaml.Node) {
			r := &CodeRules{At: d.key}
			d.mapping(n, "code."+name, d.codeRules("code."+name, r))
			*to = r
		}}
	}
	return []field{read("python", &c.Python), read("javascript", &c.JavaScript)}
}

func (d *decoder) codeRules(what string, r *CodeRules) []field {
	return []field{
		{"allow_imports", func(n *yaml.Node) {
			r.Allow = Value[[]Value[string]]{d.texts(n, what+".allow_imports", checkModule), at(n)}
		}},
		{"deny_imports", func(n *yaml.Node) { r.DenyImports = d.texts(n, what+".deny_imports", checkModule) }},
		{"deny_calls", func(n *yaml.Node) { r.DenyCalls = d.texts(n, what+".deny_calls", checkCalled) }},
		{"ignore", func(n *yaml.Node) { r.Ignore = d.texts(n, what+".ignore", oneOf(code.Optional()...)) }},
		{"on_finding", func(n *yaml.Node) { r.OnFinding = d.text(n, what+".on_finding", oneOf(OnFindingWarn, OnFindingDeny)) }},
	}
}

// checkModule refuses what is no module's name.
func checkModule(s string) error {
	switch {
	case s == "*":
		return nil
	case s == "" || len(s) > 256 || strings.ContainsAny(s, " \t\n()\"'`*?[]{}\\") || strings.Trim(s, ".") == "":
		return invalid("name one module, as in numpy or node:fs; what is in it is meant, too", "%s is not a module's name", quote(s))
	}
	return nil
}

// checkCalled refuses what is no name that is called.
func checkCalled(s string) error {
	if s == "" || len(s) > 256 || strings.ContainsAny(s, " \t\n()\"'`[]{}\\") || strings.Trim(s, "*.?") == "" {
		return invalid("write names without brackets, as in os.system or subprocess.*", "%s is not a name that is called", quote(s))
	}
	return nil
}

// spelledModules are modules by their one name.
func spelledModules(vs []Value[string]) []string {
	out := texts(vs)
	for i := range out {
		out[i] = strings.TrimPrefix(out[i], "node:")
	}
	return out
}

// rules is r for who compares facts with it.
func (r *CodeRules) rules() *code.Rules {
	return &code.Rules{
		Allow: spelledModules(r.Allow.V), Listed: r.Allow.Said(), DenyImports: spelledModules(r.DenyImports),
		DenyCalls: texts(r.DenyCalls), Ignore: texts(r.Ignore),
	}
}

// PlanCode is what a plan says of the texts of programs, by language.
type PlanCode struct {
	Languages []code.Language `json:"languages"`
	Rules     []PlanRule      `json:"rules"`
}

// For says whether texts of a language are to be read.
func (p *PlanCode) For(l code.Language) bool { return p != nil && slices.Contains(p.Languages, l) }

// planCode lists what the layers say.
func planCode(layers []*File) *PlanCode {
	var out PlanCode
	for _, f := range layers {
		for _, s := range []struct {
			name      string
			rules     *CodeRules
			languages []code.Language
		}{
			{"python", f.Code.Python, []code.Language{code.PythonLanguage}},
			{"javascript", f.Code.JavaScript, []code.Language{code.JavaScriptLanguage, code.TypeScriptLanguage}},
		} {
			if s.rules == nil {
				continue
			}
			for _, l := range s.languages {
				if !slices.Contains(out.Languages, l) {
					out.Languages = append(out.Languages, l)
				}
			}
			out.Rules = append(out.Rules, PlanRule{s.name + ": " + s.rules.String(), f.rule(s.rules.At)})
		}
	}
	if len(out.Rules) == 0 {
		return nil
	}
	return &out
}

// code notes that texts are to be read. Which they are is known where the call is
// carried out, and what they say only then: see JudgeCode.
func (d *decision) code() *refusal {
	if d.call.Kind != StartSandbox {
		d.plan.Code = planCode(d.layers)
	}
	return nil
}

// String is the rules as a policy file has them, on one line.
func (r *CodeRules) String() string {
	var parts []string
	add := func(name string, vs []Value[string]) {
		if len(vs) > 0 {
			parts = append(parts, name+" ["+strings.Join(texts(vs), ", ")+"]")
		}
	}
	if r.Allow.Said() && len(r.Allow.V) == 0 {
		parts = append(parts, "allow_imports []")
	}
	add("allow_imports", r.Allow.V)
	add("deny_imports", r.DenyImports)
	add("deny_calls", r.DenyCalls)
	add("ignore", r.Ignore)
	if r.warns() {
		return strings.Join(append(parts, "warns"), ", ")
	}
	return strings.Join(append(parts, "denies"), ", ")
}

// codeDetail is how the section holds on every level.
const codeDetail = "advice: read from the text before it runs; what a program does is held by the sandbox"

// code says what programs may say.
func (e *explainer) code() {
	if e.plan.Code == nil {
		return
	}
	for _, r := range e.plan.Code.Rules {
		e.add("code", r.Text, r.From, func(sandbox.Capabilities) sandbox.Clause {
			return sandbox.Clause{Enforcement: sandbox.Emulated, Detail: codeDetail}
		})
	}
}

// sum is the section without places.
func (c *Code) sum() any {
	if c.Python == nil && c.JavaScript == nil {
		return nil
	}
	one := func(r *CodeRules) any {
		if r == nil {
			return nil
		}
		return struct {
			Listed                        bool
			Allow, Imports, Calls, Ignore []string
			Warns                         bool
		}{r.Allow.Said(), texts(r.Allow.V), texts(r.DenyImports), texts(r.DenyCalls), texts(r.Ignore), r.warns()}
	}
	return map[string]any{"python": one(c.Python), "javascript": one(c.JavaScript)}
}

// ReadText is a text that a call would run, and what was read of it.
type ReadText struct {
	Language code.Language
	// Name is what messages call it: "analyse.py", "argument 3".
	Name  string
	Facts *code.Facts
	Hint  string // what would let it be read, where it was not
}

// JudgeCode compares the texts of an allowed call with what the layers say of
// them. Findings are in the order of the layers; the error is an ErrDenied when
// one of them refuses the call, and nil otherwise.
func (p *Policy) JudgeCode(call *Call, read []ReadText) ([]sandbox.Finding, error) {
	var out []sandbox.Finding
	var denied *refusal
	refused := 0
	for _, f := range p.layers(call.Operator) {
		for _, t := range read {
			rules := f.Code.rules(t.Language)
			if rules == nil {
				continue
			}
			for _, found := range rules.rules().Judge(t.Facts) {
				r := f.finding(rules, &found, &t)
				action := OnFindingWarn
				if !rules.warns() {
					action = OnFindingDeny
					if refused++; denied == nil {
						denied = r
					}
				}
				if len(out) < maxFindings {
					out = append(out, sandbox.Finding{
						Kind: string(found.Kind), Name: found.Name, Language: string(t.Language), Text: t.Name, Line: found.Line, Column: found.Column,
						Problem: r.reason, Rule: r.rule, Hint: r.hint, Action: action,
					})
				}
			}
		}
	}
	if denied == nil {
		return out, nil
	}
	if refused > 1 {
		denied.reason += fmt.Sprintf(" (and %d more)", refused-1)
	}
	return out, denied.verdict().Err()
}

// maxFindings bounds what a result has of them.
const maxFindings = 200

// finding says which line of f speaks against a fact, and what would allow it.
func (f *File) finding(r *CodeRules, found *code.Finding, t *ReadText) *refusal {
	section := "python"
	if t.Language != code.PythonLanguage {
		section = "javascript"
	}
	rule, hint := f.rule(r.At), ""
	line := func(key, value string) string {
		return f.add(fmt.Sprintf("code: {%s: {%s: [%s]}}", section, key, value))
	}
	switch {
	case found.Kind == code.ImportKind && found.Deny >= 0:
		rule, hint = f.rule(r.DenyImports[found.Deny].At), "do without it; the policy denies it"
	case found.Kind == code.ImportKind:
		rule, hint = f.rule(r.Allow.At), line("allow_imports", found.Name)
	case found.Kind == code.CallKind:
		rule, hint = f.rule(r.DenyCalls[found.Deny].At), "do without it; the policy denies it"
	case found.Kind == code.UnreadKind && t.Hint != "":
		hint = t.Hint
	case found.Kind == code.UnreadKind:
		hint = "write it so that it can be read"
	case found.Kind == code.LoopKind:
		hint = "give it an exit (break, return), or " + line("ignore", string(found.Kind))
	default:
		hint = "write it out, or " + line("ignore", string(found.Kind))
	}
	why := found.Why
	if found.Kind == code.UnreadKind {
		return refuse(rule, hint, "%s: %s %s", quote(t.Name), t.Language, why)
	}
	return refuse(rule, hint, "%s line %d:%d %s", quote(t.Name), found.Line, found.Column, why)
}
