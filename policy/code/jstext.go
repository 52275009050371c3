// SPDX-License-Identifier: Apache-2.0

package code

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tdewolff/parse/v2/js"
)

// maxText is how long a string may become that is put together, in bytes.
const maxText = 4096

// text is the string that an expression surely is.
func (r *reader) text(e js.IExpr, depth int) (string, bool) {
	if r.work++; e == nil || depth > maxDepth || r.work > maxWork {
		return "", false
	}
	depth++
	s, ok := "", false
	switch e := e.(type) {
	case *js.LiteralExpr:
		if e.TokenType == js.StringToken {
			s, ok = unquote(e.Data)
		}
	case *js.GroupExpr:
		s, ok = r.text(e.X, depth)
	case *js.Var:
		if b := r.bound[root(e)]; len(b) == 1 && b[0].module == "" && len(b[0].path) == 0 {
			s, ok = r.text(b[0].value, depth)
		}
	case *js.TemplateExpr:
		s, ok = r.template(e, depth)
	case *js.BinaryExpr:
		if e.Op == js.AddToken {
			x, okX := r.text(e.X, depth)
			y, okY := r.text(e.Y, depth)
			s, ok = x+y, okX && okY
		}
	case *js.CallExpr:
		s, ok = r.computed(e, depth)
	}
	return s, ok && len(s) <= maxText
}

func (r *reader) template(e *js.TemplateExpr, depth int) (string, bool) {
	if e.Tag != nil {
		return "", false
	}
	var b strings.Builder
	for _, p := range e.List {
		v, ok := r.text(p.Expr, depth)
		raw, okRaw := unescape(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(string(p.Value), "`"), "}"), "${"))
		if !ok || !okRaw {
			return "", false
		}
		b.WriteString(raw + v)
	}
	tail := strings.TrimSuffix(string(e.Tail), "`")
	if len(e.List) == 0 {
		tail = strings.TrimPrefix(tail, "`")
	} else {
		tail = strings.TrimPrefix(tail, "}")
	}
	raw, ok := unescape(tail)
	return b.String() + raw, ok
}

// computed are the calls by which strings are put together from constants.
func (r *reader) computed(e *js.CallExpr, depth int) (string, bool) {
	d, ok := e.X.(*js.DotExpr)
	if !ok {
		return "", false
	}
	var args []string
	for _, a := range e.Args.List {
		t, ok := r.text(a.Value, depth)
		if l, isNumber := a.Value.(*js.LiteralExpr); !ok && isNumber {
			n, err := strconv.ParseInt(string(l.Data), 0, 32)
			if t, ok = string(rune(n)), err == nil; ok && memberName(d.Y) != "fromCharCode" && memberName(d.Y) != "fromCodePoint" {
				return "", false
			}
		}
		if !ok || a.Rest {
			return "", false
		}
		args = append(args, t)
	}
	switch name := memberName(d.Y); {
	case name == "fromCharCode" || name == "fromCodePoint":
		return strings.Join(args, ""), true
	case name == "join" && len(args) == 1:
		list, ok := ungroup(d.X).(*js.ArrayExpr)
		if !ok {
			return "", false
		}
		var parts []string
		for _, item := range list.List {
			t, ok := r.text(item.Value, depth)
			if !ok {
				return "", false
			}
			parts = append(parts, t)
		}
		return strings.Join(parts, args[0]), true
	case name == "concat" || len(args) == 0:
		t, ok := r.text(d.X, depth)
		if !ok {
			return "", false
		}
		switch name {
		case "concat":
			return t + strings.Join(args, ""), true
		case "toLowerCase":
			return strings.ToLower(t), true
		case "toUpperCase":
			return strings.ToUpper(t), true
		case "toString", "trim", "valueOf":
			return strings.TrimSpace(t), true
		}
	}
	return "", false
}

// unquote is the value of a string literal.
func unquote(b []byte) (string, bool) {
	if len(b) < 2 || b[0] != '"' && b[0] != '\'' || b[len(b)-1] != b[0] {
		return "", false
	}
	return unescape(string(b[1 : len(b)-1]))
}

// unescape resolves the escapes of a string.
func unescape(s string) (string, bool) {
	if !strings.Contains(s, `\`) {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i >= len(s) {
			return "", false
		}
		digits := ""
		switch c := s[i]; c {
		case 'n', 't', 'r', 'b', 'f', 'v':
			b.WriteByte(map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f', 'v': '\v'}[c])
			continue
		case '\n':
			continue
		case '\r':
			if i+1 < len(s) && s[i+1] == '\n' {
				i++
			}
			continue
		case 'x':
			digits, i = cut(s, i+1, 2)
		case 'u':
			if i+1 < len(s) && s[i+1] == '{' {
				end := strings.IndexByte(s[i:], '}')
				if end < 0 {
					return "", false
				}
				digits, i = s[i+2:i+end], i+end
			} else {
				digits, i = cut(s, i+1, 4)
			}
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := i
			for end < len(s) && end < i+3 && s[end] >= '0' && s[end] <= '7' {
				end++
			}
			n, err := strconv.ParseUint(s[i:end], 8, 16)
			if err != nil {
				return "", false
			}
			b.WriteRune(rune(n))
			i = end - 1
			continue
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r != '\u2028' && r != '\u2029' { // a line that goes on
				b.WriteRune(r)
			}
			i += n - 1
			continue
		}
		n, err := strconv.ParseUint(digits, 16, 32)
		if err != nil || n > utf8.MaxRune {
			return "", false
		}
		b.WriteRune(rune(n))
	}
	return b.String(), true
}

// cut is n bytes of s from i on, and the place of the last.
func cut(s string, i, n int) (string, int) {
	if i+n > len(s) {
		return "", i
	}
	return s[i : i+n], i + n - 1
}
