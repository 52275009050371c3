// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/internal/envd"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
)

// envd's process.Process: processes that go on without a listener. Their output
// comes from the agent as frames of our own and becomes JSON here.

// serveStart starts a process and streams what becomes of it. The time that the
// client gives the call is the process's own: it is killed when that is over.
// The process is a call like any other: decided by the key's policy first, and
// recorded with its end, with or without a listener.
func (s *Server) serveStart(w http.ResponseWriter, r *http.Request, in *inside) (*stream, error) {
	var q envd.ProcessStart
	timeout, err := readCall(w, r, &q)
	if err != nil {
		return nil, err
	}
	if q.Process.Cmd == "" {
		return nil, &connectError{codeInvalid, "the process has no cmd"}
	}
	o := persistent.StartOptions{Tag: q.Tag, Stdin: q.Stdin == nil || *q.Stdin, Timeout: timeout}
	call := &session.Call{Frontend: "e2b"}
	call.Argv, call.Env = append([]string{q.Process.Cmd}, q.Process.Args...), q.Process.Envs
	if call.User, call.Cwd = in.user, in.directory(q.Process.Cwd); strings.HasPrefix(call.Cwd, "~") {
		return nil, &connectError{codeInvalid, "cannot expand user-specific home dir"}
	}
	if q.PTY != nil {
		call.TTY = &sandbox.Terminal{Size: sizeOf(q.PTY)}
	}
	p, err := s.o.Sandboxes.Handle(in.owner, in.box.ID).Start(r.Context(), call, o)
	if err != nil {
		return nil, err
	}
	out := newStream(w)
	f := &follower{process: p, listener: out, done: make(chan struct{})}
	out.event(started(p.PID))
	s.followers.Go(f.run)
	defer out.keepAlive(keepaliveEvery(r), processAlive)()
	select {
	case <-f.done:
		return out, f.err
	case <-r.Context().Done():
	case <-in.Gone:
	}
	out.detach()
	return out, nil
}

// directory is where a process begins, as policies and records have it: absolute
// and clean, or empty for the sandbox's own, in which it begins that names none. Where
// that is the home of the sandbox's own user, another one begins in their own.
func (in *inside) directory(wish string) string {
	as, err := in.Account(in.user)
	switch own := in.Inside; {
	case err != nil:
		return "" // nothing begins
	case wish != "":
		return persistent.InHome(as.Home, wish)
	case as == own.User || own.Dir != own.User.Home:
		return ""
	}
	return as.Home
}

// follower hears a process until its end and tells who listens.
type follower struct {
	process  *persistent.Process
	listener *stream
	done     chan struct{} // closed when err is set
	err      error         // why there is no more
}

func (f *follower) run() {
	f.err = follow(f.process, f.listener)
	close(f.done)
	_ = f.process.Close() // the client has its answer already
}

// follow writes what a process does to a stream, until its end. A stream that cannot be
// written to any more has no listener. That ends nothing.
func follow(p *persistent.Process, out *stream) error {
	for {
		o, err := p.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if len(o.Data) > 0 {
			out.data(streamName[o.Stream], o.Data)
		}
	}
	end, _ := p.End()
	if end.Expired {
		return errLate
	}
	out.final(ended(end))
	return nil
}

var streamName = map[sandbox.Stream]string{sandbox.StreamStdout: "stdout", sandbox.StreamStderr: "stderr", sandbox.StreamTerminal: "pty"}

// serveConnect streams what becomes of a process that runs already.
func (s *Server) serveConnect(w http.ResponseWriter, r *http.Request, in *inside) (*stream, error) {
	var q envd.ProcessConnect
	timeout, err := readCall(w, r, &q)
	if err != nil {
		return nil, err
	}
	ctx, stop := lasting(r.Context(), timeout)
	defer stop()
	p, err := in.Connect(ctx, selector(q.Process))
	if err != nil {
		return nil, late(ctx, err)
	}
	defer p.Close()
	out := newStream(w)
	out.event(started(p.PID))
	defer out.keepAlive(keepaliveEvery(r), processAlive)()
	return out, late(ctx, follow(p, out))
}

