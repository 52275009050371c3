// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Shells and the parser disagree about where some here-documents end. What one of them
// takes for text another one executes. So only plain here-documents are judged:
//
//   - The delimiter is a word of letters, digits, _, - and ., bare or in single quotes.
//   - The body begins on the line after the operator's and ends with the delimiter alone
//     on its line.
//   - After a bare delimiter the body has no backslash at the end of a line, no backquote,
//     and no $( ${ $[.
//   - Within $( ) the delimiter is in single quotes and the body ends before the ).
//
// Their extent is found in the text itself, and has to be the parser's. These forms mean
// the same to bash, to dash and to bash under the name of sh.

const (
	quoteDelimiter = "put the delimiter in single quotes: <<'EOF'"
	plainDelimiter = "write <<EOF or <<'EOF'; the delimiter is a word of letters, digits, _, - and ."
	moveOut        = "put the text into a variable or a file first"
)

// hereDocument is one as the text has it.
type hereDocument struct {
	surrounding
	redirect     *syntax.Redirect
	tabs, quoted bool   // <<-; the delimiter is in single quotes
	delimiter    string // without quotes
	begin, end   int    // of the body; the line of the delimiter begins at end
	after        int    // the line after the delimiter's begins there
}

// hereDocuments refuses a here-document that is not plain, or that the parser does not
// see as the text has it. It says whether all are well.
func (s *scope) hereDocuments(f *syntax.File) bool {
	if !strings.Contains(s.text, "<<") {
		return true
	}
	lineEnd, next := -1, 0 // of the last operator's line; where its next body begins
	for _, d := range listHereDocuments(f) {
		at, why, hint := d.operator(s.text)
		if why == "" {
			if at > lineEnd {
				lineEnd = at + strings.IndexByte(s.text[at:], '\n')
				next = lineEnd + 1
			}
			at, why, hint = d.body(s.text, next)
			next = d.after
		}
		if why != "" {
			s.refuse(s.place(at), hint, "%s", why)
			return false
		}
		if s.bodies == nil {
			s.bodies = map[*syntax.Redirect]string{}
		}
		s.bodies[d.redirect] = d.content(s.text)
	}
	return true
}

// surrounding is what a node is within.
type surrounding struct {
	within  *syntax.CmdSubst // the innermost $( )
	strange bool             // something where shells differ in what a here-document is
}

// listHereDocuments is every here-document of a text, in the order of the operators.
func listHereDocuments(f *syntax.File) []*hereDocument {
	var all []*hereDocument
	around := []surrounding{{}}
	syntax.Walk(f, func(n syntax.Node) bool {
		if n == nil {
			around = around[:len(around)-1]
			return true
		}
		in := around[len(around)-1]
		if r, ok := n.(*syntax.Redirect); ok && (r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc) {
			all = append(all, &hereDocument{redirect: r, surrounding: in, tabs: r.Op == syntax.DashHdoc})
		}
		around = append(around, in.and(n))
		return true
	})
	slices.SortFunc(all, func(a, b *hereDocument) int {
		return int(a.redirect.OpPos.Offset()) - int(b.redirect.OpPos.Offset())
	})
	return all
}

// and is what the children of n are within.
func (in surrounding) and(n syntax.Node) surrounding {
	switch n := n.(type) {
	case *syntax.CmdSubst:
		in.within = n
		in.strange = in.strange || n.Backquotes || n.TempFile || n.ReplyVar
	case *syntax.ProcSubst, *syntax.ParamExp, *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.TestClause, *syntax.ArrayExpr, *syntax.ExtGlob:
		in.strange = true
	case *syntax.Redirect:
		in.strange = in.strange || n.Op == syntax.Hdoc || n.Op == syntax.DashHdoc
	}
	return in
}

// operator reads the operator and the delimiter. It gives the offset after these; where
// they are not plain, the place and the reason.
func (d *hereDocument) operator(text string) (at int, why, hint string) {
	at = int(d.redirect.OpPos.Offset())
	if d.strange {
		return at, "a here-document within backquotes, <( ), ${ }, arithmetic, a list or another here-document is not judged", "use $( ) and a quoted delimiter, or " + moveOut
	}
	op := "<<"
	if d.tabs {
		op = "<<-"
	}
	rest, ok := strings.CutPrefix(text[at:], op)
	if !ok {
		return at, "a here-document's operator is broken by a backslash", plainDelimiter
	}
	word := strings.TrimLeft(rest, " \t")
	begin := len(text) - len(word)
	inner, quoted := strings.CutPrefix(word, "'")
	n := 0
	for n < len(inner) && (ofDelimiter(inner[n]) || quoted && n > 0 && inner[n] == ' ') {
		n++
	}
	d.delimiter, d.quoted = inner[:n], quoted
	at = len(text) - len(inner) + n
	if quoted {
		if at == len(text) || text[at] != '\'' {
			return begin, "a here-document has a delimiter that shells read differently", plainDelimiter
		}
		at++
	}
	if n == 0 || !quoted && inner[0] == '-' || at < len(text) && strings.IndexByte(" \t\n;&|<>)", text[at]) < 0 {
		return begin, "a here-document has a delimiter that shells read differently", plainDelimiter
	}
	switch {
	case d.within != nil && !quoted:
		return begin, "shells differ in what a here-document within $( ) is", quoteDelimiter
	case at == len(text), strings.IndexByte(text[at:], '\n') < 0:
		return begin, fmt.Sprintf("no line follows the here-document with the delimiter %s", d.delimiter), "end it with the delimiter alone on its line"
	case !d.hasWord(begin):
		return begin, "the here-document's delimiter cannot be told", plainDelimiter
	}
	return at, "", ""
}

