// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word finds out what w expands to, as far as the text says, and judges what
// is executed on the way.
func (s *scope) word(w *syntax.Word) Word {
	if w == nil {
		return Word{}
	}
	if text, ok := asWritten(w); ok {
		return Word{Text: text, Static: true, At: s.at(w.Pos())}
	}
	b := builder{scope: s, static: true}
	for i, part := range w.Parts {
		dollar := i > 0 && endsInDollar(w.Parts[i-1]) // as POSIX has it; to bash under the name of sh it is of the quotes
		switch q := part.(type) {
		case *syntax.DblQuoted:
			if q.Dollar || dollar {
				s.refuse(s.at(q.Pos()), "leave the $ out", "%s is looked up in a file of translations, and what stands there may hold a command", s.source(w))
			}
		case *syntax.SglQuoted:
			if dollar && strings.Contains(q.Value, `\`) {
				s.refuse(s.at(q.Pos()), "leave the $ out", "shells differ in where %s ends", s.source(w))
			}
		}
		b.part(part, i == 0)
	}
	out := Word{At: s.at(w.Pos()), Static: b.static, Split: b.split, Many: b.many}
	if b.static {
		out.Text = b.known()
	} else {
		out.Text, out.Prefix, out.noOption = s.source(w), b.prefix, b.noOption
	}
	return out
}

// endsInDollar says that $ stands before the next part.
func endsInDollar(p syntax.WordPart) bool {
	l, ok := p.(*syntax.Lit)
	if !ok || !strings.HasSuffix(l.Value, "$") {
		return false
	}
	before := strings.TrimSuffix(l.Value, "$")
	return (len(before)-len(strings.TrimRight(before, `\`)))%2 == 0
}

// asWritten is the text of a word that has no character with a meaning but the quotes
// around it: what builder comes to for most words, at a tenth of the cost.
func asWritten(w *syntax.Word) (string, bool) {
	if len(w.Parts) != 1 {
		return "", false
	}
	switch p := w.Parts[0].(type) {
	case *syntax.Lit:
		return p.Value, !isExpanded(p.Value) || p.Value == "[" // the program, no pattern
	case *syntax.SglQuoted:
		return p.Value, !p.Dollar
	case *syntax.DblQuoted:
		if len(p.Parts) != 1 || p.Dollar {
			return "", false
		}
		if l, ok := p.Parts[0].(*syntax.Lit); ok {
			return l.Value, !strings.Contains(l.Value, `\`)
		}
	}
	return "", false
}

// isExpanded says that a word without quotes has a character that a shell gives a
// meaning.
func isExpanded(word string) bool {
	for i := range len(word) {
		switch word[i] {
		case '\\', '*', '?', '[', '{', '~', '$':
			return true
		}
	}
	return false
}

// builder puts a word together.
type builder struct {
	*scope
	only   string          // the text, while it is one piece
	text   strings.Builder // the text, once it is more
	static bool
	split  bool
	many   bool
	prefix string

	noOption bool
}

// unknown ends what is known of the word.
func (b *builder) unknown(split bool) {
	if b.static {
		b.static, b.prefix = false, b.known()
	}
	b.split = b.split || split
}

// several ends it where names of files, or what braces hold, stand in its place.
func (b *builder) several() {
	b.unknown(false)
	b.many = true
}

// add adds to the text. Most words are one piece, which is not copied.
func (b *builder) add(t string) {
	switch {
	case !b.static || t == "":
	case b.empty():
		b.only = t
	default:
		b.text.WriteString(b.only)
		b.text.WriteString(t)
		b.only = ""
	}
}

func (b *builder) empty() bool { return b.only == "" && b.text.Len() == 0 }

// known is the text so far.
func (b *builder) known() string {
	if b.only != "" {
		return b.only
	}
	return b.text.String()
}

func (b *builder) part(p syntax.WordPart, first bool) {
	switch p := p.(type) {
	case *syntax.Lit:
		b.literal(p.Value, first)
	case *syntax.SglQuoted:
		if !p.Dollar {
			b.add(p.Value)
		} else if t, ok := ansiC(p.Value); ok && b.dialect == Bash {
			b.add(t)
		} else {
			b.unknown(false)
		}
	case *syntax.DblQuoted:
		if p.Dollar {
			b.unknown(false) // translated by the locale's messages
		}
		for _, q := range p.Parts {
			b.quoted(q)
		}
	case *syntax.ArithmExp:
		b.anyNumber()
		b.arith(p.X)
	case *syntax.ProcSubst:
		if b.static && b.empty() {
			b.add("/dev/fd/")
		}
		b.unknown(false)
		b.nested(p.Stmts, stdin{outside: true})
	case *syntax.ExtGlob:
		b.several()
		if strings.ContainsAny(p.Pattern.Value, "$`<>") {
			b.refuse(b.at(p.Pos()), "", "%s may execute something, and is not judged", b.source(p))
		}
	case *syntax.ParamExp:
		if b.isNumber(p) {
			b.anyNumber()
			return
		}
		b.unknown(true)
		b.expansion(p)
	default:
		b.unknown(true)
		b.expansion(p)
	}
}

// isNumber: $?, $#, and variables that hold only numbers.
func (s *scope) isNumber(p *syntax.ParamExp) bool {
	return p.Param != nil && !p.Excl && p.Index == nil && p.Exp == nil && p.Repl == nil && p.Slice == nil && p.Names == 0 &&
		p.Flags == nil && p.NestedParam == nil && (p.Length || s.number(p.Param.Value, p.Pos()))
}

// anyNumber is a number that is not known: one word, and nothing that an
// option is made of but a sign.
func (b *builder) anyNumber() {
	b.noOption = b.noOption || b.static && b.empty()
	b.unknown(false)
}

// quoted is a part within double quotes: nothing is split, but for "$@" and
// its like.
func (b *builder) quoted(p syntax.WordPart) {
	switch p := p.(type) {
	case *syntax.Lit:
		b.add(unescapeQuoted(p.Value))
	case *syntax.ArithmExp:
		b.anyNumber()
		b.arith(p.X)
	case *syntax.ParamExp:
		if b.isNumber(p) {
			b.anyNumber()
			return
		}
		b.unknown(severalWords(p))
		b.innerQuotes(p)
		b.expansion(p)
	default:
		b.unknown(false)
		b.expansion(p)
	}
}

// bare says that p is a name and nothing else: $x, ${x}.
func bare(p *syntax.ParamExp) bool {
	return p.Param != nil && !strings.ContainsAny(p.Param.Value, `\<>`) && p.Exp == nil && p.Index == nil && p.Repl == nil && p.Slice == nil &&
		p.Flags == nil && p.NestedParam == nil && len(p.Modifiers) == 0 && p.Names == 0 && !p.Excl && !p.Width && !p.IsSet
}

// innerQuotes refuses '…' within "${x:-…}" where it matters whether it quotes: to
// shells it does not, and what stands in it is expanded, to the parser it does. Where
// a pattern is cut off, all agree that it does.
func (s *scope) innerQuotes(p *syntax.ParamExp) {
	if bare(p) {
		return
	}
	agreed := map[syntax.Node]bool{}
	syntax.Walk(p, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ParamExp:
			if e := n.Exp; e != nil && e.Word != nil {
				switch e.Op {
				case syntax.RemSmallPrefix, syntax.RemLargePrefix, syntax.RemSmallSuffix, syntax.RemLargeSuffix:
					for _, part := range e.Word.Parts {
						agreed[part] = true
					}
				}
			}
		case *syntax.CmdSubst, *syntax.ProcSubst:
			return false
		case *syntax.SglQuoted:
			if !agreed[n] && (n.Dollar || strings.ContainsAny(n.Value, "$`\\\"}\n")) {
				s.refuse(s.at(n.Pos()), "write it in double quotes", "%s within double quotes quotes nothing", s.source(n))
			}
		}
		return true
	})
}

