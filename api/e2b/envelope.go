// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/sandbox"
)

// The Connect protocol, as far as E2B's clients speak it: JSON, unary calls
// and streams from the server (https://connectrpc.com/docs/protocol).

const (
	// maxMessage bounds one message of a client, in bytes: a unary call's body
	// or an envelope. Clients send standard input in messages of any size;
	// api.LimitJSON bounds what a message is made of.
	maxMessage = 16 << 20

	flagCompressed = 1
	flagEnd        = 2

	// writeTimeout is how long a client may leave one message of a stream
	// unread before the stream is given up. The process behind it goes on.
	writeTimeout = 5 * time.Minute
)

// errLate is why a context ended whose call took longer than its client gave it.
var errLate = &connectError{codeDeadline, "the call took longer than its timeout"}

// readUnary reads a unary call's message. Fields that are not known are
// ignored, as envd does.
func readUnary(w http.ResponseWriter, r *http.Request, v any) error {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer control.SetReadDeadline(time.Time{})
	b, err := io.ReadAll(http.MaxBytesReader(w, api.LimitJSON(r.Body), maxMessage))
	var big *http.MaxBytesError
	var many *api.TooMany
	switch {
	case errors.As(err, &big):
		return &connectError{codeExhausted, fmt.Sprintf("the message is longer than %d bytes", maxMessage)}
	case errors.As(err, &many):
		return &connectError{codeExhausted, many.Error()}
	case errors.Is(err, sandbox.ErrExhausted):
		return err
	case err != nil:
		return &connectError{codeInvalid, "the message cannot be read"}
	}
	if err := json.Unmarshal(b, v); err != nil {
		return &connectError{codeInvalid, "the message is not what this call takes: " + err.Error()}
	}
	return nil
}

// readEnvelope reads the one message of a streaming call, and the end of the
// request behind it.
func readEnvelope(w http.ResponseWriter, r *http.Request, v any) error {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer control.SetReadDeadline(time.Time{})
	b, err := cutEnvelope(r.Body)
	if err != nil {
		return err
	}
	// Only a body that was read to its end lets the server see that a client
	// has gone.
	if n, _ := r.Body.Read(make([]byte, 1)); n != 0 {
		return &connectError{codeInvalid, "there is more than one message"}
	}
	if err := json.Unmarshal(b, v); err != nil {
		return &connectError{codeInvalid, "the message is not what this call takes: " + err.Error()}
	}
	return nil
}

// readCall reads a streaming call's message, and how long its client gives the call.
func readCall(w http.ResponseWriter, r *http.Request, v any) (time.Duration, error) {
	if err := readEnvelope(w, r, v); err != nil {
		return 0, err
	}
	return callTimeout(r)
}

// cutEnvelope reads flags, the length in big endian, and so many bytes. Memory
// grows with what arrives, not with what is claimed.
func cutEnvelope(r io.Reader) ([]byte, error) {
	var h [5]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, &connectError{codeInvalid, "the message has no envelope"}
	}
	n := binary.BigEndian.Uint32(h[1:])
	switch {
	case h[0] == flagCompressed:
		return nil, &connectError{codeUnimplemented, "compressed messages are not taken"}
	case h[0] != 0:
		return nil, &connectError{codeInvalid, fmt.Sprintf("an envelope with the flags %#x is not expected", h[0])}
	case n > maxMessage:
		return nil, &connectError{codeExhausted, fmt.Sprintf("the message has %d bytes, more than %d", n, maxMessage)}
	}
	b, err := io.ReadAll(api.LimitJSON(io.NopCloser(io.LimitReader(r, int64(n)))))
	var many *api.TooMany
	switch {
	case errors.As(err, &many):
		return nil, &connectError{codeExhausted, many.Error()}
	case errors.Is(err, sandbox.ErrExhausted):
		return nil, err
	case err != nil || len(b) < int(n):
		return nil, &connectError{codeInvalid, "the message is cut short"}
	}
	return b, nil
}

// callTimeout is how long the client gives a call; 0 is for ever. The protocol
// allows ten digits of milliseconds.
func callTimeout(r *http.Request) (time.Duration, error) {
	s := r.Header.Get("Connect-Timeout-Ms")
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || len(s) > 10 {
		return 0, &connectError{codeInvalid, "Connect-Timeout-Ms is no number of at most ten digits"}
	}
	return time.Duration(n) * time.Millisecond, nil
}

