// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/caisson-run/caisson/internal/envd"
)

// send writes input to the process. It waits for the process to read for as
// long as the request lives.
func (s *service) send(ctx context.Context, in envd.ProcessInput) error {
	switch {
	case in.PTY != nil && s.terminal == nil:
		return &connectError{codeInternal, "error writing to tty: tty not assigned to process — input should be written to the stdin, not the tty"}
	case in.PTY != nil:
		return s.write(ctx, "tty", *in.PTY)
	case in.Stdin != nil && s.terminal != nil:
		return &connectError{codeInternal, "error writing to stdin: tty assigned to process — input should be written to the pty, not the stdin"}
	case in.Stdin != nil && s.stdin == nil:
		return &connectError{codeInternal, "error writing to stdin: stdin not enabled or closed"}
	case in.Stdin != nil:
		return s.write(ctx, "stdin", *in.Stdin)
	}
	return &connectError{codeUnimplemented, "invalid input type: neither stdin nor pty"}
}

func (s *service) write(ctx context.Context, to string, b []byte) error {
	s.input.Lock()
	defer s.input.Unlock()
	stop := context.AfterFunc(ctx, func() { s.stdin.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := s.stdin.Write(b)
	if !stop() {
		s.stdin.SetWriteDeadline(time.Time{})
	}
	switch {
	case errors.Is(err, os.ErrClosed):
		return &connectError{codeInternal, fmt.Sprintf("error writing to %s: stdin not enabled or closed", to)}
	case err != nil:
		return &connectError{codeInternal, fmt.Sprintf("error writing to %s: error writing to %s of process '%d': %v", to, to, s.pid, err)}
	}
	return nil
}

// closeInput is the end of what can be sent. A write that waits for the process
// to read ends with it.
func (s *service) closeInput() {
	if s.stdin != nil && s.terminal == nil {
		s.stdin.Close() // twice is harmless
	}
}

func (a *Agent) serveSendInput(r *http.Request, q *envd.ProcessSendInput) (*struct{}, error) {
	s, err := a.services.find(q.Process, false)
	if err != nil {
		return nil, err
	}
	return &struct{}{}, s.send(r.Context(), q.Input)
}

func (a *Agent) serveCloseStdin(_ *http.Request, q *envd.ProcessConnect) (*struct{}, error) {
	s, err := a.services.find(q.Process, false)
	switch {
	case err != nil:
		return nil, err
	case s.terminal != nil:
		return nil, &connectError{codeUnknown, "error closing stdin: cannot close stdin for PTY process — send Ctrl+D (0x04) instead"}
	}
	s.closeInput()
	return &struct{}{}, nil
}

// serveStreamInput takes input as a stream of envelopes, in order.
func (a *Agent) serveStreamInput(w http.ResponseWriter, r *http.Request) {
	out := newEnvelopeWriter(w)
	if err := a.streamInput(r); err != nil {
		out.end(asConnect(err))
		return
	}
	out.message(struct{}{})
	out.end(nil)
}

func (a *Agent) streamInput(r *http.Request) error {
	var s *service
	for {
		var m envd.ProcessStreamInput
		err := readEnvelope(r.Body, &m)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &connectError{codeInvalid, err.Error()}
		}
		switch {
		case m.Start != nil:
			s, err = a.services.find(m.Start.Process, false)
		case m.Data != nil && s == nil:
			err = &connectError{codeInvalid, "the first message must select a process"}
		case m.Data != nil:
			err = s.send(r.Context(), m.Data.Input)
		case m.Keepalive == nil:
			err = &connectError{codeUnimplemented, "invalid event type: neither start nor data nor keepalive"}
		}
		if err != nil {
			return err
		}
	}
}
