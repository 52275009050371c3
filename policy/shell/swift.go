// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Of what is not plain, most is still made of little: words with quotes, variables and
// substitutions, redirects, assignments, loops, if. Such texts are read here, into the
// very tree that the parser makes of them, at a fraction of its cost. Where anything else
// stands the whole text is the parser's, and so is every error. FuzzSwift holds that no
// tree differs from the parser's.

// swift reads one text.
type swift struct {
	*tree
	text    string
	dialect Dialect
	i       int  // how far it is read
	line    int  // there, from 1
	start   int  // where that line begins
	depth   int  // of what stands within another
	stopped bool // it is the parser's
}

// read makes the tree of a text, which is to be freed; nil is that it is the parser's.
func read(text string, d Dialect) (*syntax.File, *tree) {
	s := &swift{tree: trees.Get().(*tree), text: text, dialect: d, line: 1}
	list := s.list("", "", "")
	if s.stopped || s.i < len(text) {
		s.free()
		return nil, nil
	}
	return &syntax.File{Stmts: list}, s.tree
}

// stop leaves the text to the parser; nothing more is read.
func (s *swift) stop() { s.stopped, s.i = true, len(s.text) }

// skip passes over n characters.
func (s *swift) skip(n int) { s.i = min(s.i+n, len(s.text)) }

// pos is the place i, in the line that is being read.
func (s *swift) pos(i int) syntax.Pos {
	return syntax.NewPos(uint(i), uint(s.line), uint(i-s.start+1))
}

// peek is the character n behind the next; 0 is the end.
func (s *swift) peek(n int) byte {
	if s.i+n < len(s.text) {
		return s.text[s.i+n]
	}
	return 0
}

// What a character is, where a word may stand.
const (
	strange = iota // not read here
	inWord
	empty    // between words
	ends     // a command, or what is a redirect
	apart    // a part of a word that is no plain text
	escapes  // what follows is text
	brackets // begins text alone
)

var kinds = func() (k [256]uint8) {
	for c := range k {
		switch {
		case c == ' ', c == '\t':
			k[c] = empty
		case strings.IndexByte("\n;&|<>)", byte(c)) >= 0:
			k[c] = ends
		case c == '\'', c == '"', c == '$':
			k[c] = apart
		case c == '\\':
			k[c] = escapes
		case c == '[':
			k[c] = brackets
		case c == '(', c == '`', c < ' ', c == 0x7f:
		default:
			k[c] = inWord
		}
	}
	return k
}()

// blanks passes over blanks, and over a comment: at its end the line is.
func (s *swift) blanks() {
	for s.i < len(s.text) && kinds[s.text[s.i]] == empty {
		s.skip(1)
	}
	if s.peek(0) == '#' {
		if n := strings.IndexByte(s.text[s.i:], '\n'); n >= 0 {
			s.skip(n)
		} else {
			s.i = len(s.text)
		}
	}
}

// lines passes over blanks and line breaks, and says whether there was one of these.
func (s *swift) lines() (broken bool) {
	for s.blanks(); s.peek(0) == '\n'; s.blanks() {
		s.newLine()
		broken = true
	}
	return broken
}

// newLine reads a line break.
func (s *swift) newLine() {
	s.skip(1)
	s.line, s.start = s.line+1, s.i
}

// list reads statements up to one of the words, or to what cannot begin one.
func (s *swift) list(until ...string) []*syntax.Stmt {
	if s.depth++; s.depth > maxDepth {
		s.stop()
	}
	begin := s.stmtLists.begin()
	for apart := true; ; {
		apart = s.lines() || apart
		if s.i == len(s.text) || s.text[s.i] == ')' || s.atWord(until) {
			break
		}
		if !apart {
			s.stop()
			break
		}
		st := s.andOr()
		s.blanks()
		if apart = s.separator(st); s.stopped {
			break
		}
		s.stmtLists.add(st)
	}
	s.depth--
	return s.stmtLists.end(begin)
}

// separator reads the ; or & behind a statement.
func (s *swift) separator(st *syntax.Stmt) bool {
	c := s.peek(0)
	if c != ';' && c != '&' {
		return false
	}
	if next := s.peek(1); next == ';' || next == '&' || next == '|' {
		s.stop()
		return false
	}
	st.Semicolon, st.Background = s.pos(s.i), c == '&'
	s.skip(1)
	return true
}

// atWord says whether one of the words stands there by itself.
func (s *swift) atWord(words []string) bool {
	for _, w := range words {
		if w != "" && strings.HasPrefix(s.text[s.i:], w) {
			if k := s.kindAt(s.i + len(w)); k == empty || k == ends {
				return true
			}
		}
	}
	return false
}

// kindAt is what the character at i is; behind the text it is one that ends.
func (s *swift) kindAt(i int) uint8 {
	if i >= len(s.text) {
		return ends
	}
	return kinds[s.text[i]]
}

// follows reads a word of the shell's own, and gives its place.
func (s *swift) follows(word string) syntax.Pos {
	s.blanks()
	p := s.pos(s.i)
	if !s.atWord([]string{word}) {
		s.stop()
		return p
	}
	s.skip(len(word))
	return p
}

