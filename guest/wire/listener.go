// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// answerTimeout bounds how long the guest waits for a host to take its answer.
const answerTimeout = 10 * time.Second

// chunkSize is how much is read from the stream at once, for a reader that wants less.
const chunkSize = 4 << 10

// errNotTaken means that the host went away between its mark and our answer.
// The next one may do better.
var errNotTaken = errors.New("the host did not take the answer")

// Listener is the guest's end of a stream: a net.Listener whose connections
// are sessions, one at a time.
type Listener struct {
	stream Stream
	mark   Mark
	stay   time.Duration

	// Only the user of the stream touches these: Accept, or the one session.
	scan  *scanner
	rest  []byte // read, not yet scanned
	clean []byte // read and scanned, not yet handed on
	chunk []byte // what clean is a part of
	found bool   // the mark was read, its nonce not yet

	mu      sync.Mutex
	current *session
	closed  bool
}

// NewListener makes the guest's end. An end of file ends the listener when
// stay is 0. Otherwise Accept waits for the stream to come back to life, as it
// does when a sandbox is restored from a checkpoint, for at most stay.
func NewListener(s Stream, mark Mark, stay time.Duration) *Listener {
	return &Listener{stream: s, mark: mark, stay: stay, scan: newScanner(mark[:]), chunk: make([]byte, chunkSize)}
}

// Accept waits until the session before is closed and the host begins a new
// one. It returns io.EOF when the stream has ended.
func (l *Listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	last := l.current
	l.mu.Unlock()
	if last != nil {
		<-last.done
	}
	s, err := newSession(l.stream, l.read)
	if err != nil {
		return nil, err
	}
	// Close finds the stream here while Accept waits for a mark.
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, net.ErrClosed
	}
	l.current = s
	l.mu.Unlock()
	for {
		err := l.greeted()
		if err == nil {
			return s, nil
		}
		if l.isClosed() {
			err = net.ErrClosed
		}
		if err != errNotTaken || l.isClosed() {
			s.Close()
			return nil, err
		}
		if err := s.SetWriteDeadline(time.Time{}); err != nil {
			return nil, err
		}
	}
}

// greeted reads up to a mark and its nonce and answers them.
func (l *Listener) greeted() error {
	if err := l.await(); err != nil {
		return err
	}
	var nonce [nonceSize]byte
	for have := 0; have < nonceSize; {
		l.found = false
		n, found, err := l.scanned(nonce[have:])
		have += n
		if found { // a host died between its mark and its nonce; here is the next
			l.found, have = true, 0
			continue
		}
		if err != nil {
			return errNotTaken
		}
	}
	l.found = false
	if err := l.stream.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	answer := l.mark.answer()
	if _, err := l.stream.Write(append(answer[:], nonce[:]...)); err != nil {
		return errNotTaken
	}
	return l.stream.SetWriteDeadline(time.Time{})
}

// await reads until a mark.
func (l *Listener) await() error {
	buf := make([]byte, 4<<10)
	since, pause := time.Now(), 5*time.Millisecond
	for !l.found {
		_, found, err := l.scanned(buf)
		if found {
			l.found = true
			break
		}
		switch {
		case err == nil:
			since, pause = time.Now(), 5*time.Millisecond
		case l.isClosed() || time.Since(since) >= l.stay:
			return io.EOF // or a reset, which means the same
		default:
			// There is nothing to wait on: an end of file is readable for ever,
			// and it is not announced that another host has taken the other
			// end.
			time.Sleep(pause)
			pause = min(2*pause, 25*time.Millisecond)
		}
	}
	return nil
}

// read is a session's way to the stream. A mark is the session's end.
func (l *Listener) read(p []byte) (int, error) {
	if l.found {
		return 0, io.EOF
	}
	n, found, err := l.scanned(p)
	if found {
		l.found = true
		return 0, io.EOF
	}
	return n, err
}

// scanned reads into p and looks for the mark. When it is found, what was read
// behind it is kept for the next call, and n means nothing.
//
// It looks ahead of a reader that wants little: HTTP/2 reads nine bytes, and would
// take the first nine of a mark for the head of a frame, which ends the session as
// well, and by chance with an error in the log.
func (l *Listener) scanned(p []byte) (n int, found bool, err error) {
	if len(l.clean) == 0 {
		next := l.rest
		if len(next) == 0 {
			next = l.chunk
			if len(p) > len(next) {
				next = p
			}
			n, err = l.stream.Read(next)
			next = next[:n]
		}
		if end := l.scan.feed(next); end >= 0 {
			l.rest = bytes.Clone(next[end:])
			return 0, true, nil
		}
		l.rest = nil
		if len(p) > len(l.chunk) && n > 0 {
			return n, false, err // next is p
		}
		l.clean = next
	}
	n = copy(p, l.clean)
	if l.clean = l.clean[n:]; len(l.clean) > 0 {
		err = nil // it comes again
	}
	return n, false, err
}

// Close ends the listener and its session. The stream stays open.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	s := l.current
	l.mu.Unlock()
	if s != nil {
		// Accept may be on the stream without holding the session's locks; the
		// expired deadline reaches it all the same.
		return s.Close()
	}
	return nil
}

func (l *Listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return addr{} }
