// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Where a sum or an expansion fails, or what is read-only is set, bash leaves out what
// is left of the line, and goes on with the next one: in
//
//	echo $((1/0)); rm() { ls; }
//	rm x
//
// rm is no function, but a program. So what a text says at its top is certain only
// where nothing before it on its line can fail so.

// lineErrors goes through the statements of a text's own.
type lineErrors struct {
	text string
	at   int  // the last statement that was looked at
	out  bool // it may be left out

	searched, trap bool // for the word

	funcs              map[string]bool // every function of the text: its body may fail so
	readonly, failglob bool            // words of the text
}

// reached says that the shell certainly comes to the statement i, if it goes on at all.
// It is asked in their order.
func (e *lineErrors) reached(f *syntax.File, i int) bool {
	first := i // on the line, as far as it was not looked at
	for first > e.at && f.Stmts[first-1].End().Line() >= f.Stmts[first].Pos().Line() {
		first--
	}
	if first > e.at {
		e.at, e.out = first, false
	}
	for ; e.at < i; e.at++ {
		if e.funcs == nil {
			e.look(f)
		}
		e.out = e.out || e.may(f.Stmts[e.at])
	}
	if i > 0 && !e.searched {
		e.searched, e.trap = true, strings.Contains(e.text, "trap")
	}
	return !e.out && !e.trap // which may run before any command
}

func (e *lineErrors) look(f *syntax.File) {
	e.funcs = map[string]bool{}
	syntax.Walk(f, func(n syntax.Node) bool {
		if fn, ok := n.(*syntax.FuncDecl); ok && fn.Name != nil {
			e.funcs[fn.Name.Value] = true
		}
		return true
	})
	e.failglob = strings.Contains(e.text, "failglob")
	for _, word := range []string{"readonly", "declare", "typeset", "local"} {
		e.readonly = e.readonly || strings.Contains(e.text, word)
	}
}

// may says that a statement may fail so that the rest of its line is left out.
func (e *lineErrors) may(st *syntax.Stmt) (may bool) {
	syntax.Walk(st, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.FuncDecl, *syntax.CmdSubst, *syntax.ProcSubst, *syntax.Subshell:
			return false // it runs later, or in a shell of its own
		case *syntax.ArithmExp: // but not ((…)), [[ … ]] and builtins, which only fail
			may = true
		case *syntax.ForClause:
			if l, ok := n.Loop.(*syntax.WordIter); ok {
				may = may || e.readonly || integer(l.Name.Value)
			}
		case *syntax.ParamExp:
			may = may || !bare(n)
		case *syntax.Lit:
			may = may || e.failglob && strings.ContainsAny(n.Value, "*?[")
		case *syntax.Assign:
			may = may || e.readonly || n.Name == nil || n.Index != nil || integer(n.Name.Value) || neverSet(n.Name.Value) || shellSets(n.Name.Value)
		case *syntax.CallExpr:
			if len(n.Args) > 0 {
				may = may || e.mayCall(n.Args[0])
			}
		}
		return !may
	})
	return may
}

// mayCall: what a function does may fail, and so may what is read from elsewhere.
func (e *lineErrors) mayCall(name *syntax.Word) bool {
	switch text, known := asWritten(name); text {
	case "eval", ".", "source", "command", "builtin", "trap":
		return true
	default:
		return !known || e.funcs[text]
	}
}
