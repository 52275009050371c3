// SPDX-License-Identifier: Apache-2.0

package code

import (
	"slices"
	"strings"

	"github.com/tdewolff/parse/v2/js"
)

// binding is something that is assigned to a variable: a member of a value, or a
// module.
type binding struct {
	value  js.IExpr
	module string
	path   []string
}

// binder goes through a program once and notes what variables may be.
type binder struct {
	*reader
	scope *js.Scope // of the whole program, where imports are
	named map[string]*js.Var
}

func (b *binder) Exit(js.INode) {}

func (b *binder) Enter(n js.INode) js.IVisitor {
	switch n := n.(type) {
	case *js.ImportStmt:
		b.imports(n)
	case *js.VarDecl:
		for _, e := range n.List {
			b.element(e, e.Default, nil)
		}
	case *js.BinaryExpr:
		switch n.Op {
		case js.EqToken, js.OrEqToken, js.AndEqToken, js.NullishEqToken:
			b.target(n.X, n.Y)
		case js.AddEqToken:
			b.target(n.X, nil)
		}
	case *js.UnaryExpr:
		if v, ok := n.X.(*js.Var); ok && (n.Op == js.PreIncrToken || n.Op == js.PostIncrToken || n.Op == js.PreDecrToken || n.Op == js.PostDecrToken) {
			b.bind(v, binding{})
		}
	case *js.FuncDecl:
		b.params(&n.Params)
		if n.Name != nil {
			b.bind(n.Name, binding{})
		}
	case *js.ArrowFunc:
		b.params(&n.Params)
	case *js.MethodDecl:
		b.params(&n.Params)
	case *js.ForOfStmt:
		b.each(n.Init, n.Value)
	case *js.ForInStmt:
		b.each(n.Init, nil)
	}
	return b
}

func (b *binder) params(p *js.Params) {
	for _, e := range p.List {
		b.element(e, e.Default, nil)
		if v, ok := e.Binding.(*js.Var); ok {
			b.bind(v, binding{}) // or whatever the caller hands over
		}
	}
}

// each binds the variable of a loop to the elements of a list.
func (b *binder) each(init, value js.IExpr) {
	d, ok := init.(*js.VarDecl)
	if !ok || len(d.List) != 1 {
		return
	}
	list, ok := value.(*js.ArrayExpr)
	if !ok {
		b.element(d.List[0], nil, nil)
		return
	}
	for _, e := range list.List {
		b.element(d.List[0], e.Value, nil)
	}
}

func (b *binder) bind(v *js.Var, to binding) {
	if v = root(v); len(b.bound[v]) < 64 {
		b.bound[v] = append(b.bound[v], to)
	}
}

// element binds a name, or the names of a pattern, to value and what leads on from
// there.
func (b *binder) element(e js.BindingElement, value js.IExpr, path []string) {
	switch t := e.Binding.(type) {
	case *js.Var:
		b.bind(t, binding{value: value, path: path})
	case *js.BindingObject:
		for _, item := range t.List {
			name := ""
			if item.Key != nil {
				name = b.propertyName(item.Key)
			} else if v, ok := item.Value.Binding.(*js.Var); ok {
				name = string(v.Data)
			}
			if name == "" {
				name = "?"
			}
			b.element(item.Value, value, append(path[:len(path):len(path)], name))
			if item.Value.Default != nil {
				b.element(item.Value, item.Value.Default, nil)
			}
		}
		if t.Rest != nil {
			b.bind(t.Rest, binding{value: value, path: path})
		}
	case *js.BindingArray:
		list, _ := value.(*js.ArrayExpr)
		for i, item := range t.List {
			if list != nil && len(path) == 0 && i < len(list.List) {
				b.element(item, list.List[i].Value, nil)
			} else {
				b.element(item, nil, nil)
			}
		}
	}
}

// target is element for an assignment: its left side is an expression.
func (b *binder) target(to, value js.IExpr) {
	switch t := to.(type) {
	case *js.Var:
		b.bind(t, binding{value: value})
	case *js.GroupExpr:
		b.target(t.X, value)
	case *js.ObjectExpr:
		for _, p := range t.List {
			v, ok := p.Value.(*js.Var)
			if !ok || p.Spread {
				continue
			}
			name := string(v.Data)
			if p.Name != nil {
				name = b.propertyName(p.Name)
			}
			b.bind(v, binding{value: value, path: []string{name}})
		}
	case *js.ArrayExpr:
		list, _ := value.(*js.ArrayExpr)
		for i, e := range t.List {
			if v, ok := e.Value.(*js.Var); ok && list != nil && i < len(list.List) {
				b.bind(v, binding{value: list.List[i].Value})
			} else if ok {
				b.bind(v, binding{})
			}
		}
	}
}

func (b *binder) propertyName(p *js.PropertyName) string {
	if p.Computed != nil {
		if name, ok := b.text(p.Computed, 0); ok {
			return name
		}
		return "?"
	}
	if name, ok := unquote(p.Literal.Data); ok {
		return name
	}
	return string(p.Literal.Data)
}

