// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"strings"
	"testing"
)

// What a person kept is read as it was printed, or not at all.
func FuzzParseHead(f *testing.F) {
	f.Add("1:" + strings.Repeat("0a", 32))
	f.Add(" 9223372036854775807:" + strings.Repeat("ff", 32) + "\n")
	f.Add("01:" + strings.Repeat("AB", 32))
	f.Add("-1:")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseHead(s)
		if err != nil {
			return
		}
		again, err := ParseHead(c.Head())
		if err != nil || again.Count != c.Count || again.Link != c.Link || c.Count < 1 {
			t.Errorf("%q: %+v, then %+v, %v", s, c, again, err)
		}
	})
}
