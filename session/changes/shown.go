// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Shown is a name for a terminal or a page: what is not seen, moves the cursor or turns
// text round is written as its number, and so is what is no text, a blank that is no
// plain one, and a mark that would join the character before the name. A backslash is
// doubled: a single one begins a number.
func Shown(s string) string {
	if !hasUnseen(s) && !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for begins := true; len(s) > 0; {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case unseenInName(r, n, begins):
			writeNumber(&b, s[0], r, n)
		default:
			b.WriteRune(r)
		}
		begins, s = r == '/', s[n:]
	}
	return b.String()
}

// hasUnseen says that a name has characters that are not seen as they are.
func hasUnseen(name string) bool {
	for begins, i := true, 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		if unseenInName(r, n, begins) {
			return true
		}
		begins, i = r == '/', i+n
	}
	return false
}

// unseenInName is unseen of a character of n bytes in a name; begins says that it is the
// first.
func unseenInName(r rune, n int, begins bool) bool {
	if r < utf8.RuneSelf {
		return unseen(r)
	}
	return r == utf8.RuneError && n == 1 || unseen(r) || r == '\ufffc' || unicode.Is(unicode.Zs, r) || begins && unicode.Is(unicode.M, r)
}

// shownLine is a line of a file for a terminal or a page. Tabs stay, and so do backslashes
// and blanks.
func shownLine(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r != '\t' && (unseen(r) || r == utf8.RuneError && n == 1) {
			writeNumber(&b, s[0], r, n)
		} else {
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

// writeNumber writes a character of n bytes, of which first is the first, as its number.
func writeNumber(b *strings.Builder, first byte, r rune, n int) {
	if n == 1 {
		fmt.Fprintf(b, `\x%02x`, first)
	} else {
		fmt.Fprintf(b, `\u{%04x}`, r)
	}
}

// unseen is true of characters that a reader does not see as they are.
func unseen(r rune) bool {
	if r < 0x7f {
		return r < 0x20
	}
	return r == '\u2800' || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs,
		unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}
