// SPDX-License-Identifier: Apache-2.0

package session

import "unicode/utf8"

// WholeRunes leaves out a character at the end of b that was cut apart.
func WholeRunes(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if last := b[len(b)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}
