// SPDX-License-Identifier: Apache-2.0

package session

import "unicode/utf8"

// Ends keeps the beginning and the end of what is written to it, max bytes in all: an
// error stands at the end as a rule, and what it is about at the beginning. It is for one
// goroutine. Without a maximum it keeps everything.
type Ends struct {
	max  int64
	head []byte
	tail ring
	n    int64 // bytes written
}

// maxTail is how much of the end is kept at most.
const maxTail = 64 << 10

// tailOf is the share of maximum that is for the end.
func tailOf(maximum int64) int64 { return min(maximum/4, maxTail) }

// NewEnds keeps at most maximum bytes; 0 is no bound.
func NewEnds(maximum int64) *Ends {
	return &Ends{max: maximum, tail: ring{max: int(tailOf(maximum))}}
}

// Write implements io.Writer.
func (e *Ends) Write(p []byte) (int, error) {
	first := p
	if e.max > 0 {
		first = p[:min(int64(len(p)), max(0, e.max-int64(e.tail.max)-e.n))]
	}
	e.head = append(e.head, first...)
	e.tail.write(p[len(first):])
	e.n += int64(len(p))
	return len(p), nil
}

// Room is how many more bytes are kept before others give way; of use with a maximum.
func (e *Ends) Room() int64 { return max(0, e.max-e.n) }

// Bytes is what is kept, how many bytes are not, and where in it they are missing. A
// character that was cut apart there is left out.
func (e *Ends) Bytes() (b []byte, cut, at int64) {
	head, tail := e.head, e.tail.bytes()
	if e.max > 0 && e.n > e.max {
		head, tail = WholeRunes(head), wholeBeginning(tail)
	}
	b = append(head[:len(head):len(head)], tail...)
	return b, e.n - int64(len(b)), int64(len(head))
}

// ring has the last max bytes that were written.
type ring struct {
	max   int
	b     []byte
	start int // of the oldest one, once it is full
}

func (r *ring) write(p []byte) {
	if len(p) >= r.max {
		r.b, r.start = append(r.b[:0], p[len(p)-r.max:]...), 0
		return
	}
	n := min(len(p), r.max-len(r.b))
	r.b = append(r.b, p[:n]...)
	for p = p[n:]; len(p) > 0; p = p[n:] {
		n = copy(r.b[r.start:], p)
		r.start = (r.start + n) % r.max
	}
}

// bytes are in the order in which they were written.
func (r *ring) bytes() []byte { return append(r.b[r.start:len(r.b):len(r.b)], r.b[:r.start]...) }

// wholeBeginning leaves out what is left of one at the beginning.
func wholeBeginning(b []byte) []byte {
	for i := range min(utf8.UTFMax, len(b)+1) {
		if i == len(b) || utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b // no text
}
