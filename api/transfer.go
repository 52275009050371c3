// SPDX-License-Identifier: Apache-2.0

package api

import (
	"io"
	"net/http"
	"time"
)

// TransferTimeout is how long an upload, and a client that is answered, may stand still.
const TransferTimeout = time.Minute

// TransferReader lets a body come slowly, but not stop.
type TransferReader struct {
	io.Reader
	Control *http.ResponseController
}

// Read implements io.Reader.
func (p TransferReader) Read(b []byte) (int, error) {
	p.Control.SetReadDeadline(time.Now().Add(TransferTimeout))
	return p.Reader.Read(b)
}

// TransferWriter lets a client take its time, but not stop: an answer that it has stopped
// to read is broken off. There is no deadline between two writes, which may be as
// far apart as they like.
type TransferWriter struct {
	http.ResponseWriter
	Control *http.ResponseController
}

// NewTransferWriter is a TransferWriter on w.
func NewTransferWriter(w http.ResponseWriter) TransferWriter {
	return TransferWriter{w, http.NewResponseController(w)}
}

// Write implements io.Writer.
func (p TransferWriter) Write(b []byte) (int, error) {
	p.Control.SetWriteDeadline(time.Now().Add(TransferTimeout))
	defer p.Control.SetWriteDeadline(time.Time{})
	return p.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController looks for.
func (p TransferWriter) FlushError() error {
	p.Control.SetWriteDeadline(time.Now().Add(TransferTimeout))
	defer p.Control.SetWriteDeadline(time.Time{})
	return p.Control.Flush()
}

// Unwrap lets http.ResponseController reach what is below.
func (p TransferWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Serve has next answer a request of owner's whose body is a message, within what
// owner may have under way.
func (m *Memory) Serve(owner string, w http.ResponseWriter, r *http.Request, next http.Handler) {
	w = NewTransferWriter(w)
	held, err := m.Hold(owner)
	if err != nil {
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	defer held.Done()
	control := http.NewResponseController(w)
	r.Body = &Message{ReadCloser: held.Body(r.Body), Control: control, Timeout: TransferTimeout}
	next.ServeHTTP(w, r)
}

// Message is a body that arrives within Timeout, as a whole. It clears the
// deadline when it has: a request that is under way has none.
type Message struct {
	io.ReadCloser
	Control *http.ResponseController
	Timeout time.Duration
	begun   bool
}

// Read implements io.Reader.
func (m *Message) Read(b []byte) (int, error) {
	if !m.begun {
		m.begun = true
		m.Control.SetReadDeadline(time.Now().Add(m.Timeout))
	}
	n, err := m.ReadCloser.Read(b)
	if err != nil {
		m.Control.SetReadDeadline(time.Time{})
	}
	return n, err
}
