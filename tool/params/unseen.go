// SPDX-License-Identifier: Apache-2.0

package params

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Unseen says that r leaves nothing on a screen, or is not what it looks like: control
// characters, what turns the direction of text around, what is between letters without
// a width, and the tags and selectors in which a text can be written within another one.
func Unseen(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return unicode.IsControl(r)
	case unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return false // of the format characters those that have ink
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// text refuses what is [Unseen], but for line breaks and tabs, and for what letters and
// emoji are written with.
func text(path, s string) error {
	var before rune
	for _, r := range s {
		if r != '\n' && r != '\t' && r != '\r' && Unseen(r) && !shapes(r, before) {
			return invalid(path, "it has a character that cannot be seen, %U", r)
		}
		before = r
	}
	return nil
}

// shapes says that r is part of how before is written: a selector behind what has
// several shapes, or a joiner behind a letter that is joined. One alone: a row of them
// could be a text.
func shapes(r, before rune) bool {
	selected := unicode.Is(unicode.Variation_Selector, before)
	switch {
	case unicode.Is(unicode.Variation_Selector, r):
		return !Unseen(before) && (before >= utf8.RuneSelf || before != 0 && strings.ContainsRune("0123456789#*", before))
	case unicode.Is(unicode.Join_Control, r):
		return before >= utf8.RuneSelf && (selected || !Unseen(before))
	}
	return false
}
