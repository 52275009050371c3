// SPDX-License-Identifier: Apache-2.0

// Package shell says what a shell line would run.
//
// [Line] parses a line of bash or of a POSIX shell and lists every simple
// command that running it could start: in pipes, lists, loops, functions,
// substitutions, here-documents, in what is handed to eval, trap and sh -c, and
// behind programs that start others (env, xargs, find -exec, timeout, …). What
// cannot be told from the text alone (a command's name out of a variable, a
// shell that reads what to do from a pipe, an option that starts a program in a
// language of its own) is not guessed: it is a [Refusal] or a [Need], with the
// place.
//
// The promise is one-sided: whatever the line executes is among the commands;
// not all of them need be executed. It holds for what the shell itself starts,
// and for the programs this package has a rule for. A program without a rule is
// taken to do what its name says. What any program does once it runs is not in
// the text: an allowed make runs what the Makefile says. So this is a reading
// of text, not a wall; the sandbox is the wall.
//
// Nothing here does I/O, and time and memory are linear in the text.
package shell

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Dialect is the shell that a line is written for.
type Dialect int

// The dialects. Anything else is no dialect that can be judged.
const (
	Bash  Dialect = iota // bash
	POSIX                // sh: what dash, bash as sh and busybox sh read alike
)

// Bounds of one line. The kernel hands over at most 128 KiB as one argument.
// Brackets are counted because each may nest, and the parser takes some 6 KiB
// of stack for a level.
const (
	MaxLine     = 128 << 10   // bytes
	maxBrackets = 16 << 10    // of ( { [ and `
	maxDepth    = 64          // statements within statements, lines within lines
	maxText     = 4 * MaxLine // bytes of all lines together: eval eval eval … is read once for each
	maxRefusals = 20          // kept; one is enough to refuse
)

// Pos is a place in the outermost text; lines and columns (bytes) count from 1.
// A line that is an argument of another (sh -c LINE) has that argument's place.
type Pos struct{ Line, Col int }

// String is "line:column".
func (p Pos) String() string { return fmt.Sprintf("%d:%d", p.Line, p.Col) }

// Script is what a line would do.
type Script struct {
	Commands []Command // in the order of the text
	Files    []File    // redirects
	// Variables are those that are set and may steer programs.
	Variables []SetVariable
	Refusals  []Refusal // why it cannot be judged; when there is one, Commands may be incomplete
}

// Command is one simple command.
type Command struct {
	Words []Word // the first one is Static and is the name
	At    Pos
	// Kind says who carries it out.
	Kind Kind
	// Env are variables that are exported to it alone.
	Env []Variable
	// Needs are words that let it run what is not among the commands: a policy
	// that does not name them refuses.
	Needs []Need
	// Input is what it reads on its standard input.
	Input Input
	// Sub is the index of the subcommand, where options stand before it; 0 where
	// that is not known.
	Sub int
}

// Input is what a command reads on its standard input.
type Input struct {
	// Outside says that it is what the whole line reads.
	Outside bool
	// Text is all of it, where the line says it; nil is not known.
	Text *string
}

// Kind is who carries a command out.
type Kind int

// The kinds of command.
const (
	Program Kind = iota // a program that is looked up, or is at a path
	Builtin             // the shell itself, and nothing else is started or changed
	Carrier             // a program that only starts what follows, which is a Command of its own
)

// Name is the command's name as written.
func (c *Command) Name() string { return c.Words[0].Text }

// Need is a part of a command that has to be named, because it brings code
// that this package does not read.
type Need struct {
	// From and To bound the words, To exclusive. Both 0: no word names it, it is
	// what the command does as a whole.
	From, To int
	What     string // "runs a script file"
}

// Word is one word of a command, quotes removed.
type Word struct {
	Text   string // its value when Static, else about as it was written
	Prefix string // how the value begins, where it is not Static
	At     Pos
	Static bool // the value is known
	// Split: it may become several words, or none, of which only the first
	// begins with Prefix.
	Split bool
	// Many: it may become several words, or none, all of which begin with Prefix:
	// names of files, or what braces hold.
	Many bool

	noOption bool // not Static, and yet it does not begin as an option does
}

// one says that w is one word, whatever its value is.
func (w Word) one() bool { return w.Static || !w.Split && !w.Many }

// plain says that no option can come of w.
func (w Word) plain() bool {
	if w.Static {
		return w.Text == "" || w.Text[0] != '-'
	}
	return !w.Split && (w.noOption || w.Prefix != "" && w.Prefix[0] != '-')
}

// known says that w is either known, or at least no option.
func (w Word) known() bool { return w.Static || w.plain() }

// Variable is an assignment.
type Variable struct {
	Name  string
	Value Word
}

// File is a redirect's target.
type File struct {
	Path  Word
	Write bool
}

// Refusal says why a line cannot be judged, and what would help.
type Refusal struct {
	At        Pos
	Why, Hint string
}

