// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
)

// envd's process.Process. JSON field names are protojson's.

type processConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"`
	Cwd  string            `json:"cwd,omitempty"`
}

type ptyConfig struct {
	Size struct {
		Cols uint16 `json:"cols"`
		Rows uint16 `json:"rows"`
	} `json:"size"`
}

type processStart struct {
	Process processConfig `json:"process"`
	PTY     *ptyConfig    `json:"pty,omitempty"`
	Tag     string        `json:"tag,omitempty"`
	Stdin   *bool         `json:"stdin,omitempty"` // absent means true: older clients
}

// processSelector names a process.
type processSelector struct {
	PID int    `json:"pid,omitempty"`
	Tag string `json:"tag,omitempty"`
}

type processInfo struct {
	Config processConfig `json:"config"`
	PID    int           `json:"pid"`
	Tag    string        `json:"tag,omitempty"`
}

type processList struct {
	Processes []processInfo `json:"processes"`
}

type processInput struct {
	Process processSelector `json:"process"`
	Input   struct {
		Stdin []byte `json:"stdin,omitempty"`
		PTY   []byte `json:"pty,omitempty"`
	} `json:"input"`
}

type processSignal struct {
	Process processSelector `json:"process"`
	Signal  string          `json:"signal"`
}

type processUpdate struct {
	Process processSelector `json:"process"`
	PTY     *ptyConfig      `json:"pty,omitempty"`
}

type processClose struct {
	Process processSelector `json:"process"`
}

// The events of Start, as one struct each.
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

// request makes the agent's own request of envd's.
func (q *processStart) request(u user) (*wire.StartRequest, error) {
	r := &wire.StartRequest{
		Argv: append([]string{q.Process.Cmd}, q.Process.Args...),
		UID:  u.uid, GID: u.gid,
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"HOME=" + u.home, "USER=" + u.name, "LOGNAME=" + u.name,
		},
		Stdin: q.Stdin == nil || *q.Stdin,
		Dir:   u.home,
	}
	for k, v := range q.Process.Envs {
		// The last PATH counts, and a program must not find two.
		for i, e := range r.Env {
			if len(e) > len(k) && e[:len(k)] == k && e[len(k)] == '=' {
				r.Env = append(r.Env[:i], r.Env[i+1:]...)
				break
			}
		}
		r.Env = append(r.Env, k+"="+v)
	}
	if q.Process.Cwd != "" {
		dir, err := u.path(q.Process.Cwd)
		if err != nil {
			return nil, err
		}
		r.Dir = dir
	}
	if q.PTY != nil {
		r.Terminal = &wire.Size{Rows: q.PTY.Size.Rows, Cols: q.PTY.Size.Cols}
	}
	return r, nil
}

// serveStart is Start: unlike our own exec, the program outlives its listener,
// whose output is then thrown away.
func (a *Agent) serveStart(w http.ResponseWriter, r *http.Request) {
	out := newEnvelopeWriter(w)
	p, o, q, err := a.startEnvd(r)
	if err != nil {
		var fault *startError
		if errors.As(err, &fault) {
			err = &connectError{codeInvalid, fault.message}
		}
		out.end(asConnect(err))
		return
	}
	var started eventStart
	started.Start.PID = p.pid
	out.event(started)

	expired := make(chan struct{})
	if ms, err := strconv.Atoi(r.Header.Get("Connect-Timeout-Ms")); err == nil && ms > 0 {
		t := time.AfterFunc(time.Duration(ms)*time.Millisecond, func() {
			close(expired)
			a.table.signal(p, syscall.SIGKILL, wire.Tree)
		})
		defer t.Stop()
	}
	stop := out.keepAlive(r.Header.Get("Keepalive-Ping-Interval"))
	var copying sync.WaitGroup
	copying.Go(func() {
		drain(o.stdout, p.done, func(b []byte) error {
			var e eventData
			if q.PTY != nil {
				e.Data.PTY = b
			} else {
				e.Data.Stdout = b
			}
			return out.event(e)
		})
	})
	if o.stderr != nil {
		copying.Go(func() {
			drain(o.stderr, p.done, func(b []byte) error {
				var e eventData
				e.Data.Stderr = b
				return out.event(e)
			})
		})
	}
	copying.Wait()
	<-p.done
	stop()
	if p.stdin != nil && p.stdin != p.terminal {
		p.stdin.Close()
	}
	select {
	case <-expired:
		out.end(&connectError{codeDeadline, "the process was killed at its deadline"})
	default:
		out.event(eventEnd{ended(p.status)})
		out.end(nil)
	}
}

// startEnvd reads Start's one envelope and starts the process.
func (a *Agent) startEnvd(r *http.Request) (*process, output, *processStart, error) {
	var q processStart
	if err := readEnvelope(r.Body, &q); err != nil {
		return nil, output{}, nil, &connectError{codeInvalid, err.Error()}
	}
	u, err := a.user(r)
	if err != nil {
		return nil, output{}, nil, err
	}
	req, err := q.request(u)
	if err != nil {
		return nil, output{}, nil, err
	}
	p, o, err := a.spawn(req, &q)
	return p, o, &q, err
}

// ended is envd's form of an end.
func ended(ws syscall.WaitStatus) processEnd {
	if ws.Signaled() {
		s := "signal: " + ws.Signal().String()
		return processEnd{ExitCode: -1, Status: s, Error: s}
	}
	e := processEnd{ExitCode: ws.ExitStatus(), Exited: true, Status: fmt.Sprintf("exit status %d", ws.ExitStatus())}
	if e.ExitCode != 0 {
		e.Error = e.Status
	}
	return e
}

