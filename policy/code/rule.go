// SPDX-License-Identifier: Apache-2.0

package code

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// Kind is a sort of finding.
type Kind string

// The kinds of finding.
const (
	ImportKind  Kind = "import"         // a module that is not allowed
	CallKind    Kind = "call"           // something that is denied is used
	CodeKind    Kind = "dynamic_code"   // code is run that is not in the text
	UnknownKind Kind = "dynamic_import" // a module is imported whose name is not in the text
	LoopKind    Kind = "endless_loop"   // a loop has no end and no exit
	UnreadKind  Kind = "unread"         // what would run was not read
)

// Optional are the kinds that rules may leave out.
func Optional() []string { return []string{string(CodeKind), string(UnknownKind), string(LoopKind)} }

// Rules say what facts are findings.
type Rules struct {
	Allow       []string // modules, with what is below each; * is all
	Listed      bool     // only what Allow has may be imported
	DenyImports []string
	DenyCalls   []string // names, with what is below each; * in one is any text
	Ignore      []string // kinds of Optional
}

// Finding is a fact that a rule speaks against.
type Finding struct {
	Kind         Kind
	Name         string
	Line, Column int
	Why          string // "imports os"
	Deny         int    // the entry of DenyImports or DenyCalls; -1 is none
}

// Judge compares facts with the rules.
func (r *Rules) Judge(f *Facts) []Finding {
	var out []Finding
	add := func(k Kind, at Fact, deny int, format string, args ...any) {
		out = append(out, Finding{Kind: k, Name: at.Name, Line: at.Line, Column: at.Column, Why: fmt.Sprintf(format, args...), Deny: deny})
	}
	if f.Fault != nil {
		add(UnreadKind, Fact{Line: f.Fault.Line, Column: f.Fault.Column}, -1, "cannot be read: %s", f.Fault.Name)
	}
	for _, m := range f.Imports {
		how := "imports " + m.Name
		if m.How != "import" && m.How != "" {
			how += " by " + m.How
		}
		r.judgeImport(m, how, add)
	}
	for _, m := range reached(f) {
		r.judgeImport(m, m.How, add)
	}
	for _, n := range f.Names {
		for i, p := range r.DenyCalls {
			if below(p, n.Name) {
				add(CallKind, n, i, "uses %s", n.Name)
				break
			}
		}
	}
	if !slices.Contains(r.Ignore, string(CodeKind)) {
		for _, c := range f.Code {
			add(CodeKind, c, -1, "runs what is not in the text: %s", c.Name)
		}
	}
	if !slices.Contains(r.Ignore, string(UnknownKind)) {
		for _, c := range f.Unknown {
			add(UnknownKind, c, -1, "imports a module whose name is not in the text: %s", c.Name)
		}
	}
	if !slices.Contains(r.Ignore, string(LoopKind)) {
		for _, l := range f.Loops {
			l.Name = ""
			add(LoopKind, l, -1, "has a loop without an exit")
		}
	}
	if f.More {
		add(UnreadKind, Fact{Line: 1, Column: 1}, -1, "says more than is looked at")
	}
	return out
}

func (r *Rules) judgeImport(m Fact, how string, add func(Kind, Fact, int, string, ...any)) {
	for i, d := range r.DenyImports {
		if module(d, m.Name) {
			add(ImportKind, m, i, "%s", how)
			return
		}
	}
	if r.Listed && !slices.ContainsFunc(r.Allow, func(a string) bool { return module(a, m.Name) }) {
		add(ImportKind, m, -1, "%s", how)
	}
}

// module says whether an entry means a module: it, and what is in it.
func module(entry, name string) bool {
	if entry == "*" || entry == name {
		return true
	}
	rest, ok := strings.CutPrefix(name, entry)
	return ok && (rest[0] == '.' || rest[0] == '/' || strings.HasSuffix(entry, "/"))
}

// below says whether a pattern of DenyCalls means a name: it, or what it is of.
func below(pattern, name string) bool {
	if sandbox.Matches(pattern, name) {
		return true
	}
	for i := range len(name) {
		if name[i] == '.' && sandbox.Matches(pattern, name[:i]) {
			return true
		}
	}
	return false
}

// powers are modules of Python that others have among their names, and by which a
// program gets out of what it was allowed: random._os is os.
const powers = "os posix nt sys subprocess ctypes socket importlib builtins shutil pty multiprocessing runpy"

// reached are modules that are taken of another one, in place of being imported.
func reached(f *Facts) []Fact {
	var out []Fact
	for _, n := range f.Names {
		parts := strings.Split(n.Name, ".")
		for i, p := range parts {
			p = strings.TrimLeft(p, "_")
			if i > 0 && p != "" && p != parts[i-1] && strings.Contains(" "+powers+" ", " "+p+" ") && imported(f, parts[0]) {
				out = append(out, Fact{Name: p, Line: n.Line, Column: n.Column, How: "reaches " + p + " as " + strings.Join(parts[:i+1], ".")})
				break
			}
		}
	}
	return out
}

// imported says whether a name begins with a module that the program imports.
func imported(f *Facts, first string) bool {
	return slices.ContainsFunc(f.Imports, func(m Fact) bool { return m.Name == first || strings.HasPrefix(m.Name, first+".") })
}