// some reads the statements up to one of the words, of which there is at least one.
func (s *swift) some(until ...string) []*syntax.Stmt {
	s.blanks()
	list := s.list(until...)
	if len(list) == 0 {
		s.stop()
	}
	return list
}

// andOr reads pipelines with && and || between them.
func (s *swift) andOr() *syntax.Stmt {
	st := s.pipeline()
	for !s.stopped {
		s.blanks()
		c := s.peek(0)
		if c != '&' && c != '|' || s.peek(1) != c {
			break
		}
		b := s.binaries.one()
		b.OpPos, b.Op, b.X = s.pos(s.i), syntax.AndStmt, st
		if c == '|' {
			b.Op = syntax.OrStmt
		}
		s.skip(2)
		s.lines()
		b.Y = s.pipeline()
		st = s.around(b, st)
	}
	return st
}

// around is the statement that a list or a pipe is.
func (s *swift) around(b *syntax.BinaryCmd, first *syntax.Stmt) *syntax.Stmt {
	st := s.stmts.one()
	st.Position, st.Cmd = first.Position, b
	return st
}

// pipeline reads commands with | between them.
func (s *swift) pipeline() *syntax.Stmt {
	st := s.statement()
	for !s.stopped {
		s.blanks()
		if s.peek(0) != '|' || s.peek(1) == '|' {
			break
		}
		if s.peek(1) == '&' {
			s.stop()
			break
		}
		b := s.binaries.one()
		b.OpPos, b.Op, b.X = s.pos(s.i), syntax.Pipe, st
		s.skip(1)
		s.lines()
		b.Y = s.statement()
		st = s.around(b, st)
	}
	return st
}

// statement reads one command with its redirects.
func (s *swift) statement() *syntax.Stmt {
	st := s.stmts.one()
	st.Position = s.pos(s.i)
	redirs := s.redirLists.begin()
	switch own := s.ownWord(); own {
	case "":
		if call := s.call(); call != nil {
			st.Cmd = call
		}
	case "for":
		st.Cmd = s.forLoop()
	case "while", "until":
		st.Cmd = s.whileLoop(own)
	case "if":
		st.Cmd = s.ifClause()
	default:
		s.stop()
	}
	for s.blanks(); s.atRedirect() && !s.stopped; s.blanks() {
		s.redirect()
	}
	st.Redirs = s.redirLists.end(redirs)
	if st.Cmd == nil && st.Redirs == nil {
		s.stop()
	}
	return st
}

// ownWord is the word there, if it is one of the shell's own.
func (s *swift) ownWord() string {
	end := s.i
	for end < len(s.text) && (kinds[s.text[end]] == inWord || s.text[end] == '[') {
		end++
	}
	word := s.text[s.i:end]
	switch word {
	case "{", "}", "{}", "!", "[[", "]]":
	default:
		if !ownWord(word) {
			return ""
		}
	}
	if k := s.kindAt(end); k != empty && k != ends {
		s.stop() // "if", in quotes or in part
	}
	return word
}

func (s *swift) forLoop() *syntax.ForClause {
	f, iter := s.fors.one(), s.iters.one()
	f.ForPos, f.Loop = s.pos(s.i), iter
	s.skip(len("for"))
	s.blanks()
	n := nameAt(s.text[s.i:])
	if k := s.kindAt(s.i + n); n == 0 || k != empty && s.peek(n) != '\n' {
		s.stop()
		return f
	}
	iter.Name = s.literalTo(s.i + n)
	s.lines()
	iter.InPos = s.follows("in")
	items := s.wordLists.begin()
	for s.blanks(); s.kindAt(s.i) != ends && !s.stopped; s.blanks() {
		s.wordLists.add(s.word())
	}
	iter.Items = s.wordLists.end(items)
	switch s.peek(0) {
	case ';':
		s.skip(1)
		s.lines()
	case '\n':
		s.lines()
	default:
		s.stop()
	}
	f.DoPos = s.follows("do")
	f.Do = s.some("done")
	f.DonePos = s.follows("done")
	return f
}

func (s *swift) whileLoop(word string) *syntax.WhileClause {
	w := s.whiles.one()
	w.WhilePos, w.Until = s.pos(s.i), word == "until"
	s.skip(len(word))
	w.Cond = s.some("do")
	w.DoPos = s.follows("do")
	w.Do = s.some("done")
	w.DonePos = s.follows("done")
	return w
}

func (s *swift) ifClause() *syntax.IfClause {
	first := s.ifs.one()
	last, word := first, "if"
	for {
		last.Position = s.pos(s.i)
		s.skip(len(word))
		if word != "else" {
			last.Cond = s.some("then")
			last.ThenPos = s.follows("then")
			last.Then = s.some("fi", "elif", "else")
		} else {
			last.Then = s.some("fi")
		}
		switch {
		case word != "else" && s.atWord([]string{"elif"}):
			word = "elif"
		case word != "else" && s.atWord([]string{"else"}):
			word = "else"
		default:
			end := s.follows("fi")
			for i := first; i != nil; i = i.Else {
				i.FiPos = end
			}
			return first
		}
		last.Else = s.ifs.one()
		last = last.Else
	}
}
