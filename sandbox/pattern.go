// SPDX-License-Identifier: Apache-2.0

package sandbox

import "strings"

// Matches reports whether the whole of text is of pattern, in which * stands for any run of
// bytes, none included. Its time is at most the product of both lengths.
func Matches(pattern, text string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	if !strings.HasPrefix(text, first) {
		return false
	}
	text = text[len(first):]
	for {
		next, more, wild := strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(text, rest)
		}
		i := strings.Index(text, next)
		if i < 0 {
			return false
		}
		text, rest = text[i+len(next):], more
	}
}