// severalWords: "$@", "${a[@]}", "${!x@}" are several words in quotes too.
func severalWords(p *syntax.ParamExp) bool {
	if p.Param != nil && p.Param.Value == "@" || p.Names != 0 || p.Excl {
		return true
	}
	if w, ok := p.Index.(*syntax.Word); ok {
		return w.Lit() == "@"
	}
	return false
}

// expansion judges what a parameter expansion or a substitution executes.
func (s *scope) expansion(p syntax.WordPart) {
	switch p := p.(type) {
	case *syntax.CmdSubst:
		if p.TempFile || p.ReplyVar {
			s.refuse(s.at(p.Pos()), "use $( )", "${ …;} is not judged")
			return
		}
		if p.Backquotes && strings.Contains(s.text[p.Pos().Offset():p.End().Offset()], "\\`") {
			// The parser ends a word before `…` within `…`: of a\`b\` it makes two.
			s.refuse(s.at(p.Pos()), "use $( )", "`…` within `…` is not judged")
		}
		s.nested(p.Stmts, stdin{outside: true})
	case *syntax.ParamExp:
		s.param(p)
	case *syntax.DblQuoted, *syntax.SglQuoted, *syntax.Lit, *syntax.ArithmExp, *syntax.ProcSubst, *syntax.ExtGlob:
		(&builder{scope: s}).part(p, false)
	default:
		s.refuse(s.at(p.Pos()), "", "%s cannot be judged", s.source(p))
	}
}

