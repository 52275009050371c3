// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// stdin is what a command reads.
type stdin struct {
	outside bool    // what the whole line reads
	text    *string // this, when it is in the line
	what    string  // "a pipe", for messages
}

func (s *scope) nested(list []*syntax.Stmt, in stdin) {
	if s.depth++; s.depth > maxDepth {
		if len(list) > 0 {
			s.refuse(s.at(list[0].Pos()), "write it flatter", "commands within commands are too deep")
		}
	} else {
		s.stmts(list, in)
	}
	s.depth--
}

func (s *scope) stmts(list []*syntax.Stmt, in stdin) {
	for _, st := range list {
		s.stmt(st, in)
	}
}

func (s *scope) stmt(st *syntax.Stmt, in stdin) {
	if st == nil {
		return
	}
	if st.Coprocess || st.Disown {
		s.refuse(s.at(st.Pos()), "", "this is not of this shell")
	}
	for _, r := range st.Redirs {
		in = s.redirect(r, in)
	}
	if _, simple := st.Cmd.(*syntax.CallExpr); !simple && len(st.Redirs) > 0 {
		in.text = nil // one command may have read a part of it before another
	}
	s.command(st.Cmd, in)
}

func (s *scope) command(c syntax.Command, in stdin) {
	switch c := c.(type) {
	case nil:
	case *syntax.CallExpr:
		s.call(c, in)
	case *syntax.BinaryCmd:
		// A long list is deep on one side; it is no nesting.
		s.stmt(c.X, in)
		if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			in = stdin{what: "a pipe"}
		}
		s.stmt(c.Y, in)
	case *syntax.Subshell:
		if s.dialect == POSIX && strings.HasPrefix(s.text[c.Lparen.Offset():], "((") {
			s.refuse(s.at(c.Lparen), "leave a space between them", "what (( begins is a sum to some shells, and a sum evaluates text")
		}
		s.nested(c.Stmts, in)
	case *syntax.Block:
		s.nested(c.Stmts, in)
	case *syntax.IfClause:
		for i := c; i != nil; i = i.Else {
			s.nested(i.Cond, in)
			s.nested(i.Then, in)
		}
	case *syntax.WhileClause:
		s.nested(c.Cond, in)
		s.nested(c.Do, in)
	case *syntax.ForClause:
		s.loop(c, in)
	case *syntax.CaseClause:
		s.word(c.Word)
		for _, item := range c.Items {
			for _, p := range item.Patterns {
				s.word(p)
			}
			s.nested(item.Stmts, in)
		}
	case *syntax.FuncDecl:
		s.function(c)
	case *syntax.TestClause:
		s.test(c.X)
	case *syntax.ArithmCmd:
		s.arith(c.X)
	case *syntax.LetClause: // bash takes 1<<2 for a here-document there, and a>b for a file
		s.refuse(s.at(c.Let), "write (( … ))", "let evaluates text")
	case *syntax.DeclClause:
		s.declare(c)
	case *syntax.TimeClause:
		s.stmt(c.Stmt, in)
	case *syntax.CoprocClause: // shells and the parser differ in which word is its name
		s.refuse(s.at(c.Pos()), "use a pipe or &", "coproc is not judged")
	default:
		s.refuse(s.at(c.Pos()), "", "%s cannot be judged", s.source(c))
	}
}

func (s *scope) loop(c *syntax.ForClause, in stdin) {
	switch l := c.Loop.(type) {
	case *syntax.WordIter:
		if c.Select {
			s.readsOn(Word{Text: "read", Static: true, At: s.at(c.Pos())}, in)
		}
		for _, w := range l.Items {
			s.word(w)
		}
		s.assigned(l.Name.Value, Word{}, s.at(l.Pos()), false)
	case *syntax.CStyleLoop:
		s.arith(l.Init)
		s.arith(l.Cond)
		s.arith(l.Post)
	}
	s.nested(c.Do, in)
}

// function judges a function's body where it is written, whether it is called
// or not, and whatever it reads.
func (s *scope) function(c *syntax.FuncDecl) {
	if c.Name == nil || s.dialect == POSIX && c.RsrvWord {
		s.refuse(s.at(c.Pos()), "write name() { …; }", "this is no function of every shell")
		return
	}
	if isBuiltin(c.Name.Value) {
		s.refuse(s.at(c.Pos()), "give it another name", "shells differ in whether %s is the function then or the builtin", c.Name.Value)
	}
	s.nested([]*syntax.Stmt{c.Body}, stdin{what: "what its caller gives it"})
}

