// SPDX-License-Identifier: Apache-2.0

package session

import "testing"

func TestWholeRunes(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a": "a", "☕": "☕", "☕\xe2": "☕", "☕\xe2\x98": "☕", "\xe2": "", "\xe2\x98": "", "\xf0\x9f\x98": "",
		"a\xff": "a\xff", "\x80\x80\x80": "\x80\x80\x80", "é": "é",
	} {
		if got := string(WholeRunes([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