// param judges ${…}: the words in it, and the forms that read a value as more
// than text.
func (s *scope) param(p *syntax.ParamExp) {
	if bare(p) {
		return
	}
	at := s.at(p.Pos())
	if p.Flags != nil || p.NestedParam != nil || len(p.Modifiers) > 0 || p.Width || p.IsSet {
		s.refuse(at, "", "%s is not of this shell", s.source(p))
		return
	}
	syntax.Walk(p, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst:
			return false
		case *syntax.Lit: // the parser takes it for text, within ${ }
			if t := strings.ReplaceAll(n.Value, "\\\n", ""); strings.Contains(t, "<(") || strings.Contains(t, ">(") {
				s.refuse(at, "write it outside of ${…}", "%s may execute what is in <( )", s.source(p))
			}
		}
		return true
	})
	whole := false
	if w, ok := p.Index.(*syntax.Word); ok {
		whole = w.Lit() == "@" || w.Lit() == "*"
	}
	if p.Excl && p.Names == 0 && !whole {
		s.refuse(at, "write the variable's name", "%s uses the value of a variable as a name, and a name may hold a command: x[$(…)]", s.source(p))
	}
	if p.Index != nil && !whole {
		s.subscript(p.Index)
	}
	if p.Slice != nil {
		s.arith(p.Slice.Offset)
		s.arith(p.Slice.Length)
	}
	if p.Repl != nil {
		s.word(p.Repl.Orig)
		s.word(p.Repl.With)
	}
	if e := p.Exp; e != nil {
		w := s.word(e.Word)
		switch e.Op {
		case syntax.OtherParamOps: // ${x@P} expands the value as a prompt
			if w.Text != "Q" && w.Text != "U" && w.Text != "L" && w.Text != "u" && w.Text != "A" && w.Text != "K" && w.Text != "k" && w.Text != "a" && w.Text != "E" {
				s.refuse(at, "", "%s may execute what is in the value", s.source(p))
			}
		case syntax.AssignUnset, syntax.AssignUnsetOrNull:
			if p.Param != nil {
				s.assigned(p.Param.Value, w, at, false)
			}
		}
	}
}

// literal takes unquoted text: escapes go, and what the shell would expand
// makes the word unknown.
func (b *builder) literal(v string, first bool) {
	if !isExpanded(v) {
		b.add(v)
		return
	}
	if first && strings.HasPrefix(v, "~") {
		b.noOption = true // a home directory, or the text itself where there is none
		b.unknown(false)
		return
	}
	for i := 0; i < len(v); i++ {
		switch c := v[i]; c {
		case '\\':
			if i++; i < len(v) && v[i] != '\n' {
				b.add(v[i : i+1])
			}
			continue
		case '*', '?', '[':
			b.several()
		case '{':
			if !strings.HasPrefix(v[i:], "{}") || strings.ContainsAny(v[i+2:], ",.") {
				b.several() // a,b or 1..3 may follow, in a later part too
			}
		case '$':
			if b.dialect == POSIX && i == len(v)-1 {
				b.unknown(false) // $'x' and $"x": shells differ
			}
		case '~':
			if i > 0 && (v[i-1] == '=' || v[i-1] == ':') {
				b.unknown(false)
			}
		}
		b.add(v[i : i+1])
	}
}

// unescapeQuoted takes the backslashes out of text in double quotes.
func unescapeQuoted(v string) string {
	if !strings.Contains(v, `\`) {
		return v
	}
	var b strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] == '\\' && i+1 < len(v) && strings.IndexByte("$`\"\\\n", v[i+1]) >= 0 {
			i++
			if v[i] == '\n' {
				continue
			}
		}
		b.WriteByte(v[i])
	}
	return b.String()
}

// ansiC decodes $'…'. What gives a NUL (where shells cut the text off), or
// something beyond ASCII (which depends on the locale), it does not.
func ansiC(v string) (string, bool) {
	if !strings.Contains(v, `\`) {
		return v, true
	}
	var b strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] != '\\' {
			b.WriteByte(v[i])
			continue
		}
		if i++; i == len(v) {
			return "", false
		}
		if plain := strings.IndexByte(`abeEfnrtv\'"?`, v[i]); plain >= 0 {
			b.WriteByte("\a\b\x1b\x1b\f\n\r\t\v\\'\"?"[plain])
			continue
		}
		n, used := escape(v[i:])
		if n <= 0 || n > 0x7f {
			return "", false
		}
		b.WriteByte(byte(n))
		i += used - 1
	}
	return b.String(), true
}

// escape reads what follows a backslash as a number: octal, x, u, U. It gives
// 0 for anything else.
func escape(v string) (n, used int) {
	base, maximum, digits := 16, 0, v[1:]
	switch v[0] {
	case 'x':
		maximum = 2
	case 'u':
		maximum = 4
	case 'U':
		maximum = 8
	case '0', '1', '2', '3', '4', '5', '6', '7':
		base, maximum, digits = 8, 3, v
	default:
		return 0, 0
	}
	used = len(v) - len(digits)
	for i := 0; i < maximum && i < len(digits); i++ {
		d := strings.IndexByte("0123456789abcdef", digits[i]|0x20)
		if digits[i] < 'A' {
			d = strings.IndexByte("0123456789", digits[i])
		}
		if d < 0 || d >= base {
			break
		}
		n, used = n*base+d, used+1
	}
	return n, used
}
