// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// bash evaluates the value of a variable in arithmetic as an expression of its
// own, and a subscript in that may hold a command: with x='a[$(id)]', $((x))
// runs id. So only numbers, and variables that can hold nothing else, are
// taken.

const numbersOnly = "give the variable a number in the same line, or compare with [ ] in place of [[ ]] and (( ))"

// numeric says of the variables that f gives values to whether these are all
// numbers. A name that is read by read, printf -v and their like holds
// anything; where a line within f could change variables, it is nil.
func numeric(f *syntax.File) map[string]bool {
	good, bad, shared := map[string]bool{}, map[string]bool{}, false
	note := func(name string, ok bool) {
		if ok {
			good[name] = true
		} else {
			bad[name] = true
		}
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name != nil && !(n.Naked && n.Value == nil) {
				note(n.Name.Value, n.Array == nil && isNumber(n.Value) && !n.Append)
			}
		case *syntax.ForClause:
			if l, ok := n.Loop.(*syntax.WordIter); ok {
				all := l.InPos.IsValid()
				for _, w := range l.Items {
					all = all && (isNumber(w) || isRange(w))
				}
				note(l.Name.Value, all)
			}
		case *syntax.BinaryArithm:
			if w, ok := n.X.(*syntax.Word); ok && n.Op == syntax.Assgn {
				note(w.Lit(), true) // the result of an expression, which is judged itself
			}
		case *syntax.ParamExp:
			if n.Exp != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) && n.Param != nil {
				bad[n.Param.Value] = true
			}
		case *syntax.Redirect:
			if n.N != nil {
				bad[strings.Trim(n.N.Value, "{}")] = true
			}
		case *syntax.DeclClause:
			for _, a := range n.Args {
				// local 'i=…': the name is in the value. Options are judged elsewhere.
				if a.Name == nil && a.Value != nil && !strings.HasPrefix(a.Value.Lit(), "-") {
					shared = true
				}
			}
		case *syntax.CallExpr:
			if len(n.Args) == 0 {
				break
			}
			switch first := n.Args[0].Lit(); first {
			case "eval", ".", "source", "trap", "", "builtin", "command":
				shared = true
			case "unset": // some names mean something until they are
				shared = shared || !namesIn(first, n.Args[1:], func(name string) {
					if name != strings.ToLower(name) {
						bad[name] = true
					}
				})
			case "read", "mapfile", "readarray", "getopts", "printf", "wait", "export", "readonly", "local", "declare", "typeset":
				shared = shared || !namesIn(first, n.Args[1:], func(name string) { bad[name] = true })
			default:
				shared = shared || strings.Contains(first, `\`)
			}
		}
		return true
	})
	if shared {
		return nil
	}
	for name := range bad {
		good[name] = false
	}
	return good
}

// namesIn tells of every name that the words of a builtin may give a value to, an
// option with a name behind it (printf -vNAME) among them. It is false where one of
// them cannot be read off: quotes or several parts make a name that cannot be seen.
func namesIn(builtin string, words []*syntax.Word, tell func(string)) bool {
	for i, w := range words {
		lit := w.Lit()
		if lit == "" || strings.Contains(lit, `\`) {
			// printf's text is in quotes most times, and nothing behind it is a name.
			return builtin == "printf" && noOption(w) && (i == 0 || words[i-1].Lit() != "-v")
		}
		name, _, _ := strings.Cut(lit, "=")
		tell(name)
		for j := 1; j < len(name) && name[0] == '-'; j++ {
			tell(name[j:])
		}
	}
	return true
}

// noOption says that a word with quotes certainly does not begin as an option.
func noOption(w *syntax.Word) bool {
	part := w.Parts[0]
	if q, ok := part.(*syntax.DblQuoted); ok && len(q.Parts) > 0 && !q.Dollar {
		l, isText := q.Parts[0].(*syntax.Lit)
		return isText && l.Value != "" && l.Value[0] != '-' && !strings.HasPrefix(l.Value, "\\\n")
	}
	q, ok := part.(*syntax.SglQuoted)
	return ok && !q.Dollar && q.Value != "" && q.Value[0] != '-'
}

// isNumber: a decimal number, an arithmetic expansion, or a length.
func isNumber(w *syntax.Word) bool {
	if w == nil || len(w.Parts) != 1 {
		return false
	}
	part := w.Parts[0]
	if q, ok := part.(*syntax.DblQuoted); ok && len(q.Parts) == 1 && !q.Dollar {
		part = q.Parts[0]
	}
	switch p := part.(type) {
	case *syntax.Lit:
		return digits(strings.TrimPrefix(p.Value, "-"))
	case *syntax.ArithmExp:
		return true
	case *syntax.ParamExp:
		return p.Length
	}
	return false
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// isRange: {1..10}.
func isRange(w *syntax.Word) bool {
	s := w.Lit()
	return strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") && strings.Contains(s, "..") && strings.Trim(s, "{}.-0123456789") == ""
}

// given says of the variables that the text gives values to whether these are all
// numbers; nil where that cannot be told.
func (s *scope) given() map[string]bool {
	if s.unasked != nil {
		s.numbers, s.firsts, s.unasked = numeric(s.unasked), certain(s.unasked, s.text), nil
	}
	return s.numbers
}

// inherited says that a variable may have come with the environment, and may still hold
// what it had there: its name is in capitals, and the text has not certainly given it
// a number before.
func (s *scope) inherited(name string, at syntax.Pos) bool {
	if 'a' <= name[0] && name[0] <= 'z' {
		return false
	}
	first, ok := s.firsts[name]
	return !ok || first > at.Offset()
}

// certain says from where on variables hold the number that the text gives them,
// whatever happens before: at its top, on no condition, in digits, which nothing can
// go wrong with, and to none that may be read-only.
func certain(f *syntax.File, text string) map[string]uint {
	var from map[string]uint
	before := &lineErrors{text: text}
	for i, st := range f.Stmts {
		for b, ok := st.Cmd.(*syntax.BinaryCmd); ok && (b.Op == syntax.AndStmt || b.Op == syntax.OrStmt); b, ok = st.Cmd.(*syntax.BinaryCmd) {
			st = b.X
		}
		if st.Background || st.Coprocess {
			continue
		}
		countsIn(st.Cmd, func(name string, value *syntax.Word) {
			if _, had := from[name]; had || !before.reached(f, i) {
				return
			}
			if from == nil {
				from = map[string]uint{}
			}
			from[name] = value.Pos().Offset()
		})
	}
	if len(from) == 0 || !strings.Contains(text, "readonly") && !strings.Contains(text, "declare") && !strings.Contains(text, "typeset") {
		return from
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		if d, ok := n.(*syntax.DeclClause); ok {
			for _, as := range d.Args {
				if d.Variant.Value != "export" && as.Name != nil && as.Naked {
					delete(from, as.Name.Value)
				}
			}
		}
		return true
	})
	return from
}

// countsIn tells of the variables that a command gives a number in digits.
func countsIn(c syntax.Command, tell func(name string, value *syntax.Word)) {
	assigns := func(list []*syntax.Assign) {
		for _, as := range list {
			if as.Name != nil && as.Index == nil && !as.Naked && isNumber(as.Value) && !hasSum(as.Value) {
				tell(as.Name.Value, as.Value)
			}
		}
	}
	switch c := c.(type) {
	case *syntax.CallExpr:
		if len(c.Args) == 0 {
			assigns(c.Assigns)
		}
	case *syntax.DeclClause:
		if c.Variant.Value != "local" {
			assigns(c.Args)
		}
	case *syntax.ForClause:
		if l, ok := c.Loop.(*syntax.WordIter); ok && len(l.Items) > 0 && (isRange(l.Items[0]) || digits(l.Items[0].Lit())) {
			tell(l.Name.Value, l.Items[0])
		}
	}
}

// hasSum says that a number has to be worked out, which may fail.
func hasSum(w *syntax.Word) bool {
	part := w.Parts[0]
	if q, ok := part.(*syntax.DblQuoted); ok {
		part = q.Parts[0]
	}
	_, text := part.(*syntax.Lit)
	return !text
}

// number says that a variable holds a number there, whatever happens.
func (s *scope) number(name string, at syntax.Pos) bool {
	switch name {
	case "#", "?", "$", "!", "UID", "EUID", "PPID":
		return true
	case "RANDOM", "SECONDS", "LINENO", "BASHPID", "EPOCHSECONDS", "SHLVL", "BASH_SUBSHELL":
		// Plain variables once they were unset, and some of them before.
		given, said := s.given()[name]
		return s.numbers != nil && (given || !said)
	}
	return s.given()[name] && !steers(name) && !shellSets(name) && !s.inherited(name, at)
}

// shellSets: variables that bash gives values to by itself, which a text that gives
// them a number does not know.
func shellSets(name string) bool {
	switch name {
	case "_", "REPLY", "MAPFILE", "OPTARG", "COPROC", "PWD", "OLDPWD", "DIRSTACK", "FUNCNAME", "PIPESTATUS", "GROUPS", "HOSTNAME", "HOSTTYPE", "MACHTYPE", "OSTYPE":
		return true
	}
	return strings.HasPrefix(name, "BASH") || strings.HasPrefix(name, "COMP_") || strings.HasPrefix(name, "READLINE_")
}

// arith judges an expression.
func (s *scope) arith(x syntax.ArithmExpr) {
	switch x := x.(type) {
	case nil:
	case *syntax.BinaryArithm:
		s.arith(x.X)
		s.arith(x.Y)
	case *syntax.UnaryArithm:
		s.arith(x.X)
	case *syntax.ParenArithm:
		s.arith(x.X)
	case *syntax.Word:
		for _, p := range x.Parts {
			s.operand(p)
		}
	default:
		s.refuse(s.at(x.Pos()), "", "%s cannot be judged", s.source(x))
	}
}

// operand judges a part of a number, or of a variable's name, in arithmetic.
func (s *scope) operand(p syntax.WordPart) {
	switch p := p.(type) {
	case *syntax.Lit:
		v := strings.TrimSpace(p.Value)
		if v == "" || v[0] >= '0' && v[0] <= '9' && strings.Trim(v, "0123456789abcdefABCDEFxX") == "" || s.number(v, p.Pos()) {
			return
		}
	case *syntax.DblQuoted:
		for _, q := range p.Parts {
			s.operand(q)
		}
		return
	case *syntax.ArithmExp:
		s.arith(p.X)
		return
	case *syntax.ParamExp:
		s.param(p)
		// An index into a list gives any text; a length a number.
		if p.Length || p.Param != nil && p.Index == nil && p.Exp == nil && p.Repl == nil && !p.Excl && s.number(p.Param.Value, p.Pos()) {
			return
		}
	default:
		s.expansion(p)
	}
	s.refuse(s.at(p.Pos()), numbersOnly, "%s in arithmetic may be any text, and text there may hold a command: x[$(…)]", s.source(p))
}

// subscript judges an index of a list. A word in it is a key or the name of a
// variable, which only the shell knows. One that the text gives no value has none,
// unless the shell does: $_ is the last argument, REPLY what was read. Those are in
// capitals, or begin with _.
func (s *scope) subscript(x syntax.ArithmExpr) {
	if w, ok := x.(*syntax.Word); ok && s.given() != nil {
		key := s.word(w)
		given, said := s.numbers[key.Text]
		if key.Static && syntax.ValidName(key.Text) && (given && !shellSets(key.Text) && !s.inherited(key.Text, w.Pos()) || !said && key.Text[0] >= 'a') {
			return
		}
	}
	s.arith(x)
}

// test judges [[ … ]].
func (s *scope) test(x syntax.TestExpr) {
	switch x := x.(type) {
	case nil:
	case *syntax.Word:
		s.word(x)
	case *syntax.ParenTest:
		s.test(x.X)
	case *syntax.UnaryTest:
		w, ok := x.X.(*syntax.Word)
		if (x.Op == syntax.TsVarSet || x.Op == syntax.TsRefVar) && ok {
			if v := s.word(w); !v.Static || !syntax.ValidName(v.Text) {
				s.refuse(s.at(w.Pos()), "name a variable", "-v takes a name, and %s may hold a command", v.Text)
			}
			return
		}
		s.test(x.X)
	case *syntax.BinaryTest:
		switch x.Op {
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			for _, side := range []syntax.TestExpr{x.X, x.Y} {
				if w, ok := side.(*syntax.Word); ok {
					s.arith(w)
				} else {
					s.test(side)
				}
			}
			return
		}
		s.test(x.X)
		s.test(x.Y)
	default:
		s.refuse(s.at(x.Pos()), "", "%s cannot be judged", s.source(x))
	}
}
