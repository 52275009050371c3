// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
)

// maxStale is how many bytes of earlier sessions an opener skips before it
// calls the stream unusable. What an honest guest still has under way when a
// session begins was seen to be 330 kB at most.
const maxStale = 64 << 20

// Opener is the host's end of a stream. It is safe for concurrent use.
type Opener struct {
	stream Stream
	mark   Mark

	mu      sync.Mutex
	current *session
}

// NewOpener makes the host's end. The caller keeps the stream and closes it.
func NewOpener(s Stream, mark Mark) *Opener { return &Opener{stream: s, mark: mark} }

// Open begins a session and ends the one before it. It fails when ctx ends,
// when the stream does, and when nothing but stale bytes arrives; the stream
// may be tried again then.
func (o *Opener) Open(ctx context.Context) (net.Conn, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current != nil {
		o.current.Close()
		o.current = nil
	}
	rest := &leftover{}
	s, err := newSession(o.stream, rest.reader(o.stream))
	if err != nil {
		return nil, fmt.Errorf("begin a session: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { s.SetDeadline(past) })
	rest.bytes, err = o.greet()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("begin a session with the guest agent: %w", err)
	}
	o.current = s
	return s, nil
}

// Drop ends the session that there is, of whose bytes some were lost. It does not wait for an
// Open that is under way, which has ended that itself.
func (o *Opener) Drop() {
	if !o.mu.TryLock() {
		return
	}
	defer o.mu.Unlock()
	if o.current != nil {
		o.current.Close()
		o.current = nil
	}
}

// greet sends the mark and returns what came behind the answer to it.
//
// It writes while it reads: a guest that is stuck writing to the session before
// reads on only when that is taken off the stream.
func (o *Opener) greet() ([]byte, error) {
	var nonce [nonceSize]byte
	rand.Read(nonce[:])
	sent := make(chan error, 1)
	go func() {
		_, err := o.stream.Write(append(o.mark[:], nonce[:]...))
		if err != nil {
			o.stream.SetReadDeadline(past)
		}
		sent <- err
	}()
	rest, err := o.skip(nonce)
	if err != nil {
		o.stream.SetWriteDeadline(past)
	}
	return rest, errors.Join(<-sent, err)
}

// skip drops bytes until the answer to nonce.
func (o *Opener) skip(nonce [nonceSize]byte) ([]byte, error) {
	answer := o.mark.answer()
	scan := newScanner(append(answer[:], nonce[:]...))
	buf := make([]byte, 64<<10)
	for stale := 0; stale <= maxStale; {
		n, err := o.stream.Read(buf)
		if end := scan.feed(buf[:n]); end >= 0 {
			return bytes.Clone(buf[end:n]), nil
		}
		if err != nil {
			return nil, err
		}
		stale += n
	}
	return nil, errors.New("the stream carries nothing but stale bytes")
}

// leftover is what was read behind an answer.
type leftover struct{ bytes []byte }

// reader hands out the leftover before the stream.
func (l *leftover) reader(s Stream) func([]byte) (int, error) {
	return func(p []byte) (int, error) {
		if len(l.bytes) > 0 {
			n := copy(p, l.bytes)
			l.bytes = l.bytes[n:]
			return n, nil
		}
		return s.Read(p)
	}
}
