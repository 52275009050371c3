// SPDX-License-Identifier: Apache-2.0

package code

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// JavaScript reads a script or a module. It does not panic, and its depth is
// bounded by the parser, which takes a thousand levels.
func JavaScript(src []byte) (f *Facts) {
	defer func() {
		if r := recover(); r != nil {
			f = fault(1, 1, "its reader failed: %v", r)
		}
	}()
	if len(src) > MaxText {
		return fault(1, 1, "it is longer than the %d MiB that are read", MaxText>>20)
	}
	if i := bytes.IndexByte(src, 0); i >= 0 {
		return fault(1, 1, "it has a NUL byte")
	}
	// An end of the parser's own, which it would otherwise write behind the text.
	text := append(append(make([]byte, 0, len(src)+1), src...), 0)
	ast, err := js.Parse(parse.NewInputBytes(text[:len(src)]), js.Options{})
	if err != nil { // a script may return where a module may not
		var again error
		if ast, again = js.Parse(parse.NewInputBytes(text[:len(src)]), js.Options{Inline: true}); again != nil {
			return parseFault(err)
		}
	}
	r := &reader{src: text[:len(src)], facts: &Facts{}, bound: map[*js.Var][]binding{}, seen: map[string]bool{}, callee: map[js.INode]bool{}, member: map[js.INode]bool{}}
	js.Walk(&binder{reader: r, scope: &ast.BlockStmt.Scope}, ast)
	js.Walk(r, ast)
	for _, list := range []*[]Fact{&r.facts.Imports, &r.facts.Names, &r.facts.Code, &r.facts.Unknown, &r.facts.Loops} {
		slices.SortFunc(*list, func(a, b Fact) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			if a.Column != b.Column {
				return a.Column - b.Column
			}
			return strings.Compare(a.Name, b.Name)
		})
	}
	return r.facts
}

func parseFault(err error) *Facts {
	if e, ok := err.(*parse.Error); ok {
		return fault(e.Line, e.Column, "%s", e.Message)
	}
	return fault(1, 1, "%v", err)
}

// reader goes through a program and notes what it says.
type reader struct {
	src    []byte
	facts  *Facts
	bound  map[*js.Var][]binding
	seen   map[string]bool
	callee map[js.INode]bool // what is called, rather than handed around
	member map[js.INode]bool // what something is taken of
	last   int               // the offset that was reached
	loops  []int             // offsets of loops that were found
	work   int
}

// root is the variable that v stands for.
func root(v *js.Var) *js.Var {
	for v.Link != nil {
		v = v.Link
	}
	return v
}

// offset is where b, which the parser cut out of the text, begins; -1 for any
// other.
func (r *reader) offset(b []byte) int {
	if len(b) == 0 || len(r.src) == 0 {
		return -1
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(r.src)))
	if at >= uintptr(len(r.src)) {
		return -1
	}
	return int(at)
}

// place is a node's offset: that of its first words.
func (r *reader) place(n js.INode) int {
	at := -1
	js.Walk(visit(func(n js.INode) bool {
		r.spend()
		var b []byte
		switch n := n.(type) {
		case *js.Var:
			b = n.Data
		case *js.LiteralExpr:
			b = n.Data
		case js.LiteralExpr:
			b = n.Data
		case *js.TemplateExpr:
			b = n.Tail
		case *js.BlockStmt, *js.FuncDecl, *js.ArrowFunc, *js.ClassDecl:
			return at < 0
		}
		if o := r.offset(b); o >= 0 && (at < 0 || o < at) {
			at = o
		}
		return true
	}), n)
	if at < 0 {
		return r.last
	}
	return at
}

// visit is a visitor that is a function: false leaves out what is below.
type visit func(js.INode) bool

func (v visit) Enter(n js.INode) js.IVisitor {
	if v(n) {
		return v
	}
	return nil
}

func (visit) Exit(js.INode) {}

// spend bounds what reading takes.
func (r *reader) spend() {
	if r.work++; r.work > maxWork {
		panic("it is too involved")
	}
}

func (r *reader) note(to *[]Fact, at int, name, how string) {
	key := fmt.Sprintf("%p\x00%s\x00%s", to, name, how)
	if len(r.seen) >= maxFacts {
		r.facts.More = true
		return
	}
	if r.seen[key] {
		return
	}
	r.seen[key] = true
	at = min(max(at, 0), len(r.src))
	before := r.src[:at]
	*to = append(*to, Fact{
		Name: printable(name), How: how,
		Line: bytes.Count(before, []byte("\n")) + 1, Column: at - bytes.LastIndexByte(before, '\n'),
	})
}

