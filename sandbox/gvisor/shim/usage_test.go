// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import "testing"

func TestAnonymous(t *testing.T) {
	for status, want := range map[string]int64{
		"Name:\tx\nVmRSS:\t  80 kB\nRssAnon:\t   1234 kB\nRssFile:\t 9 kB\n": 1234 << 10,
		"Name:\tRssAnon: 5 kB\n": 0,
		"Name:\tx\nRssAnon:\n":   0,
		"":                       0,
	} {
		if got := anonymous(status); got != want {
			t.Errorf("anonymous(%q) = %d, want %d", status, got, want)
		}
	}
}
