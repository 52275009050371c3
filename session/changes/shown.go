// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Shown is text for a terminal or a page: what is not seen, moves the cursor or turns
// text round is written as its number, and so is what is no text.
func Shown(s string) string { return shown(s, false) }

func shown(s string, tabs bool) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return unseen(r) || r == utf8.RuneError }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\t' && tabs, !unseen(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u{%04x}`, r)
		}
		s = s[n:]
	}
	return b.String()
}

// unseen is true of characters that a reader does not see as they are.
func unseen(r rune) bool {
	if r < 0x7f {
		return r < 0x20
	}
	return r == '\u2800' || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs,
		unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}