func (r *reader) Exit(js.INode) {}

// Enter notes what one node says.
func (r *reader) Enter(n js.INode) js.IVisitor {
	f := r.facts
	switch n := n.(type) {
	case *js.Var:
		r.reached(n.Data)
		r.escaped(n.Data)
		if !r.member[n] {
			r.named(n, r.offset(n.Data))
		}
	case *js.LiteralExpr:
		r.reached(n.Data)
		if n.TokenType == js.IdentifierToken || js.IsIdentifierName(n.TokenType) {
			r.escaped(n.Data)
		}
	case js.LiteralExpr:
		r.reached(n.Data)
		r.escaped(n.Data)
	case *js.ImportStmt:
		r.imported(n.Module, "import")
	case *js.ExportStmt:
		if n.Module != nil {
			r.imported(n.Module, "export")
		}
	case *js.DotExpr:
		r.member[n.X] = true
		r.constructor(n, memberName(n.Y), n.X)
		r.used(n)
	case *js.IndexExpr:
		r.member[n.X] = true
		r.index(n)
		r.used(n)
	case *js.CallExpr:
		r.callee[n.X] = true
		r.call(n.X, &n.Args)
		r.used(n)
	case *js.NewExpr:
		r.callee[n.X] = true
		if n.Args != nil {
			r.call(n.X, n.Args)
		}
	case *js.TemplateExpr:
		if n.Tag != nil { // eval`…`
			r.callee[n.Tag] = true
			r.call(n.Tag, &js.Args{})
		}
	case *js.WithStmt:
		r.note(&f.Code, r.place(n.Cond), "with", "")
	case *js.WhileStmt:
		if r.forever(n.Cond) && !r.leaves(n.Body) {
			r.loop(r.word("while", r.place(n.Cond)))
		}
	case *js.DoWhileStmt:
		if r.forever(n.Cond) && !r.leaves(n.Body) {
			r.loop(r.word("do", r.place(n.Body)))
		}
	case *js.ForStmt:
		if (n.Cond == nil || r.forever(n.Cond)) && !r.leaves(n.Body) {
			r.loop(r.word("for", r.place(n.Body)))
		}
	}
	return r
}

func (r *reader) reached(b []byte) { r.last = max(r.last, r.offset(b)) }

// escaped: a name that is written with escapes is for machines, and could be any.
func (r *reader) escaped(name []byte) {
	if bytes.IndexByte(name, '\\') >= 0 && len(name) > 0 && name[0] != '"' && name[0] != '\'' && name[0] != '/' {
		r.note(&r.facts.Code, r.offset(name), "a name written with escapes", "")
	}
}

// imported notes a module by the string that names it.
func (r *reader) imported(literal []byte, how string) {
	name, ok := unquote(literal)
	if !ok {
		r.note(&r.facts.Unknown, r.offset(literal), how, "")
		return
	}
	r.note(&r.facts.Imports, r.offset(literal), moduleName(name), how)
}

// moduleName is a module's one name: fs for node:fs.
func moduleName(name string) string { return strings.TrimPrefix(name, "node:") }

// used notes what an expression with members stands for, where nothing more is
// taken of it.
func (r *reader) used(n js.IExpr) {
	if r.member[n] {
		return
	}
	r.named(n, r.place(n))
}

func (r *reader) named(n js.IExpr, at int) {
	names := r.resolve(n, 0)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		r.note(&r.facts.Names, at, name, "")
		switch first, _, _ := strings.Cut(name, "."); {
		case name == "eval" || first == "Function" || first == "vm" && len(name) > 2 || name == "process.binding" ||
			name == "process._linkedBinding" || name == "process.dlopen" || name == "module._extensions" || name == "require.extensions" || first == "execScript":
			r.note(&r.facts.Code, at, name, "")
		case importers[name] && !r.callee[n]:
			r.note(&r.facts.Unknown, at, name, "")
		}
	}
	if d, ok := n.(*js.DotExpr); ok && len(names) == 0 && r.callee[n] {
		if name := memberName(d.Y); name != "" {
			r.note(&r.facts.Names, r.place(d.Y), "?."+name, "")
		}
	}
}