// Line reads a line of a shell.
func Line(text string, d Dialect) *Script {
	a := &analyser{script: &Script{}, room: len(text)/5 + 1} // what lines have: a word for each five bytes
	a.line(text, d, nil, false)
	return a.done()
}

// Argv reads a command that is started without a shell. The first word is the
// program's name, as it is looked up.
func Argv(argv []string) *Script {
	a := &analyser{script: &Script{}}
	words := make([]Word, len(argv))
	for i, s := range argv {
		words[i] = Word{Text: s, Static: true, At: Pos{1, i + 1}}
	}
	if len(words) > 0 {
		(&scope{analyser: a}).program(words, nil, stdin{outside: true})
	}
	return a.done()
}

// analyser is the work on one outermost line.
type analyser struct {
	script *Script
	depth  int
	read   int // bytes so far
	fed    int // lines that a shell reads from its standard input, one within the other

	spare []Word // has room for the words of the next commands
	room  int    // words that the text may have, about

	judged []*Command // that rules have looked at, for the next ones

	called  []Word          // functions that were called
	removed map[string]bool // names that unset takes away, which may be functions

	texts  []declaredText  // what declare gives unknown texts to
	listed map[string]bool // variables that are lists
}

// done refuses calls of functions that may not be there any more: unset takes a
// function where there is no variable of that name, and then it is a program's.
func (a *analyser) done() *Script {
	for _, w := range a.called {
		if a.removed[w.Text] {
			a.refuse(w.At, "give the variable another name", "unset may have taken the function %s away", w.Text)
		}
	}
	a.doneLists()
	return a.script
}

// words is room for n words, cut from what was allocated for many.
func (a *analyser) words(n int) []Word {
	if n > len(a.spare) {
		a.spare = make([]Word, max(n, min(a.room, 64)))
	}
	out := a.spare[:n:n]
	a.spare = a.spare[n:]
	return out
}

// borrow is a command for a rule to look at. Rules begin others meanwhile, and keep none.
func (a *analyser) borrow() *Command {
	n := len(a.judged)
	if n == 0 {
		return new(Command)
	}
	c := a.judged[n-1]
	a.judged = a.judged[:n-1]
	return c
}

func (a *analyser) refuse(at Pos, hint, format string, args ...any) {
	if len(a.script.Refusals) < maxRefusals {
		a.script.Refusals = append(a.script.Refusals, Refusal{At: at, Why: fmt.Sprintf(format, args...), Hint: hint})
	}
}

// scope is one text: the outermost line, or a line within it.
type scope struct {
	*analyser
	text    string
	dialect Dialect
	base    *Pos                        // of the word that the text is, when it is within another
	funcs   map[string]uint             // functions that certainly exist from an offset on
	numbers map[string]bool             // variables that hold numbers only, see given
	firsts  map[string]uint             // from where on some of them certainly do
	bodies  map[*syntax.Redirect]string // of here-documents, see hereDocuments
	unasked *syntax.File                // what both are to be made of, when they are first asked for
}

// at is a parser's place as ours.
func (s *scope) at(p syntax.Pos) Pos {
	if s.base != nil {
		return *s.base
	}
	return Pos{int(p.Line()), int(p.Col())}
}

// source is what stands there, shortened.
func (s *scope) source(n syntax.Node) string {
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	if from < 0 || to > len(s.text) || from > to {
		return "?"
	}
	t := s.text[from:to]
	if len(t) > 60 {
		t = strings.ToValidUTF8(t[:57], "") + "…"
	}
	return t
}

// line reads text; base is the place of the word that it is, shared says that
// it runs in the shell of the line around it (eval, trap).
func (a *analyser) line(text string, d Dialect, base *Pos, shared bool) {
	where := Pos{1, 1}
	if base != nil {
		where = *base
	}
	a.read += len(text)
	if a.depth++; a.depth > maxDepth || a.read > maxText {
		a.refuse(where, "write it as one line", "shells within shells are too deep, or too long")
		a.depth--
		return
	}
	defer func() { a.depth-- }()
	p, why := unreadable(text)
	if why == "" && d == POSIX {
		p, why = disputed(text)
	}
	if why != "" {
		if base != nil {
			p = *base
		}
		a.refuse(p, "write plain text", "%s", why)
		return
	}
	s := &scope{analyser: a, text: text, dialect: d, base: base}
	f, err := parse(text, d)
	if err != nil {
		p, why := errorPlace(err)
		if base != nil {
			p = *base
		}
		a.refuse(p, "", "it cannot be parsed: %s", why)
		return
	}
	if !s.hereDocuments(f) || !s.comments(f) {
		return
	}
	if !shared {
		s.unasked = f
	}
	before := &lineErrors{text: text}
	for i, st := range f.Stmts {
		if fn, ok := st.Cmd.(*syntax.FuncDecl); ok && !st.Background && fn.Name != nil && before.reached(f, i) {
			// A name with a / is a path, to some shells and not to others.
			if _, had := s.funcs[fn.Name.Value]; !had && !strings.Contains(fn.Name.Value, "/") {
				if s.funcs == nil {
					s.funcs = map[string]uint{}
				}
				s.funcs[fn.Name.Value] = fn.Pos().Offset()
			}
		}
	}
	s.stmts(f.Stmts, stdin{outside: true})
}

