// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"memory", "memory", 0}, {"", "cpus", 4}, {"memroy", "memory", 1}, {"memry", "memory", 1},
		{"memmory", "memory", 1}, {"nemory", "memory", 1}, {"cpus", "disk", 4},
		{strings.Repeat("x", maxWord+1), "x", maxWord},
	} {
		if got := Distance(tc.a, tc.b); got != tc.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestDistanceIsSymmetricAndBounded(t *testing.T) {
	word := rapid.StringMatching(`[a-d]{0,12}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := Distance(a, b)
		if d != Distance(b, a) || (d == 0) != (a == b) || d > max(len(a), len(b)) {
			t.Fatalf("%q, %q: %d and back %d", a, b, d, Distance(b, a))
		}
	})
}
