// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"
)

// A server of TLS may ask for a second ClientHello (HelloRetryRequest, RFC 8446, 4.1.4),
// and OpenSSL then serves whom that one names. So what a client says after its first
// waits for the server's answer, and is held to the same when it is another.

// Answer reads what a server of TLS says, and sees whether it asks for that.
type Answer struct {
	r     io.Reader
	seen  []byte // of the beginning, as long as that is not clear
	known chan struct{}
	retry bool // written before known is closed
}

// NewAnswer reads r.
func NewAnswer(r io.Reader) *Answer { return &Answer{r: r, known: make(chan struct{})} }

// Read reads on. It is called by one goroutine.
func (a *Answer) Read(b []byte) (int, error) {
	n, err := a.r.Read(b)
	select {
	case <-a.known:
		return n, err
	default:
	}
	a.seen = append(a.seen, b[:n]...)
	retry, sure := asks(a.seen)
	if sure || err != nil {
		a.retry, a.seen = retry && sure, nil
		close(a.known)
	}
	return n, err
}

// retryRandom is what a ServerHello has for a random number that asks for a second
// ClientHello (RFC 8446, 4.1.3).
var retryRandom = []byte{
	0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
	0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
}

// asks reports whether b, the beginning of a server's words, asks for a second
// ClientHello. A ServerHello in pieces too small to tell is taken for one that does.
func asks(b []byte) (retry, sure bool) {
	for len(b) >= 5 && b[0] == recordAlert { // a warning
		next := 5 + recordLength(b)
		if len(b) < next {
			return false, false
		}
		b = b[next:]
	}
	const random = 5 + 4 + 2 // after the heads of record and message, and the version
	switch {
	case len(b) < 6:
		return false, len(b) > 0 && b[0] != recordHandshake && b[0] != recordAlert
	case b[0] != recordHandshake || b[5] != messageServerHello:
		return false, true
	case recordLength(b) < random-5+len(retryRandom):
		return true, true
	case len(b) < random+len(retryRandom):
		return false, false
	}
	return bytes.Equal(b[random:random+len(retryRandom)], retryRandom), true
}

// recordLength is how long a record is by its head, in bytes.
func recordLength(head []byte) int { return int(head[3])<<8 | int(head[4]) }

// answerTime is how long a client's words wait for a server's answer.
const answerTime = 30 * time.Second

// Rest reads what a client of TLS says, from its first ClientHello on, which was
// looked at. A second one is shown to Check, whose error is the end.
type Rest struct {
	R      *bufio.Reader // as First left it
	Hello  Hello         // the first
	Answer *Answer
	Check  func(Hello, error) error

	begun bool
	left  int  // bytes that pass without another look
	sure  bool // all others do
}

// Read reads on.
func (r *Rest) Read(b []byte) (int, error) {
	if !r.begun {
		r.begun, r.left = true, r.Hello.Length
	}
	if r.left == 0 && !r.sure {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	if r.left > 0 && len(b) > r.left {
		b = b[:r.left]
	}
	n, err := r.R.Read(b)
	r.left = max(r.left-n, 0)
	return n, err
}

// next decides about what comes after what has passed.
func (r *Rest) next() error {
	if _, err := r.R.Peek(1); err != nil {
		return err
	}
	late := time.NewTimer(answerTime)
	defer late.Stop()
	select {
	case <-r.Answer.known:
	case <-late.C:
		return errors.New("the server does not answer the ClientHello")
	}
	if !r.Answer.retry {
		r.sure = true
		return nil
	}
	head, err := r.R.Peek(5)
	if err != nil {
		return err
	}
	if head[0] == recordChangeCipher || head[0] == recordData { // data that came early is dropped by the server
		r.left = 5 + recordLength(head)
		return nil
	}
	h, err := hello(r.R)
	if err := r.Check(h, err); err != nil {
		return err
	}
	r.sure = true
	return nil
}
