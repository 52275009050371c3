// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"time"
)

// MarkSize and nonceSize are in bytes.
const (
	MarkSize  = 32
	nonceSize = 16
)

// Stream carries sessions: a socket, or two pipes joined by [Pair].
//
// Expired deadlines must interrupt a Read or Write that is under way, which
// is how a session is taken off the stream.
type Stream interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Mark tells a session's start from everything else on a stream. It is random
// and belongs to one sandbox, since an upload that held it would end its own
// session. The guest agent gets it when it starts; code beside it must not.
type Mark [MarkSize]byte

// NewMark returns a random mark.
func NewMark() Mark {
	var m Mark
	rand.Read(m[:]) // never fails: crypto/rand ends the program instead
	return m
}

// ParseMark reads what [Mark.String] wrote.
func ParseMark(s string) (Mark, error) {
	var m Mark
	if len(s) != 2*MarkSize {
		return Mark{}, errors.New("a mark has 64 hex digits")
	}
	if _, err := hex.Decode(m[:], []byte(s)); err != nil {
		return Mark{}, err
	}
	if m == (Mark{}) {
		return Mark{}, errors.New("the mark is all zero")
	}
	return m, nil
}

// String is the mark in hex.
func (m Mark) String() string { return hex.EncodeToString(m[:]) }

// answer is what the guest sends in place of the mark.
func (m Mark) answer() Mark {
	for i := range m {
		m[i] = ^m[i]
	}
	return m
}

// scanner finds a needle in a stream of chunks, over their borders too.
//
// Nothing is held back: bytes that may be the needle's beginning go on to the
// reader at once, since holding one back would stall a reader that waits for
// it.
type scanner struct {
	needle []byte
	tail   []byte // the last len(needle)-1 bytes, or fewer, of what was fed
	window []byte // tail and the beginning of a chunk
}

func newScanner(needle []byte) *scanner {
	return &scanner{needle: bytes.Clone(needle)}
}

// feed returns the offset in p behind the needle's first full occurrence in
// everything that was fed, or -1. Bytes of p behind it have not been fed then.
func (s *scanner) feed(p []byte) int {
	k := len(s.needle) - 1
	s.window = append(append(s.window[:0], s.tail...), p[:min(k, len(p))]...)
	if i := bytes.Index(s.window, s.needle); i >= 0 {
		end := i + len(s.needle) - len(s.tail)
		s.tail = s.tail[:0]
		return end
	}
	if i := bytes.Index(p, s.needle); i >= 0 {
		s.tail = s.tail[:0]
		return i + len(s.needle)
	}
	if len(p) >= k {
		s.tail = append(s.tail[:0], p[len(p)-k:]...)
	} else {
		keep := s.window[max(0, len(s.window)-k):]
		s.tail = append(s.tail[:0], keep...)
	}
	return -1
}
