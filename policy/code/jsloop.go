// SPDX-License-Identifier: Apache-2.0

package code

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/tdewolff/parse/v2/js"
)

// maxLoops is how many are looked for in the text.
const maxLoops = 200

// forever says that a condition is always true.
func (r *reader) forever(e js.IExpr) bool {
	switch e := ungroup(e).(type) {
	case *js.LiteralExpr:
		switch e.TokenType {
		case js.TrueToken:
			return true
		case js.StringToken:
			return len(e.Data) > 2
		}
		return isNumber(e) && len(bytes.Trim(e.Data, "0.xXbBoOn_")) > 0
	case *js.UnaryExpr:
		return e.Op == js.NotToken && r.never(e.X)
	case *js.Var:
		b := r.bound[root(e)]
		return len(b) == 1 && b[0].value != nil && len(b[0].path) == 0 && r.constant(b[0].value)
	case *js.ArrayExpr, *js.ObjectExpr:
		return true
	}
	return false
}

// constant is forever for what a variable is set to, once.
func (r *reader) constant(e js.IExpr) bool {
	if _, again := ungroup(e).(*js.Var); again {
		return false
	}
	return r.forever(e)
}

// never says that a condition is always false.
func (r *reader) never(e js.IExpr) bool {
	switch e := ungroup(e).(type) {
	case *js.LiteralExpr:
		return e.TokenType == js.FalseToken || e.TokenType == js.NullToken || isNumber(e) && len(bytes.Trim(e.Data, "0.xXbBoOn_")) == 0 ||
			e.TokenType == js.StringToken && len(e.Data) == 2
	case *js.UnaryExpr:
		return e.Op == js.NotToken && r.forever(e.X)
	}
	return false
}

func isNumber(e *js.LiteralExpr) bool {
	return len(e.Data) > 0 && (e.Data[0] >= '0' && e.Data[0] <= '9' || e.Data[0] == '.')
}

// leaves says whether a loop's body may leave it: by a break of its own or one
// with a label, or by ending what is around it.
func (r *reader) leaves(body js.INode) bool {
	l := &leaver{reader: r}
	js.Walk(l, body)
	return l.out
}

type leaver struct {
	*reader
	inner int // loops and switches around, within the body
	out   bool
}

func (l *leaver) Enter(n js.INode) js.IVisitor {
	l.spend()
	switch n := n.(type) {
	case *js.FuncDecl, *js.ArrowFunc, *js.MethodDecl, *js.ClassDecl:
		return nil
	case *js.ReturnStmt, *js.ThrowStmt, *js.YieldExpr:
		l.out = true
	case *js.BranchStmt:
		l.out = l.out || n.Type == js.BreakToken && (l.inner == 0 || n.Label != nil) || n.Type == js.ContinueToken && n.Label != nil
	case *js.CallExpr:
		if d, ok := n.X.(*js.DotExpr); ok {
			of, name := memberName(d.X), memberName(d.Y)
			l.out = l.out || (of == "process" || of == "Deno") && (name == "exit" || name == "abort" || name == "kill")
		}
	case *js.WhileStmt, *js.DoWhileStmt, *js.ForStmt, *js.ForInStmt, *js.ForOfStmt, *js.SwitchStmt:
		l.inner++
	}
	return l
}

func (l *leaver) Exit(n js.INode) {
	switch n.(type) {
	case *js.WhileStmt, *js.DoWhileStmt, *js.ForStmt, *js.ForInStmt, *js.ForOfStmt, *js.SwitchStmt:
		l.inner--
	}
}

func (r *reader) loop(at int) {
	r.loops = append(r.loops, at)
	r.note(&r.facts.Loops, at, strconv.Itoa(at), "")
}

// word finds a loop's keyword, of which the parser keeps no place: the last one
// before at that is no other loop's, else the next one.
func (r *reader) word(word string, at int) int {
	if len(r.loops) >= maxLoops {
		return at
	}
	for end := min(at+len(word), len(r.src)); end > 0; {
		i := bytes.LastIndex(r.src[:end], []byte(word))
		if i < 0 {
			break
		}
		if r.alone(i, len(word)) && !slices.Contains(r.loops, i) {
			return i
		}
		end = i + len(word) - 1
	}
	for i := at; i < len(r.src); i++ {
		if bytes.HasPrefix(r.src[i:], []byte(word)) && r.alone(i, len(word)) && !slices.Contains(r.loops, i) {
			return i
		}
	}
	return min(at, len(r.src))
}

// alone says whether src[i:i+n] is a word of its own.
func (r *reader) alone(i, n int) bool {
	letter := func(j int) bool {
		return j >= 0 && j < len(r.src) && (r.src[j] == '_' || r.src[j] == '$' || r.src[j] >= '0' && r.src[j] <= '9' || r.src[j]|0x20 >= 'a' && r.src[j]|0x20 <= 'z')
	}
	return !letter(i-1) && !letter(i+n)
}
