// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// past is a deadline that has expired.
var past = time.Unix(1, 0)

// session is one conversation on a stream.
type session struct {
	stream Stream
	next   func([]byte) (int, error) // reads from the stream

	reading, writing sync.Mutex // held while a call is on the stream

	done chan struct{} // closed when nothing of this session is on the stream

	mu     sync.Mutex
	closed bool
}

func newSession(s Stream, next func([]byte) (int, error)) (*session, error) {
	// The session before left expired deadlines behind.
	if err := errors.Join(s.SetReadDeadline(time.Time{}), s.SetWriteDeadline(time.Time{})); err != nil {
		return nil, err
	}
	return &session{stream: s, next: next, done: make(chan struct{})}, nil
}

// Read implements net.Conn.
func (s *session) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.isClosed() {
		return 0, net.ErrClosed
	}
	n, err := s.next(p)
	if err != nil && err != io.EOF && s.isClosed() {
		err = net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (s *session) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.isClosed() {
		return 0, net.ErrClosed
	}
	n, err := s.stream.Write(p)
	if err != nil && s.isClosed() {
		err = net.ErrClosed
	}
	return n, err
}

// Close takes the session off the stream and leaves the stream open. It
// returns when no call of this session is on the stream any more.
func (s *session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.done
		return nil
	}
	s.closed = true
	err := errors.Join(s.stream.SetReadDeadline(past), s.stream.SetWriteDeadline(past))
	s.mu.Unlock()
	if errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) {
		err = nil // the stream itself is gone, and every call with it
	}

	s.reading.Lock()
	s.writing.Lock()
	close(s.done)
	s.writing.Unlock()
	s.reading.Unlock()
	return err
}

func (s *session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// SetReadDeadline implements net.Conn.
func (s *session) SetReadDeadline(t time.Time) error {
	return s.ifOpen(func() error { return s.stream.SetReadDeadline(t) })
}

// SetWriteDeadline implements net.Conn.
func (s *session) SetWriteDeadline(t time.Time) error {
	return s.ifOpen(func() error { return s.stream.SetWriteDeadline(t) })
}

// SetDeadline implements net.Conn.
func (s *session) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// ifOpen keeps a closed session from touching its successor's deadlines.
func (s *session) ifOpen(f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	return f()
}

// LocalAddr implements net.Conn.
func (s *session) LocalAddr() net.Addr { return addr{} }

// RemoteAddr implements net.Conn.
func (s *session) RemoteAddr() net.Addr { return addr{} }

// addr is the address of either end.
type addr struct{}

func (addr) Network() string { return "guest" }
func (addr) String() string  { return "guest:0" }