// imports binds what an import statement declares.
func (b *binder) imports(n *js.ImportStmt) {
	name, ok := unquote(n.Module)
	if !ok {
		return
	}
	name = moduleName(name)
	if b.named == nil {
		b.named = map[string]*js.Var{}
		for _, v := range b.scope.Undeclared { // the parser does not declare what is imported
			b.named[string(v.Data)] = root(v)
		}
	}
	declared := func(word []byte) *js.Var { return b.named[string(word)] }
	if v := declared(n.Default); v != nil {
		b.bind(v, binding{module: name})
	}
	for _, a := range n.List {
		v := declared(a.Binding)
		if v == nil {
			continue
		}
		what := string(a.Name)
		if a.Name == nil {
			what = string(a.Binding)
		}
		if t, ok := unquote(a.Name); ok {
			what = t
		}
		to := binding{module: name}
		if what != "*" && what != "default" {
			to.path = []string{what}
		}
		b.bind(v, to)
	}
}

// set is a few names.
type set map[string]bool

const (
	maxNames = 16
	maxDepth = 40
	maxWork  = 10_000_000 // expressions that are looked at
)

func (s set) add(name string) {
	if len(s) < maxNames && len(name) <= maxName {
		s[name] = true
	}
}

func (s set) all(t set) {
	for name := range t {
		s.add(name)
	}
}

// resolve is what an expression may stand for: modules, what the language has
// itself, and members of them.
func (r *reader) resolve(e js.IExpr, depth int) set {
	r.spend()
	out := set{}
	if e == nil || depth > maxDepth {
		return out
	}
	depth++
	switch e := e.(type) {
	case *js.Var:
		r.variable(root(e), out, depth)
	case *js.LiteralExpr:
		if e.TokenType == js.ImportToken {
			out.add("import")
		}
	case *js.DotExpr:
		members(r.resolve(e.X, depth), memberName(e.Y), out)
	case *js.IndexExpr:
		if list, ok := ungroup(e.X).(*js.ArrayExpr); ok {
			for _, item := range list.List {
				out.all(r.resolve(item.Value, depth))
			}
		} else if name, ok := r.text(e.Y, depth); ok {
			members(r.resolve(e.X, depth), name, out)
		}
	case *js.CallExpr:
		r.result(e, out, depth)
	case *js.GroupExpr:
		out.all(r.resolve(e.X, depth))
	case *js.CondExpr:
		out.all(r.resolve(e.X, depth))
		out.all(r.resolve(e.Y, depth))
	case *js.CommaExpr:
		if len(e.List) > 0 {
			out.all(r.resolve(e.List[len(e.List)-1], depth))
		}
	case *js.UnaryExpr:
		if e.Op == js.AwaitToken {
			out.all(r.resolve(e.X, depth))
		}
	case *js.BinaryExpr:
		switch e.Op {
		case js.OrToken, js.AndToken, js.NullishToken:
			out.all(r.resolve(e.X, depth))
			out.all(r.resolve(e.Y, depth))
		case js.EqToken:
			out.all(r.resolve(e.Y, depth))
		}
	}
	return out
}

func ungroup(e js.IExpr) js.IExpr {
	for {
		g, ok := e.(*js.GroupExpr)
		if !ok {
			return e
		}
		e = g.X
	}
}

func (r *reader) variable(v *js.Var, out set, depth int) {
	if v.Decl == js.NoDecl && !slices.ContainsFunc(r.bound[v], func(b binding) bool { return b.module != "" }) {
		name := string(v.Data)
		if name == "global" || name == "window" || name == "self" {
			name = "globalThis"
		}
		out.add(name)
	}
	for _, b := range r.bound[v] {
		names := set{}
		if b.module != "" {
			names.add(b.module)
		} else {
			names = r.resolve(b.value, depth)
		}
		for _, part := range b.path {
			next := set{}
			members(names, part, next)
			names = next
		}
		out.all(names)
	}
}

// members are what is taken of names.
func members(names set, part string, out set) {
	for name := range names {
		switch {
		case part == "" || part == "?":
		case name == "globalThis":
			if part == "global" || part == "window" || part == "self" {
				part = "globalThis"
			}
			out.add(part)
		case part == "bind" || part == "call" || part == "apply" || part == "default" && !strings.Contains(name, "."):
			out.add(name) // the function itself, or the module
		default:
			out.add(name + "." + part)
		}
	}
}

func memberName(e js.IExpr) string {
	switch e := e.(type) {
	case js.LiteralExpr: // the parser has members as values, and all else as pointers
		return string(e.Data)
	case *js.LiteralExpr:
		return string(e.Data)
	case *js.Var:
		return string(e.Data)
	}
	return ""
}

// result is what a call may give.
func (r *reader) result(e *js.CallExpr, out set, depth int) {
	arg := func(i int) js.IExpr {
		if i < len(e.Args.List) && !e.Args.List[i].Rest {
			return e.Args.List[i].Value
		}
		return nil
	}
	if d, ok := e.X.(*js.DotExpr); ok && memberName(d.Y) == "bind" {
		out.all(r.resolve(d.X, depth))
	}
	for f := range r.resolve(e.X, depth) {
		switch {
		case importers[f]:
			name := arg(0)
			if d, ok := e.X.(*js.DotExpr); ok && memberName(d.Y) == "call" {
				name = arg(1)
			}
			if text, ok := r.text(name, depth); ok {
				out.add(moduleName(text))
			}
		case f == "module.createRequire":
			out.add("require")
		case f == "Reflect.get":
			if text, ok := r.text(arg(1), depth); ok {
				members(r.resolve(arg(0), depth), text, out)
			}
		case f == "Object.assign" || f == "Object.freeze" || f == "Object.create" || f == "util.promisify":
			out.all(r.resolve(arg(0), depth))
		}
	}
}
