// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// TestParseIsBounded: no file within the size that is read takes long, and the
// faults that are shown stay few.
func TestParseIsBounded(t *testing.T) {
	var keys strings.Builder
	keys.WriteString("version: 1\n")
	for i := 0; keys.Len() < maxFile-20; i++ {
		keys.WriteString("k" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + ": 1\n")
	}
	for name, src := range map[string]string{
		"unknown keys":  keys.String(),
		"deep flow":     strings.Repeat("[", maxFile-1),
		"deep mappings": strings.Repeat("{a: ", maxFile/4-1),
		"deep blocks":   strings.Repeat("- ", maxFile/2-1),
		"one word":      strings.Repeat("a", maxFile),
		"one key":       "version: 1\n" + strings.Repeat("a", 900) + ": 1",
		"many values":   "version: 1\nfiles: {writable: [" + strings.Repeat("x,", maxFile/2-30) + "]}",
		"long target":   "version: 1\nfiles: {writable: [" + strings.Repeat("x", maxFile/2) + "]}",
		"long anchor":   "version: 1\nfiles: {deny: [&" + strings.Repeat("x", maxFile/2) + " a]}",
		"anchors":       "version: 1\nfiles: {deny: [" + strings.Repeat("&a x, *a,", maxFile/9-10) + "]}",
		"comments":      strings.Repeat("#\n", maxFile/2-1),
		"too much":      strings.Repeat("#", maxFile+1),
	} {
		before := used(t)
		_, err := Parse("p.yaml", []byte(src))
		if err == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		n := 0
		each(err, func(err error) {
			n++
			if len(sandbox.Hint(err)) > 400 {
				t.Errorf("%s: a hint of %d bytes", name, len(sandbox.Hint(err)))
			}
		})
		if n == 0 || n > maxFaults+1 || len(err.Error()) > 64<<10 {
			t.Errorf("%s: %d faults in %d bytes", name, n, len(err.Error()))
		}
		// Far above what it takes, far below what would be a way to stall.
		if took := used(t) - before; took > 10*time.Second {
			t.Errorf("%s took %v", name, took)
		} else {
			t.Logf("%s: %v", name, took)
		}
	}
}

// How long a file may be is said for people, whatever was read of it.
func TestTooLong(t *testing.T) {
	_, err := Parse("p.yaml", make([]byte, 3<<20))
	if err == nil || err.Error() != "p.yaml:1:1: it is longer than 256 KiB" || sandbox.Hint(err) == "" {
		t.Errorf("%v", err)
	}
}
