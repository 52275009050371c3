// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/envd"
)

// envd's process.Process. Codes and phrases of errors are envd's.

// keepaliveEvery is how long a stream of envelopes may be silent when its
// request does not say.
const keepaliveEvery = 90 * time.Second

// request makes the agent's own request of envd's.
func (a *Agent) request(q *wire.ProcessStart, u user) (*wire.StartRequest, error) {
	r := &wire.StartRequest{
		Argv: append([]string{q.Process.Cmd}, q.Process.Args...),
		UID:  u.uid, GID: u.gid, NewPrivileges: a.options.Sudo,
		Limits: q.Limits,
		Env:    a.settings.environment(u, q.Process.Envs),
		Stdin:  q.Stdin == nil || *q.Stdin,
		Dir:    u.home,
	}
	if dir := q.Process.Cwd; dir != "" || a.settings.directory() != "" {
		if dir == "" {
			dir = a.settings.directory()
		}
		var err error
		if r.Dir, err = u.path(dir); err != nil {
			return nil, err
		}
	}
	if q.PTY != nil {
		r.Terminal = sizeOf(q.PTY)
	}
	return r, nil
}

// sizeOf is a terminal's size as a kernel has it.
func sizeOf(p *envd.PTY) *wire.Size {
	rows, cols := p.Size16()
	return &wire.Size{Rows: rows, Cols: cols}
}

// serveStart starts a process and says what becomes of it. The process outlives
// the stream.
func (a *Agent) serveStart(w http.ResponseWriter, r *http.Request) {
	answer := newAnswer(w, r)
	var q wire.ProcessStart
	if err := readEnvelope(r.Body, &q); err != nil {
		answer.refuse(&connectError{codeInvalid, err.Error()})
		return
	}
	u, err := a.user(r)
	if err != nil {
		answer.refuse(err)
		return
	}
	timeout, err := timeoutOf(r)
	if err != nil {
		answer.refuse(err)
		return
	}
	s, begin, err := a.launchService(&q, u, timeout)
	var fault *startError
	if errors.As(err, &fault) {
		err = &connectError{codeInvalid, fault.message}
		if fault.failure == wire.NoDirectory && fault.errno == syscall.ENOENT {
			err = &connectError{codeInvalid, fmt.Sprintf("cwd '%s' does not exist", fault.dir)}
		}
	}
	if err != nil {
		answer.refuse(err)
		return
	}
	l := answer.started(s)
	s.subscribe(l)
	begin()
	exit, over := s.listen(r.Context(), l, answer.every)
	if over {
		answer.ended(exit, true)
	}
}

// serveConnect says what becomes of a process from now on.
func (a *Agent) serveConnect(w http.ResponseWriter, r *http.Request) {
	answer := newAnswer(w, r)
	var q envd.ProcessConnect
	if err := readEnvelope(r.Body, &q); err != nil {
		answer.refuse(&connectError{codeInvalid, err.Error()})
		return
	}
	s, err := a.services.find(q.Process, true)
	if err != nil {
		answer.refuse(err)
		return
	}
	l := answer.started(s)
	s.subscribe(l)
	exit, over := s.listen(r.Context(), l, answer.every)
	if over {
		answer.ended(exit, false)
	}
}

// timeoutOf is how long a request may take; 0 is for ever.
func timeoutOf(r *http.Request) (time.Duration, error) {
	h := r.Header.Get(envd.TimeoutHeader)
	if h == "" {
		return 0, nil
	}
	ms, err := strconv.ParseUint(h, 10, 32) // 49 days at most
	if err != nil {
		return 0, &connectError{codeInvalid, fmt.Sprintf("%s: %q is no number of milliseconds", envd.TimeoutHeader, h)}
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// answer is a stream of Start or Connect, in envd's envelopes or in our frames.
type answer struct {
	w         http.ResponseWriter
	frames    *frameWriter    // one of
	envelopes *envelopeWriter // these
	every     time.Duration   // between signs of life
}

func newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	if r.Header.Get("Accept") == wire.FramesType {
		return &answer{w: w, frames: newFrameWriter(w), every: aliveEvery}
	}
	return &answer{w: w, envelopes: newEnvelopeWriter(w), every: keepalive(r)}
}

// keepalive is how long the stream that r asks for may be silent.
func keepalive(r *http.Request) time.Duration {
	if n, err := strconv.ParseUint(r.Header.Get(envd.KeepaliveHeader), 10, 16); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return keepaliveEvery
}

func (a *answer) refuse(err error) {
	if a.frames != nil {
		writeError(a.w, asConnect(err))
		return
	}
	a.envelopes.end(asConnect(err))
}

// started says that s runs, and makes the listener for what it writes.
func (a *answer) started(s *service) listener {
	if a.frames != nil {
		a.frames.json(wire.Started, wire.StartedEvent{PID: s.pid, Terminal: s.terminal != nil})
		return frameListener{a.frames}
	}
	var e eventStart
	e.Start.PID = s.pid
	a.envelopes.event(e)
	return envelopeListener{a.envelopes, s.terminal != nil}
}

// ended says how it ended. The time that is over is that of the one who started
// the process, whose stream ends as Connect's streams do.
func (a *answer) ended(e wire.ExitEvent, mine bool) {
	switch {
	case a.frames != nil:
		a.frames.reopen()
		a.frames.json(wire.Exit, e)
		return
	case e.Expired && mine:
		a.envelopes.reopen()
		a.envelopes.end(&connectError{codeDeadline, "context deadline exceeded"})
		return
	}
	a.envelopes.reopen()
	a.envelopes.event(eventEnd{ended(e)})
	a.envelopes.end(nil)
}

func (a *Agent) serveList(*http.Request, *struct{}) (*envd.ProcessList, error) {
	l := &envd.ProcessList{Processes: []envd.ProcessInfo{}}
	for _, s := range a.services.list() {
		l.Processes = append(l.Processes, envd.ProcessInfo{Config: s.config, PID: s.pid, Tag: s.tag})
	}
	return l, nil
}

func (a *Agent) serveSendSignal(_ *http.Request, q *envd.ProcessSignal) (*struct{}, error) {
	s, err := a.services.find(q.Process, false)
	if err != nil {
		return nil, err
	}
	signals := map[string]syscall.Signal{"SIGNAL_SIGKILL": syscall.SIGKILL, "SIGNAL_SIGTERM": syscall.SIGTERM}
	n, ok := signals[q.Signal]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(signals)), ", ")
		return nil, &connectError{codeUnimplemented, fmt.Sprintf("invalid signal: %q is not one of %s", q.Signal, known)}
	}
	s.tell()
	if err := a.table.signal(s.process, n, wire.Group); err != nil && !errors.Is(err, errGone) {
		return nil, &connectError{codeInternal, "error sending signal: " + err.Error()}
	}
	return &struct{}{}, nil // it may have ended, and only its output was open
}

func (a *Agent) serveUpdate(_ *http.Request, q *envd.ProcessUpdate) (*struct{}, error) {
	s, err := a.services.find(q.Process, false)
	switch {
	case err != nil:
		return nil, err
	case q.PTY == nil:
		return &struct{}{}, nil
	case s.terminal == nil:
		return nil, &connectError{codeInternal, "error resizing tty: tty not assigned to process"}
	}
	if err := resize(s.terminal, *sizeOf(q.PTY)); err != nil {
		return nil, &connectError{codeInternal, "error resizing tty: " + err.Error()}
	}
	return &struct{}{}, nil
}