// keepaliveEvery is how long a stream may be silent before a keepalive event.
func keepaliveEvery(r *http.Request) time.Duration {
	const usual, minimum, maximum = 90, 1, 3600
	n, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval"))
	if err != nil || n <= 0 {
		n = usual
	}
	return time.Duration(min(max(n, minimum), maximum)) * time.Second
}

var errDetached = errors.New("no client listens")

// stream writes the envelopes of one answer. It is safe for concurrent use.
type stream struct {
	control *http.ResponseController
	w       http.ResponseWriter

	mu   sync.Mutex
	buf  []byte
	last time.Time // when something was written
	err  error     // sticky
}

// newStream begins an answer. The status of a stream is always 200; errors are
// told in its last envelope.
func newStream(w http.ResponseWriter) *stream {
	h := w.Header()
	h.Set("Content-Type", "application/connect+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold envelopes back
	w.WriteHeader(http.StatusOK)
	return &stream{w: w, control: http.NewResponseController(w), last: time.Now()}
}

// message writes one message.
func (s *stream) message(v any) error {
	if err := s.hold(v); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flush()
}

// hold is message for one that goes out with the next.
func (s *stream) hold(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(0)
	s.buf = append(s.buf, b...)
	return s.write()
}

// event writes {"event": e}, as all messages about processes are.
func (s *stream) event(e any) error { return s.message(processEvent{e}) }

// final is event for one that goes out with end, which follows at once: two pieces
// would wake the client twice.
func (s *stream) final(e any) error { return s.hold(processEvent{e}) }

type processEvent struct {
	Event any `json:"event"`
}

// data writes bytes of a process: field is stdout, stderr or pty. It is written
// by hand since all output of all processes goes through it.
func (s *stream) data(field string, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(0)
	s.buf = append(s.buf, `{"event":{"data":{"`...)
	s.buf = append(s.buf, field...)
	s.buf = append(s.buf, `":"`...)
	s.buf = base64.StdEncoding.AppendEncode(s.buf, p)
	s.buf = append(s.buf, `"}}}`...)
	if err := s.write(); err != nil {
		return err
	}
	return s.flush()
}

// end writes the last envelope; a nil error is a good end.
func (s *stream) end(err error) error {
	b := []byte(`{}`)
	if err != nil {
		b, _ = json.Marshal(map[string]*connectError{"error": asConnect(err)})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(flagEnd)
	s.buf = append(s.buf, b...)
	err = s.write()
	if err == nil {
		err = s.flush()
	}
	s.control.SetWriteDeadline(time.Time{}) // the connection has other calls yet
	return err
}

// detach lets go of the answer: nothing is written to it from now on.
func (s *stream) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = errDetached
}

func (s *stream) begin(flags byte) {
	s.buf = append(s.buf[:0], flags, 0, 0, 0, 0)
}

// write puts the envelope that was begun in front of the client, perhaps.
func (s *stream) write() error {
	if s.err != nil {
		return s.err
	}
	binary.BigEndian.PutUint32(s.buf[1:], uint32(len(s.buf)-5))
	s.last = time.Now()
	s.control.SetWriteDeadline(s.last.Add(writeTimeout))
	_, s.err = s.w.Write(s.buf)
	return s.err
}

// flush has what was written go out.
func (s *stream) flush() error {
	if s.err == nil {
		s.err = s.control.Flush()
	}
	return s.err
}

// processAlive is the keepalive of a stream about a process.
var processAlive = map[string]any{"event": map[string]any{"keepalive": struct{}{}}}

// keepAlive sends message whenever nothing was sent for so long. The caller calls
// stop before it returns from its handler.
func (s *stream) keepAlive(every time.Duration, message any) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTimer(every)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
			}
			s.mu.Lock()
			silent := time.Since(s.last)
			s.mu.Unlock()
			if silent >= every {
				s.message(message)
				silent = 0
			}
			t.Reset(every - silent)
		}
	}()
	return func() { close(done); <-ended }
}
