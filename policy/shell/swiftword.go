// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// call reads a simple command; nil is that there is none, but redirects perhaps.
func (s *swift) call() *syntax.CallExpr {
	assigns, args := s.assignLists.begin(), s.wordLists.begin()
	for !s.stopped {
		s.blanks()
		if s.atRedirect() {
			s.redirect()
			continue
		}
		if s.kindAt(s.i) == ends {
			break
		}
		if n := nameAt(s.text[s.i:]); n > 0 && len(s.wordLists.open) == args {
			if next := s.peek(n); next == '=' {
				s.assignLists.add(s.assign(n))
				continue
			} else if next == '+' || next == '[' {
				s.stop() // x+=y, x[y]=z
				break
			}
		}
		if first := len(s.wordLists.open) == args; first && len(s.redirLists.open) > 0 && s.ownWord() != "" {
			s.stop() // behind a redirect
			break
		}
		s.wordLists.add(s.word())
	}
	c := s.calls.one()
	c.Assigns, c.Args = s.assignLists.end(assigns), s.wordLists.end(args)
	if c.Assigns == nil && c.Args == nil {
		return nil
	}
	return c
}

// nameAt is how long the variable's name is that text begins with.
func nameAt(text string) int {
	n := 0
	for n < len(text) && (text[n] == '_' || 'a' <= text[n]|0x20 && text[n]|0x20 <= 'z' || n > 0 && '0' <= text[n] && text[n] <= '9') {
		n++
	}
	return n
}

// assign reads NAME=VALUE, with n characters of a name.
func (s *swift) assign(n int) *syntax.Assign {
	as := s.assigns.one()
	as.Name = s.literalTo(s.i + n)
	s.skip(1)
	if k := s.kindAt(s.i); k != empty && k != ends {
		as.Value = s.word()
	}
	return as
}

// atRedirect says that a redirect begins here.
func (s *swift) atRedirect() bool {
	i := s.i
	for i < len(s.text) && '0' <= s.text[i] && s.text[i] <= '9' {
		i++
	}
	if i == len(s.text) {
		return false
	}
	c := s.text[i]
	return c == '<' || c == '>' || i == s.i && c == '&' && s.peek(1) == '>'
}

// redirect reads a redirect.
func (s *swift) redirect() {
	r := s.redirs.one()
	n := s.i
	for '0' <= s.text[n] && s.text[n] <= '9' {
		n++
	}
	if n > s.i {
		r.N = s.literalTo(n)
	}
	r.OpPos = s.pos(s.i)
	op, ok := "", false
	for _, o := range redirects {
		if strings.HasPrefix(s.text[s.i:], o.text) {
			op, r.Op, ok = o.text, o.op, true
			break
		}
	}
	s.skip(len(op))
	if next := s.peek(0); !ok || op[0] == '&' && s.dialect != Bash || next == '(' || next == '|' || next == '<' || next == '>' {
		s.stop()
		return
	}
	s.blanks()
	r.Word = s.word()
	s.redirLists.add(r)
}

// redirects are those that are read here, the longer ones first.
var redirects = []struct {
	text string
	op   syntax.RedirOperator
}{{"&>>", syntax.AppAll}, {"&>", syntax.RdrAll}, {">>", syntax.AppOut}, {">&", syntax.DplOut}, {">", syntax.RdrOut}, {"<&", syntax.DplIn}, {"<", syntax.RdrIn}}

// word reads a word.
func (s *swift) word() *syntax.Word {
	w, parts := s.words.one(), s.partLists.begin()
	for !s.stopped {
		switch s.kindAt(s.i) {
		case inWord, escapes, brackets:
			if s.text[s.i] == '#' && len(s.partLists.open) > parts { // "a"#b
				s.stop()
			} else {
				s.partLists.add(s.literal())
			}
			continue
		case apart:
			s.partLists.add(s.part(s.text[s.i]))
			continue
		case strange:
			s.stop()
		}
		break
	}
	if w.Parts = s.partLists.end(parts); w.Parts == nil {
		s.stop()
	}
	return w
}

