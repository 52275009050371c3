// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
)

var errHungUp = errors.New("no client listens any more")

// frameListener writes frames.
type frameListener struct{ out *frameWriter }

func (l frameListener) output(k wire.Kind, b []byte) error { return l.out.data(k, b) }
func (l frameListener) alive()                             { l.out.alive() }
func (l frameListener) idle() time.Duration                { return l.out.idle() }
func (l frameListener) hangUp()                            { l.out.close() }

// envelopeListener writes envd's events.
type envelopeListener struct {
	out      *envelopeWriter
	terminal bool
}

func (l envelopeListener) output(k wire.Kind, b []byte) error {
	var e eventData
	switch {
	case l.terminal:
		e.Data.PTY = b
	case k == wire.Stderr:
		e.Data.Stderr = b
	default:
		e.Data.Stdout = b
	}
	return l.out.event(e)
}

func (l envelopeListener) alive()              { l.out.event(eventKeepalive{}) }
func (l envelopeListener) idle() time.Duration { return l.out.idle() }
func (l envelopeListener) hangUp()             { l.out.close() }

// The events of Start and Connect, as one struct each.
type (
	eventStart struct {
		Start struct {
			PID int `json:"pid"`
		} `json:"start"`
	}
	eventData struct {
		Data struct {
			Stdout []byte `json:"stdout,omitempty"`
			Stderr []byte `json:"stderr,omitempty"`
			PTY    []byte `json:"pty,omitempty"`
		} `json:"data"`
	}
	eventEnd struct {
		End processEnd `json:"end"`
	}
	eventKeepalive struct {
		Keepalive struct{} `json:"keepalive"`
	}
	processEnd struct {
		ExitCode int    `json:"exitCode"`
		Exited   bool   `json:"exited"`
		Status   string `json:"status"`
		Error    string `json:"error,omitempty"`
	}
)

// ended is envd's form of an end.
func ended(e wire.ExitEvent) processEnd {
	if e.Signal != 0 {
		s := "signal: " + syscall.Signal(e.Signal).String()
		return processEnd{ExitCode: -1, Status: s, Error: s}
	}
	end := processEnd{ExitCode: e.Code, Exited: true, Status: fmt.Sprintf("exit status %d", e.Code)}
	if e.Code != 0 {
		end.Error = end.Status
	}
	return end
}

// writer is a response that is written piece by piece, each at once. It is safe
// for concurrent use.
type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController

	mu   sync.Mutex
	err  error
	last time.Time
}

func newWriter(w http.ResponseWriter, contentType string) *writer {
	w.Header().Set("Content-Type", contentType)
	return &writer{w: w, control: http.NewResponseController(w), last: time.Now()}
}

// send writes b. The caller holds mu.
func (w *writer) send(b []byte) error {
	if w.err == nil {
		_, w.err = w.w.Write(b)
	}
	if w.err == nil {
		w.err = w.control.Flush()
	}
	w.last = time.Now()
	return w.err
}

func (w *writer) idle() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.last)
}

// close makes every write fail from now on: a response must not be touched when
// its request is over.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = errHungUp
	}
}

// reopen takes close back, for the last words of the handler that still has the
// request.
func (w *writer) reopen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == errHungUp {
		w.err = nil
	}
}
