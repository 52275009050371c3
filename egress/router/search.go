// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"math/rand/v2"
)

// search finds secrets in a text that comes in pieces, and puts stars in their
// place.
//
// It takes the same time for each byte whatever the text and the secrets are
// (Rabin and Karp's rolling sum), as long as no whole secret is found. The search
// of package bytes takes ten times as long where a text has many beginnings of
// what is looked for: code could tell from the pace of a long answer how a secret
// begins.
type search struct {
	factor  uint64
	texts   []sought
	longest int
	// past are the last bytes that came, without stars, as many as longest. Before
	// the text they are zero, which no secret has.
	past []byte
}

// sought is one text that is looked for.
type sought struct {
	text []byte
	want uint64 // the sum of text
	sum  uint64 // the sum of the last len(text) bytes
	out  uint64 // factor to the power of len(text), which takes the oldest byte out of sum
}

func newSearch(texts [][]byte) *search {
	s := &search{factor: rand.Uint64() | 1}
	for _, text := range texts {
		t := sought{text: text, out: 1}
		for _, c := range text {
			t.want = t.want*s.factor + uint64(c)
			t.out *= s.factor
		}
		s.texts = append(s.texts, t)
		s.longest = max(s.longest, len(text))
	}
	s.past = make([]byte, s.longest)
	return s
}

// cover takes the next piece, which is the last n bytes of b. It puts stars over
// the secrets that end in it, as far as they are in b, and reports whether there
// were any.
func (s *search) cover(b []byte, n int) (found bool) {
	s.past = append(s.past, b[len(b)-n:]...)
	for i := range s.texts {
		if s.texts[i].cover(s, b, n) {
			found = true
		}
	}
	s.past = s.past[:copy(s.past, s.past[len(s.past)-s.longest:])]
	return found
}

func (t *sought) cover(s *search, b []byte, n int) (found bool) {
	came, size := s.past[len(s.past)-n:], len(t.text)
	sum, factor, out := t.sum, s.factor, t.out
	before := s.past[len(s.past)-n-size:]
	old := before[:len(came)]
	for i, c := range came {
		sum = sum*factor + (uint64(c) - out*uint64(old[i]))
		if sum != t.want || !bytes.Equal(before[i+1:i+1+size], t.text) {
			continue
		}
		found = true
		end := len(b) - n + i + 1
		for at := max(end-size, 0); at < end; at++ {
			b[at] = '*'
		}
	}
	t.sum = sum
	return found
}
