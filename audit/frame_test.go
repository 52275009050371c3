// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"fmt"
	"testing"
)

// FuzzFrame: what is read as a frame is one, to the byte.
func FuzzFrame(f *testing.F) {
	l := &Log{key: newKey(f), inst: "ca1550", now: clock()}
	head := Checkpoint{Installation: "ca1550", Link: fmt.Sprintf("%064x", 1)}
	for _, n := range []int{1, 2} {
		var list []*addition
		var records []*record
		for i := range n {
			in := intent(fmt.Sprint(i))
			a, err := in.record(fmt.Sprint("aud_", i))
			must(f, err)
			list, records = append(list, a), append(records, &a.record)
		}
		next, err := l.seal(head, records)
		must(f, err)
		f.Add(append(newFrame(list, next).encode(), "behind it"...))
	}
	f.Add([]byte(frameDomain))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, n, ok := parseFrame(b, "ca1550")
		if !ok {
			return
		}
		if n < 1 || n > int64(len(b)) {
			t.Fatalf("%d of %d bytes", n, len(b))
		}
		if again := got.encode(); !bytes.Equal(again, b[:n]) {
			t.Errorf("%q, then %q", b[:n], again)
		}
		got.follows(head)
		got.complete()
	})
}

// FuzzTailHead: what is read as a sector is one, to the byte, or nothing but zeros.
func FuzzTailHead(f *testing.F) {
	says := tailHead{Boot: "b", End: tailStart, Base: "0", Head: Checkpoint{Installation: "ca1550", Count: 3}}
	b, err := says.sector()
	must(f, err)
	f.Add(b)
	f.Add(make([]byte, tailStart))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		says, ok := parseTailHead(b)
		if !ok || says.blank() {
			return
		}
		again, err := says.sector()
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%q, then %q, %v", b, again, err)
		}
	})
}