// comments refuses a # that some shells take for a part of the word before it, as bash
// does in x=(1)#y. It says whether there is none.
func (s *scope) comments(f *syntax.File) bool {
	if !strings.Contains(s.text, "#") {
		return true
	}
	well := true
	syntax.Walk(f, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.Comment); ok && well {
			if at := int(c.Hash.Offset()); at > 0 && strings.IndexByte(" \t\n;&|(`", s.text[at-1]) < 0 {
				well = false
				s.refuse(s.at(c.Hash), "leave a blank before the #", "shells differ in whether %s is a comment", s.source(c))
			}
		}
		return well
	})
	return well
}

// parsers has a parser as it is before it has read anything, and others that have, for
// each dialect.
var parsers [POSIX + 1]struct {
	once  sync.Once
	fresh *syntax.Parser
	used  sync.Pool
}

// parse parses text. A parser is some 3 KiB, which would be most of what a short line
// takes. One that has read is made as new by a copy, so that nothing of one text comes
// to another.
func parse(text string, d Dialect) (*syntax.File, error) {
	kept := &parsers[d]
	kept.once.Do(func() {
		kept.fresh = syntax.NewParser(syntax.KeepComments(true), syntax.Variant([...]syntax.LangVariant{Bash: syntax.LangBash, POSIX: syntax.LangPOSIX}[d]))
	})
	p, ok := kept.used.Get().(*syntax.Parser)
	if !ok {
		p = new(syntax.Parser)
	}
	*p = *kept.fresh
	f, err := p.Parse(strings.NewReader(text), "")
	*p = syntax.Parser{} // it would keep the text
	kept.used.Put(p)
	return f, err
}

func errorPlace(err error) (Pos, string) {
	var parse syntax.ParseError
	if errors.As(err, &parse) {
		return Pos{int(parse.Pos.Line()), int(parse.Pos.Col())}, parse.Text
	}
	var lang syntax.LangError
	if errors.As(err, &lang) {
		return Pos{int(lang.Pos.Line()), int(lang.Pos.Col())}, lang.Feature + " is not in every sh"
	}
	return Pos{1, 1}, err.Error()
}

// disputed finds what bash executes under the name of sh and others do not.
func disputed(text string) (Pos, string) {
	text = strings.ReplaceAll(text, "\\\n", "")
	for _, mark := range []string{"$[", "<(", ">("} {
		if i := strings.Index(text, mark); i >= 0 {
			return Pos{1 + strings.Count(text[:i], "\n"), i - strings.LastIndexByte(text[:i], '\n')}, "what " + mark + " begins is executed by some shells only"
		}
	}
	return Pos{}, ""
}

// unreadable finds what shells, this parser or a person would see differently.
func unreadable(text string) (Pos, string) {
	if len(text) > MaxLine {
		return Pos{1, 1}, fmt.Sprintf("it is longer than the %d KiB that are judged", MaxLine>>10)
	}
	// Shells end a comment with its line; the parser goes on behind a backslash.
	if strings.HasSuffix(text, `\`) {
		return Pos{1, 1}, "it ends with a backslash"
	}
	line, start, brackets, comment := 1, 0, 0, false
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c < 0x7f {
			if c == '(' || c == '{' || c == '[' || c == '`' {
				if brackets++; brackets > maxBrackets {
					return Pos{line, i - start + 1}, fmt.Sprintf("it has more than %d brackets", maxBrackets)
				}
			}
			if c == '#' && (i == start || strings.IndexByte(" \t;&|()<>`", text[i-1]) >= 0) {
				comment = true
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		at := Pos{line, i - start + 1}
		switch {
		case r == utf8.RuneError && n == 1:
			return at, "it is not UTF-8 text"
		case r == '\n' && comment && text[i-1] == '\\':
			return at, "a comment ends with a backslash"
		case r == '\n' && strings.HasSuffix(text[:i], "$\\"): // a shell reads on: $( and $[ begin there
			return at, "a line is broken behind a $"
		case r == '\n' && strings.HasSuffix(text[:i], "(\\"): // and so do (( and $((
			return at, "a line is broken behind a ("
		case r == '\n':
			line, start, comment = line+1, i+1, false
		case r == '\t':
		case unicode.IsControl(r), r == '\u2028', r == '\u2029', unicode.Is(unicode.Cf, r):
			return at, fmt.Sprintf("it has a character that cannot be seen, %U", r)
		}
		i += n
	}
	return Pos{}, ""
}
