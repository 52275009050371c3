// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Whatever is written, in whatever pieces: the beginning and the end are kept, and what is
// missing is known.
func TestEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maximum := rapid.Int64Range(0, 200).Draw(t, "maximum")
		e := NewEnds(maximum)
		var all []byte
		for _, p := range rapid.SliceOf(rapid.SliceOfN(rapid.ByteRange(0, 127), 0, 90)).Draw(t, "pieces") {
			e.Write(p)
			all = append(all, p...)
		}
		b, cut, at := e.Bytes()
		if maximum == 0 || int64(len(all)) <= maximum {
			if !bytes.Equal(b, all) || cut != 0 {
				t.Fatalf("%q, cut %d; want %q", b, cut, all)
			}
			return
		}
		head, tail := all[:maximum-tailOf(maximum)], all[int64(len(all))-tailOf(maximum):]
		if string(b) != string(head)+string(tail) || cut != int64(len(all))-maximum || at != int64(len(head)) || e.Room() != 0 {
			t.Fatalf("%q, cut %d at %d; want %q and %q of %q", b, cut, at, head, tail, all)
		}
	})
}

// Text stays text wherever it is cut.
func TestEndsOfText(t *testing.T) {
	for maximum := int64(1); maximum < 40; maximum++ {
		e := NewEnds(maximum)
		e.Write([]byte(strings.Repeat("aé€😀", 20)))
		b, cut, at := e.Bytes()
		if !utf8.Valid(b) || int64(len(b)) > maximum || int64(len(b)) < maximum-6 || cut != 200-int64(len(b)) || at > int64(len(b)) {
			t.Errorf("%d: %q, cut %d at %d", maximum, b, cut, at)
		}
	}
}
