// SPDX-License-Identifier: Apache-2.0

package sandbox

import "testing"

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "x", true}, {"a", "a", true}, {"a", "ab", false}, {"a*", "ab", true}, {"a*", "ba", false}, {"*b", "ab", true},
		{"*b", "ba", false}, {"a*b", "ab", true}, {"a*b", "a", false}, {"ab*ba", "aba", false}, {"a*b*c", "a-b-c", true}, {"a*b*c", "ac", false}, {"", "", true}, {"", "x", false},
	} {
		if got := Matches(c.pattern, c.name); got != c.want {
			t.Errorf("%q, %q: %v", c.pattern, c.name, got)
		}
	}
}