// importers are the functions that give the module that they are told.
var importers = map[string]bool{
	"require": true, "import": true, "module.require": true, "process.getBuiltinModule": true, "process.mainModule.require": true,
	"module._load": true, "require.main.require": true, "module.parent.require": true, "require.cache": true,
}

// call notes what a call says beside the names in it.
func (r *reader) call(fn js.IExpr, args *js.Args) {
	at := r.place(fn)
	var first js.IExpr
	if len(args.List) > 0 && !args.List[0].Rest {
		first = args.List[0].Value
	}
	if l, ok := fn.(*js.LiteralExpr); ok && l.TokenType == js.ImportToken {
		r.asked(first, "import", at)
		return
	}
	for name := range r.resolve(fn, 0) {
		switch {
		case importers[name]:
			r.asked(first, name, at)
		case name == "setTimeout" || name == "setInterval" || name == "setImmediate":
			if _, ok := r.text(first, 0); ok || isString(first) {
				r.note(&r.facts.Code, at, name, "")
			}
		case name == "Reflect.get" && len(args.List) > 1:
			if _, ok := r.text(args.List[1].Value, 0); !ok && len(r.resolve(first, 0)) > 0 {
				r.note(&r.facts.Code, at, name, "")
			}
		}
	}
}

// asked notes a module by the expression that names it.
func (r *reader) asked(name js.IExpr, how string, at int) {
	if text, ok := r.text(name, 0); ok {
		r.note(&r.facts.Imports, at, moduleName(text), how)
		return
	}
	r.note(&r.facts.Unknown, at, how, "")
}

// isString says that e is a string, whatever is in it.
func isString(e js.IExpr) bool {
	switch e := e.(type) {
	case *js.TemplateExpr:
		return e.Tag == nil
	case *js.GroupExpr:
		return isString(e.X)
	case *js.BinaryExpr:
		return e.Op == js.AddToken && (isString(e.X) || isString(e.Y))
	case *js.LiteralExpr:
		return e.TokenType == js.StringToken
	}
	return false
}

// index notes a member whose name is computed, of something that is known.
func (r *reader) index(n *js.IndexExpr) {
	if name, ok := r.text(n.Y, 0); ok {
		if name == "constructor" || name == "__proto__" {
			r.note(&r.facts.Code, r.place(n.Y), `["`+name+`"]`, "")
		}
		return
	}
	if l, ok := n.Y.(*js.LiteralExpr); ok && l.TokenType == js.NumericToken {
		return
	}
	for name := range r.resolve(n.X, 0) {
		if name == "globalThis" || name == "require.cache" || name == "process" || name == "module" || r.module(name) {
			r.note(&r.facts.Code, r.place(n.X), name+"[…]", "")
		}
	}
}

// module says whether a name is that of a module that is imported.
func (r *reader) module(name string) bool {
	return slices.ContainsFunc(r.facts.Imports, func(f Fact) bool { return f.Name == name })
}

// constructor notes the ways from a function to Function.
func (r *reader) constructor(n js.IExpr, name string, of js.IExpr) {
	if name != "constructor" {
		return
	}
	for {
		g, ok := of.(*js.GroupExpr)
		if !ok {
			break
		}
		of = g.X
	}
	bad := r.callee[n]
	switch of := of.(type) {
	case *js.ArrowFunc, *js.FuncDecl, *js.ClassDecl, *js.CallExpr:
		bad = true
	case *js.DotExpr:
		bad = bad || memberName(of.Y) == "constructor" || r.member[n] && memberName(of.Y) == "prototype"
	case *js.IndexExpr:
		bad = true
	case *js.LiteralExpr:
		bad = bad && of.TokenType != js.ThisToken
	case *js.Var: // const F = f.constructor
		bad = bad || !r.member[n] && r.isFunction(of)
	}
	if bad {
		r.note(&r.facts.Code, r.place(n), "constructor", "")
	}
}

// isFunction says whether a variable is a function of the program's.
func (r *reader) isFunction(v *js.Var) bool {
	v = root(v)
	return v.Decl == js.FunctionDecl || slices.ContainsFunc(r.bound[v], func(b binding) bool {
		switch b.value.(type) {
		case *js.ArrowFunc, *js.FuncDecl:
			return true
		}
		return false
	})
}