// redirect judges one redirect and says what the command reads then.
func (s *scope) redirect(r *syntax.Redirect, in stdin) stdin {
	if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
		s.name(Word{Text: strings.Trim(r.N.Value, "{}"), Static: true, At: s.at(r.Pos())})
	}
	first := r.N == nil || strings.Trim(r.N.Value, "0") == ""
	if r.N != nil && s.dialect == POSIX && len(r.N.Value) > 1 {
		s.refuse(s.at(r.Pos()), "use a descriptor of one digit", "%s is a word to some shells", r.N.Value)
	}
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		if body := s.hereText(r); first {
			in = stdin{what: "a here-document", text: body}
		}
		return in
	case syntax.WordHdoc:
		w := s.word(r.Word)
		if first {
			in = stdin{what: "text"}
			if w.Static {
				text := w.Text + "\n"
				in.text = &text
			}
		}
		return in
	}
	w := s.word(r.Word)
	write := r.Op != syntax.RdrIn
	switch {
	case r.Op == syntax.DplIn || r.Op == syntax.DplOut:
		if !w.Static && !s.isDescriptor(r.Word) || w.Static && strings.ContainsAny(w.Text, "$`<>()[]{}*?~\\'\"") {
			// bash expands the word of >& a second time, when it is no descriptor.
			s.refuse(w.At, "write &> or the descriptor's number", "%s may be expanded twice, and hold a command", w.Text)
		}
		if w.Static && len(w.Text) > 1 && w.Text[0] == '-' {
			s.refuse(w.At, "leave a space before the word", "%s closes a descriptor, and what follows is a word to some shells", w.Text)
		}
		if w.Static && (strings.Trim(w.Text, "0123456789") == "" || w.Text == "-" || strings.TrimRight(w.Text, "-") != w.Text) {
			if first && r.Op == syntax.DplIn {
				in = stdin{what: "another descriptor"}
			}
			return in // a descriptor, no file
		}
	case first && (r.Op == syntax.RdrIn || r.Op == syntax.RdrInOut):
		in = stdin{what: "a file"}
	}
	s.file(w, write)
	return in
}

// isDescriptor says that a word that is not known is a number.
func (s *scope) isDescriptor(w *syntax.Word) bool {
	if len(w.Parts) != 1 {
		return false
	}
	part := w.Parts[0]
	if q, ok := part.(*syntax.DblQuoted); ok && len(q.Parts) == 1 {
		part = q.Parts[0]
	}
	p, ok := part.(*syntax.ParamExp)
	return ok && s.isNumber(p)
}

// file notes what a redirect opens.
func (s *scope) file(w Word, write bool) {
	known := w.Prefix
	if w.Static {
		known = w.Text
	}
	if strings.HasPrefix(known, "/dev/tcp/") || strings.HasPrefix(known, "/dev/udp/") {
		s.refuse(w.At, "use a program that the policy allows to connect", "%s is a connection, not a file", w.Text)
	}
	s.script.Files = append(s.script.Files, File{Path: w, Write: write})
}

// call is a simple command, or assignments alone.
func (s *scope) call(c *syntax.CallExpr, in stdin) {
	var env []Variable
	for _, as := range c.Assigns {
		v := s.assign(as, len(c.Args) > 0)
		if len(c.Args) > 0 {
			env = append(env, v)
		}
	}
	if len(c.Args) == 0 {
		return
	}
	words := s.words(len(c.Args))
	for i, w := range c.Args {
		words[i] = s.word(w)
		s.namesDescriptor(w)
	}
	// A function is one only where it certainly exists by then: declared at the
	// top of this text, before the call.
	if at, ok := s.funcs[words[0].Text]; ok && words[0].Static && c.Pos().Offset() > at {
		s.called = append(s.called, words[0])
		s.emit(Command{Words: words, Kind: Builtin, Env: env})
		return
	}
	s.simple(words, env, in)
}