// lasting is the context of a stream that its client gives so long; 0 is for ever.
func lasting(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, errLate)
}

// late is the client's own timeout where that is why a call failed.
func late(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == error(errLate) {
		return errLate
	}
	return err
}

func selector(s envd.ProcessSelector) sandbox.ProcessSelector {
	return sandbox.ProcessSelector{PID: s.PID, Tag: s.Tag}
}

// started is the event of a beginning.
func started(pid int) any {
	type start struct {
		PID int `json:"pid"`
	}
	return struct {
		Start start `json:"start"`
	}{start{pid}}
}

type processEnd struct {
	ExitCode int    `json:"exitCode"`
	Exited   bool   `json:"exited"`
	Status   string `json:"status"`
	Error    string `json:"error,omitempty"`
}

// ended is the event of an end.
func ended(e sandbox.ProcessEnd) any {
	p := processEnd{ExitCode: e.Code, Exited: true, Status: "exit status " + strconv.Itoa(e.Code)}
	if e.Signal != 0 {
		p = processEnd{ExitCode: -1, Status: "signal: " + e.Signal.String()}
	}
	if p.ExitCode != 0 {
		p.Error = p.Status
	}
	return struct {
		End processEnd `json:"end"`
	}{p}
}

func (s *Server) serveList(r *http.Request, in *inside, _ *struct{}) (any, error) {
	all, err := in.Processes(r.Context())
	l := envd.ProcessList{Processes: []envd.ProcessInfo{}}
	for _, p := range all {
		c := envd.ProcessConfig{Cmd: p.Argv[0], Args: p.Argv[1:], Envs: p.Env, Cwd: p.Dir}
		l.Processes = append(l.Processes, envd.ProcessInfo{Config: c, PID: p.PID, Tag: p.Tag})
	}
	return l, err
}

func (s *Server) serveSendInput(r *http.Request, in *inside, q *envd.ProcessSendInput) (any, error) {
	to, b := sandbox.StreamStdout, q.Input.Stdin // anything but StreamTerminal is its stdin
	if q.Input.PTY != nil {
		to, b = sandbox.StreamTerminal, q.Input.PTY
	}
	if b == nil {
		return nil, &connectError{codeInvalid, "the input is neither stdin nor pty"}
	}
	return struct{}{}, in.WriteInput(r.Context(), selector(q.Process), to, *b)
}

func (s *Server) serveCloseStdin(r *http.Request, in *inside, q *envd.ProcessConnect) (any, error) {
	return struct{}{}, in.CloseInput(r.Context(), selector(q.Process))
}

func (s *Server) serveSendSignal(r *http.Request, in *inside, q *envd.ProcessSignal) (any, error) {
	n, ok := map[string]syscall.Signal{"SIGNAL_SIGKILL": syscall.SIGKILL, "SIGNAL_SIGTERM": syscall.SIGTERM}[q.Signal]
	if !ok {
		return nil, &connectError{codeInvalid, "the signal " + api.Quoted(q.Signal) + " is not one of SIGNAL_SIGKILL, SIGNAL_SIGTERM"}
	}
	return struct{}{}, in.Signal(r.Context(), selector(q.Process), n)
}

func (s *Server) serveUpdate(r *http.Request, in *inside, q *envd.ProcessUpdate) (any, error) {
	if q.PTY == nil {
		return struct{}{}, nil
	}
	return struct{}{}, in.Resize(r.Context(), selector(q.Process), sizeOf(q.PTY))
}

// sizeOf is a terminal's size as a kernel has it.
func sizeOf(p *envd.PTY) sandbox.WindowSize {
	rows, cols := p.Size16()
	return sandbox.WindowSize{Rows: rows, Cols: cols}
}