// ofDelimiter says that a plain delimiter may have c.
func ofDelimiter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.'
}

// hasWord says that the parser has the same delimiter, at the same place.
func (d *hereDocument) hasWord(begin int) bool {
	w := d.redirect.Word
	if w == nil || len(w.Parts) != 1 || int(w.Pos().Offset()) != begin {
		return false
	}
	switch p := w.Parts[0].(type) {
	case *syntax.Lit:
		return !d.quoted && p.Value == d.delimiter
	case *syntax.SglQuoted:
		return d.quoted && !p.Dollar && p.Value == d.delimiter
	}
	return false
}

// body reads the lines from begin to the delimiter's. Where they are not plain, or not
// what the parser has, it gives the place and the reason.
func (d *hereDocument) body(text string, begin int) (at int, why, hint string) {
	d.begin = begin
	for at = begin; ; {
		if at >= len(text) {
			return int(d.redirect.OpPos.Offset()), fmt.Sprintf("the here-document has no line that is %s alone", d.delimiter), "end it with the delimiter alone on its line"
		}
		line, _, more := strings.Cut(text[at:], "\n")
		d.end, d.after = at, at+len(line)
		if more {
			d.after++
		}
		if d.tabs {
			line = strings.TrimLeft(line, "\t")
		}
		if line == d.delimiter {
			break
		}
		if why, hint = d.strangeLine(line); why != "" {
			return at, why, hint
		}
		at = d.after
	}
	if d.within != nil && d.after > int(d.within.Right.Offset()) {
		return at, "the here-document does not end before the ) of the $( ) that it is in", "write the ) on a line of its own, after the delimiter's"
	}
	if !d.hasBody(text) {
		return begin, "where the here-document begins or ends cannot be told", "begin it on the line after the command's, and choose another delimiter"
	}
	return at, "", ""
}

// strangeLine says what shells would read differently in a line of the body.
func (d *hereDocument) strangeLine(line string) (why, hint string) {
	if rest, ok := strings.CutPrefix(line, d.delimiter); ok && rest != "" && strings.IndexByte(")`\\", rest[0]) >= 0 {
		return fmt.Sprintf("a line of the here-document begins with %s, which ends it in some shells", line[:len(d.delimiter)+1]), "choose another delimiter"
	}
	if d.quoted {
		return "", ""
	}
	if strings.HasSuffix(line, `\`) {
		return "a line of the here-document ends with a backslash", quoteDelimiter
	}
	for _, mark := range []string{"`", "$(", "${", "$["} {
		if strings.Contains(line, mark) {
			return fmt.Sprintf("the here-document has %s after a delimiter without quotes", mark), quoteDelimiter + ", or " + moveOut
		}
	}
	return "", ""
}

// hasBody says that the parser has the same body, at the same place.
func (d *hereDocument) hasBody(text string) bool {
	body := d.redirect.Hdoc
	if body == nil {
		return d.begin == d.end
	}
	if int(body.Pos().Offset()) != d.begin {
		return false
	}
	rest := text[d.begin:d.after]
	for _, part := range body.Parts {
		from, to := part.Pos().Offset(), part.End().Offset()
		var have string
		switch p := part.(type) {
		case *syntax.Lit:
			have = p.Value
		case *syntax.ParamExp:
			if d.quoted || !p.Short || from > to || to > uint(len(text)) {
				return false
			}
			have = text[from:to]
		default:
			return false
		}
		var ok bool
		if rest, ok = strings.CutPrefix(rest, have); !ok {
			return false
		}
	}
	if d.tabs { // the parser leaves them where they are
		rest = strings.TrimLeft(rest, "\t")
	}
	return strings.TrimSuffix(rest, "\n") == d.delimiter
}

// content is the body without the tabs that <<- takes off.
func (d *hereDocument) content(text string) string {
	body := text[d.begin:d.end]
	if !d.tabs {
		return body
	}
	lines := strings.SplitAfter(body, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimLeft(l, "\t")
	}
	return strings.Join(lines, "")
}

// place is the place of an offset in the text.
func (s *scope) place(at int) Pos {
	if s.base != nil {
		return *s.base
	}
	before := s.text[:at]
	return Pos{1 + strings.Count(before, "\n"), at - strings.LastIndexByte(before, '\n')}
}

// hereText is a here-document's text, nil when it is not known.
func (s *scope) hereText(r *syntax.Redirect) *string {
	text, ok := s.bodies[r]
	if !ok {
		s.refuse(s.at(r.Pos()), plainDelimiter, "the here-document cannot be found in the text")
		return nil
	}
	if _, quoted := r.Word.Parts[0].(*syntax.SglQuoted); quoted || r.Hdoc == nil {
		return &text
	}
	static := true
	b := &builder{scope: s}
	for _, p := range r.Hdoc.Parts {
		if _, ok := p.(*syntax.Lit); !ok {
			b.quoted(p)
			static = false
		}
	}
	if !static {
		return nil
	}
	text = unescapeHereText(text)
	return &text
}

// unescapeHereText takes the backslashes out of a body after a bare delimiter. Unlike in
// double quotes, \" stays.
func unescapeHereText(v string) string {
	var b strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] == '\\' && i+1 < len(v) && strings.IndexByte("$`\\", v[i+1]) >= 0 {
			i++
		}
		b.WriteByte(v[i])
	}
	return b.String()
}
