// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"testing"
)

func TestHint(t *testing.T) {
	inner := &Error{Problem: "it is full", Hint: "empty it"}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"none":                     {errors.New("no"), ""},
		"nothing":                  {nil, ""},
		"its own":                  {inner, "empty it"},
		"wrapped":                  {fmt.Errorf("no: %w", inner), "empty it"},
		"of the outer one":         {&Error{Hint: "wait", Cause: inner}, "wait"},
		"where the outer has none": {&Error{Cause: fmt.Errorf("no: %w", inner)}, "empty it"},
		"nowhere":                  {&Error{Cause: &Error{}}, ""},
	} {
		if got := Hint(tc.err); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestClip(t *testing.T) {
	for s, want := range map[string]string{"": "", "abcd": "abcd", "abcde": "abcd…", "abcé": "abc…"} {
		if got := Clip(s, 4); got != want {
			t.Errorf("Clip(%q, 4) = %q, want %q", s, got, want)
		}
	}
}