// literal reads text without quotes.
func (s *swift) literal() *syntax.Lit {
	i := s.i
	for ; i < len(s.text); i++ {
		k := kinds[s.text[i]]
		if k == inWord || k == brackets && i == s.i {
			continue
		}
		if k == escapes && i+1 < len(s.text) && s.text[i+1] >= ' ' && s.text[i+1] < 0x7f {
			i++
			continue
		}
		if k == strange || k == escapes || k == brackets || s.text[s.i] == '{' && (s.text[i] == '<' || s.text[i] == '>') { // {x}>
			s.stop()
			return s.lits.one()
		}
		break
	}
	return s.literalTo(i)
}

// literalTo is the text up to end, which it reads.
func (s *swift) literalTo(end int) *syntax.Lit {
	l := s.lits.one()
	l.ValuePos, l.ValueEnd, l.Value = s.pos(s.i), s.pos(end), s.text[s.i:end]
	s.i = end
	return l
}

// part reads what begins with a quote or a $.
func (s *swift) part(c byte) syntax.WordPart {
	switch c {
	case '\'':
		return s.single()
	case '"':
		return s.double()
	}
	return s.dollar()
}

func (s *swift) single() *syntax.SglQuoted {
	q := s.singles.one()
	q.Left = s.pos(s.i)
	s.skip(1)
	begin := s.i
	for s.i < len(s.text) && s.text[s.i] != '\'' {
		if s.text[s.i] == '\n' {
			s.newLine()
		} else {
			s.skip(1)
		}
	}
	if s.i == len(s.text) {
		s.stop()
		return q
	}
	q.Right, q.Value = s.pos(s.i), s.text[begin:s.i]
	s.skip(1)
	return q
}

func (s *swift) double() *syntax.DblQuoted {
	q, parts := s.doubles.one(), s.partLists.begin()
	q.Left = s.pos(s.i)
	s.skip(1)
	for !s.stopped {
		switch s.peek(0) {
		case 0, '`':
			s.stop()
		case '$':
			s.partLists.add(s.dollar())
			continue
		case '"':
		default:
			s.partLists.add(s.quoted())
			continue
		}
		break
	}
	q.Right, q.Parts = s.pos(s.i), s.partLists.end(parts)
	s.skip(1)
	return q
}

// quoted reads text in double quotes.
func (s *swift) quoted() *syntax.Lit {
	l := s.lits.one()
	l.ValuePos = s.pos(s.i)
	begin := s.i
	for s.i < len(s.text) {
		switch c := s.text[s.i]; {
		case c == '"' || c == '$' || c == '`':
			l.ValueEnd, l.Value = s.pos(s.i), s.text[begin:s.i]
			return l
		case c == '\n':
			s.newLine()
		case c == '\\' && s.peek(1) >= ' ' && s.peek(1) < 0x7f:
			s.skip(2)
		case c == '\\':
			s.stop()
		default:
			s.skip(1)
		}
	}
	s.stop()
	return l
}

// dollar reads a variable or a substitution.
func (s *swift) dollar() syntax.WordPart {
	if s.peek(1) == '(' {
		return s.substitution()
	}
	p := s.params.one()
	p.Dollar, p.Short = s.pos(s.i), s.peek(1) != '{'
	if s.skip(1); !p.Short {
		s.skip(1)
	}
	n := nameAt(s.text[s.i:])
	if n == 0 && p.Short && s.i < len(s.text) && strings.IndexByte("@*#$?!-0123456789", s.text[s.i]) >= 0 {
		n = 1
	}
	if n == 0 || !p.Short && s.peek(n) != '}' {
		s.stop()
		return p
	}
	p.Param = s.literalTo(s.i + n)
	if !p.Short {
		p.Rbrace = s.pos(s.i)
		s.skip(1)
	}
	return p
}

func (s *swift) substitution() *syntax.CmdSubst {
	c := s.substs.one()
	c.Left = s.pos(s.i)
	if s.skip(2); s.peek(0) == '(' {
		s.stop()
		return c
	}
	c.Stmts = s.list()
	if s.peek(0) != ')' {
		s.stop()
		return c
	}
	c.Right = s.pos(s.i)
	s.skip(1)
	return c
}