// selected finds the running process that a selector means.
func (a *Agent) selected(s processSelector) (*process, error) {
	p := a.table.find(func(p *process) bool {
		q, ok := p.request.(*processStart)
		if s.PID != 0 {
			return p.pid == s.PID
		}
		return ok && s.Tag != "" && q.Tag == s.Tag
	})
	if p == nil {
		return nil, errGone
	}
	return p, nil
}

func (a *Agent) serveList(*http.Request, *struct{}) (*processList, error) {
	l := &processList{Processes: []processInfo{}}
	for _, p := range a.table.list() {
		switch q := p.request.(type) {
		case *processStart:
			l.Processes = append(l.Processes, processInfo{q.Process, p.pid, q.Tag})
		case *wire.StartRequest:
			l.Processes = append(l.Processes, processInfo{processConfig{Cmd: q.Argv[0], Args: q.Argv[1:], Cwd: q.Dir}, p.pid, ""})
		}
	}
	return l, nil
}

func (a *Agent) serveSendInput(_ *http.Request, q *processInput) (*struct{}, error) {
	p, err := a.selected(q.Process)
	if err != nil {
		return nil, err
	}
	b := q.Input.Stdin
	if p.terminal != nil {
		b = q.Input.PTY
	}
	if p.stdin == nil {
		return nil, &connectError{codePrecondition, "the process has no input"}
	}
	p.input.Lock()
	defer p.input.Unlock()
	if _, err := p.stdin.Write(b); err != nil {
		return nil, &connectError{codeInternal, err.Error()}
	}
	return &struct{}{}, nil
}

func (a *Agent) serveCloseStdin(_ *http.Request, q *processClose) (*struct{}, error) {
	p, err := a.selected(q.Process)
	switch {
	case err != nil:
		return nil, err
	case p.terminal != nil || p.stdin == nil:
		return nil, &connectError{codePrecondition, "the process has no input that can be closed"}
	}
	p.endInput(true)
	return &struct{}{}, nil
}

func (a *Agent) serveSendSignal(_ *http.Request, q *processSignal) (*struct{}, error) {
	s, ok := map[string]syscall.Signal{"SIGNAL_SIGKILL": syscall.SIGKILL, "SIGNAL_SIGTERM": syscall.SIGTERM}[q.Signal]
	if !ok {
		return nil, &connectError{codeInvalid, fmt.Sprintf("the signal %q is not one of SIGNAL_SIGKILL, SIGNAL_SIGTERM", q.Signal)}
	}
	p, err := a.selected(q.Process)
	if err != nil {
		return nil, err
	}
	return &struct{}{}, a.table.signal(p, s, wire.Group)
}

func (a *Agent) serveUpdate(_ *http.Request, q *processUpdate) (*struct{}, error) {
	p, err := a.selected(q.Process)
	switch {
	case err != nil:
		return nil, err
	case q.PTY == nil:
		return &struct{}{}, nil
	case p.terminal == nil:
		return nil, &connectError{codePrecondition, "the process has no terminal"}
	}
	return &struct{}{}, resize(p.terminal, wire.Size{Rows: q.PTY.Size.Rows, Cols: q.PTY.Size.Cols})
}

// readEnvelope reads the one envelope of a streaming call's request: flags,
// which must be none, the length, and JSON.
func readEnvelope(r io.Reader, v any) error {
	var h [5]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(h[1:])
	switch {
	case h[0] != 0:
		return errors.New("compressed envelopes are not taken")
	case n > maxRequest:
		return fmt.Errorf("the envelope has %d bytes, more than %d", n, maxRequest)
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return err
	}
	if len(b) < int(n) {
		return io.ErrUnexpectedEOF
	}
	return json.Unmarshal(b, v)
}

// envelopeWriter writes the events of a streaming call. It is safe for
// concurrent use.
type envelopeWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController

	mu  sync.Mutex
	err error
}

func newEnvelopeWriter(w http.ResponseWriter) *envelopeWriter {
	w.Header().Set("Content-Type", "application/connect+json")
	return &envelopeWriter{w: w, control: http.NewResponseController(w)}
}

// event writes {"event": e}.
func (o *envelopeWriter) event(e any) error {
	return o.write(0, struct {
		Event any `json:"event"`
	}{e})
}

// end writes the envelope that ends the stream, with an error unless it is nil.
func (o *envelopeWriter) end(e *connectError) error {
	return o.write(2, struct {
		Error *connectError `json:"error,omitempty"`
	}{e})
}

func (o *envelopeWriter) write(flags byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		_, o.err = o.w.Write(wire.AppendFrame(nil, wire.Kind(flags), b))
	}
	if o.err == nil {
		o.err = o.control.Flush()
	}
	return o.err
}

// keepAlive sends keepalive events every so many seconds, until stop is called.
func (o *envelopeWriter) keepAlive(seconds string) (stop func()) {
	every := 90 * time.Second
	if n, err := strconv.Atoi(seconds); err == nil && n > 0 {
		every = time.Duration(n) * time.Second
	}
	t := time.NewTicker(every)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-t.C:
				o.event(eventKeepalive{})
			case <-done:
				return
			}
		}
	}()
	return func() { t.Stop(); close(done); <-ended }
}