// namesDescriptor refuses {x}>, which bash takes for a variable's name under the name of
// sh, too; in {x[y]}> it evaluates what y holds.
func (s *scope) namesDescriptor(w *syntax.Word) {
	from, to := int(w.Pos().Offset()), int(w.End().Offset())
	if s.dialect == POSIX && to < len(s.text) && s.text[from] == '{' && s.text[to-1] == '}' && (s.text[to] == '<' || s.text[to] == '>') {
		s.refuse(s.at(w.Pos()), "leave a space before "+s.text[to:to+1], "%s is a word to some shells only", s.source(w))
	}
}

// simple is a command of words that is no function.
func (s *scope) simple(words []Word, env []Variable, in stdin) {
	s.readsOn(words[0], in)
	if words[0].Static && s.builtin(words, env, in) {
		return
	}
	s.program(words, env, in)
}

// readsOn refuses a command in a text that a shell reads from its standard input, and
// that may read a part of the text: the shell goes on in the middle of a line then.
func (s *scope) readsOn(name Word, in stdin) {
	if s.fed == 0 || !in.outside || !name.Static {
		return
	}
	switch Base(name.Text) {
	case "read", "mapfile", "readarray", "head", "dd", "line", "sed", "gsed", "awk", "gawk", "mawk", "nawk", "grep", "egrep", "fgrep", "rg", "less", "more":
		s.refuse(name.At, "write bash -c '…', or give "+name.Text+" something else to read: </dev/null", "%s may read a part of what the shell is to execute", name.Text)
	}
}

// emit adds a command.
func (s *scope) emit(c Command) {
	c.At = c.Words[0].At
	if s.script.Commands == nil {
		s.script.Commands = make([]Command, 0, min(s.room/5, 1024)+1)
	}
	s.script.Commands = append(s.script.Commands, c)
}

// program judges what is looked up as a program: by the shell, or by a program
// that starts others.
func (s *scope) program(words []Word, env []Variable, in stdin) {
	if s.depth++; s.depth > maxDepth {
		s.refuse(words[0].At, "write it flatter", "programs that start programs are too deep")
	} else {
		s.look(words, env, in)
	}
	s.depth--
}

func (s *scope) look(words []Word, env []Variable, in stdin) {
	name := words[0]
	if !name.Static {
		s.refuse(name.At, "write the program's name out", "which program %s is cannot be told from the text", name.Text)
		return
	}
	if name.Text == "" || name.Text[0] == '-' || reserved(name.Text) { // time -p -- NAME
		s.refuse(name.At, "", "a program has no name")
		return
	}
	if before, _, set := strings.Cut(name.Text, "="); set && s.dialect == POSIX && before != "" && (before[len(before)-1] == '+' || before[len(before)-1] == ']') {
		s.refuse(name.At, "write name=value", "shells differ in whether %s is an assignment", name.Text)
		return
	}
	s.readsOn(name, in)
	rule := ruleOf(Base(name.Text))
	if rule == nil {
		s.emit(Command{Words: words, Env: env, Input: Input{Outside: in.outside, Text: in.text}})
		return
	}
	c := s.borrow()
	*c = Command{Words: words, Env: env, Input: Input{Outside: in.outside, Text: in.text}}
	rule(s, c, in)
	if c.Kind == Carrier && Common(name.Text) != Base(name.Text) {
		c.Kind = Program // another program named env is no env
	}
	s.emit(*c)
	s.judged = append(s.judged, c)
}

func reserved(word string) bool {
	switch word {
	case "!", "{", "}", "[[", "if", "for", "while", "until", "case", "select", "function", "coproc":
		return true
	}
	return false
}

// Common is the last component of a program in a system's directory, and name
// itself for any other.
func Common(name string) string {
	base := Base(name)
	switch strings.TrimSuffix(name, base) {
	case "/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/usr/local/sbin/":
		return base
	}
	return name
}

// Base is the name that a rule is found by: a program in one of the system's
// directories is what PATH would find; any other path is a program of its own,
// whose rule is that of its last component, to be safe.
func Base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// need notes that words from to to must be named.
func (c *Command) need(from, to int, format string, args ...any) {
	c.Needs = append(c.Needs, Need{From: from, To: to, What: fmt.Sprintf(format, args...)})
}
