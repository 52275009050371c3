// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/bounds"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// envd's process.Process: processes that live on without a listener. Their
// output comes from the agent as frames of our own and becomes JSON here.

// serveStart starts a process and streams what becomes of it. The time that the
// client gives the call is the process's own: it is killed when that is over.
// The process is a call like any other: decided by the key's policy first, and
// recorded with its end, whoever listens by then.
func (s *Server) serveStart(w http.ResponseWriter, r *http.Request, in *inside) (*stream, error) {
	var q wire.ProcessStart
	timeout, err := readCall(w, r, &q)
	if err != nil {
		return nil, err
	}
	if q.Process.Cmd == "" {
		return nil, &connectError{codeInvalid, "the process has no cmd"}
	}
	cmd := guest.Command{
		Path: q.Process.Cmd, Args: q.Process.Args, Tag: q.Tag, Stdin: q.Stdin == nil || *q.Stdin, Timeout: timeout,
	}
	call := &session.Call{Door: "e2b", CountsOutput: true, WritesInput: cmd.Stdin}
	call.Argv, call.Env = append([]string{cmd.Path}, cmd.Args...), q.Process.Envs
	if call.User, call.Cwd = in.user, in.directory(q.Process.Cwd); strings.HasPrefix(call.Cwd, "~") {
		return nil, &connectError{codeInvalid, "cannot expand user-specific home dir"}
	}
	if q.PTY != nil {
		size := q.PTY.Size16()
		cmd.Terminal = &sandbox.WindowSize{Rows: size.Rows, Cols: size.Cols}
		call.TTY = &sandbox.Terminal{Size: *cmd.Terminal}
	}
	action, err := s.o.Sandboxes.Begin(r.Context(), in.owner, in.box.ID, call)
	if err != nil {
		return nil, err
	}
	// As it was decided, shown and recorded: nothing is left to the agent to choose.
	cmd.Path, cmd.Args, cmd.Dir, cmd.Env = call.Argv[0], call.Argv[1:], action.Dir, variables(action.Env)
	// It is listened to until its end, for the record.
	p, err := action.Agent.Start(context.WithoutCancel(r.Context()), cmd)
	if err != nil {
		return nil, errors.Join(err, action.End(r.Context(), nil, err, nil, nil))
	}
	f := &follower{process: p, action: action, done: make(chan struct{}), left: map[guest.Stream]int64{},
		kill: func(ctx context.Context) error { return s.o.Sandboxes.Kill(ctx, in.owner, in.box.ID) }}
	out := newStream(w)
	f.listener = out
	out.event(started(p.PID))
	s.followers.Go(f.run)
	defer out.keepAlive(keepaliveEvery(r), processAlive)()
	select {
	case <-f.done:
		return out, f.err
	case <-r.Context().Done():
	case <-in.gone:
	}
	out.detach()
	return out, nil
}

// directory is where a process begins, as policies and records have it: absolute
// and clean, or empty for the sandbox's own, in which it begins that names none. Where
// that is the home of the sandbox's own user, another one begins in their own.
func (in *inside) directory(wish string) string {
	as, err := in.own.Account(in.user)
	switch own := in.own; {
	case err != nil:
		return "" // nothing begins
	case wish != "":
		return session.InHome(as.Home, wish)
	case as == own.User || own.Dir != own.User.Home:
		return ""
	}
	return as.Home
}

// variables are an environment by name.
func variables(env []string) map[string]string {
	all := make(map[string]string, len(env))
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		all[name] = value
	}
	return all
}

// follower hears a process until its end, tells who listens, and records what
// came of it.
type follower struct {
	process  *guest.Process
	action   *session.Action
	listener *stream
	done     chan struct{} // closed when err is set
	err      error         // why there is no more

	left map[guest.Stream]int64      // what each stream may still have; see within
	over bool                        // a stream had more, and the process is ended
	kill func(context.Context) error // ends the sandbox
}

func (f *follower) run() {
	defer f.process.Close()
	kept := map[guest.Stream]*audit.Capture{guest.Stdout: audit.NewCapture(), guest.Stderr: audit.NewCapture()}
	kept[guest.Terminal] = kept[guest.Stdout]
	err := follow(f.process, f.listener, func(o guest.Output) []byte {
		data := f.within(o)
		kept[o.Stream].Write(data)
		return data
	})
	f.err = err
	close(f.done)
	end, ended := f.process.End()
	var res *sandbox.Result
	if ended {
		res, err = result(end), nil
	}
	if ended && f.over {
		res.Status, res.Resource = sandbox.StatusResourceExceeded, sandbox.LimitOutput
		res.Reason = "a stream had more than the output limit of " + session.Size(f.action.Limits.Output)
	}
	f.action.End(context.Background(), res, err, kept[guest.Stdout], kept[guest.Stderr])
}

// within is what of o the policy's output limit lets through. The process is
// ended by more, and is not only cut: whoever connects to it later would see what
// is thrown away here.
func (f *follower) within(o guest.Output) []byte {
	l := f.action.Limits
	if !l.Explicit[sandbox.LimitOutput] || l.Output <= 0 {
		return o.Data
	}
	left, known := f.left[o.Stream]
	if !known {
		left = l.Output
	}
	n := min(left, int64(len(o.Data)))
	f.left[o.Stream] = left - n
	if n < int64(len(o.Data)) && !f.over {
		f.over = true
		ctx, cancel := context.WithTimeout(context.Background(), killPatience)
		defer cancel()
		// An agent that does not do it loses its sandbox: nothing inside is trusted
		// with a limit.
		if err := f.action.Agent.Signal(ctx, guest.Selector{PID: f.process.PID}, syscall.SIGKILL); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			_ = f.kill(context.Background()) // who listens hears that it has ended
		}
	}
	return o.Data[:n]
}

// killPatience is how long an agent may take to end a process.
const killPatience = 10 * time.Second

// result is an end as records have it.
func result(e guest.End) *sandbox.Result {
	switch {
	case e.Expired:
		return &sandbox.Result{Status: sandbox.StatusTimeout, Resource: sandbox.LimitWall, Signal: "SIGKILL", Reason: "the time that its caller gave it was over"}
	case e.Signal != 0:
		return &sandbox.Result{Status: sandbox.StatusError, Signal: "SIG" + wire.SignalName(int(e.Signal))}
	case e.Code != 0:
		return &sandbox.Result{Status: sandbox.StatusError, ExitCode: &e.Code}
	}
	return &sandbox.Result{Status: sandbox.StatusSuccess, ExitCode: &e.Code}
}

// follow writes what a process does, or some of it, to a stream, until its end. Nobody listens
// to a stream that cannot be written to any more, which ends nothing.
func follow(p *guest.Process, out *stream, some func(guest.Output) []byte) error {
	for {
		o, err := p.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if data := some(o); len(data) > 0 {
			out.data(streamName[o.Stream], data)
		}
	}
	end, _ := p.End()
	if end.Expired {
		return errLate
	}
	out.final(ended(end))
	return nil
}

var streamName = map[guest.Stream]string{guest.Stdout: "stdout", guest.Stderr: "stderr", guest.Terminal: "pty"}

// serveConnect streams what becomes of a process that runs already.
func (s *Server) serveConnect(w http.ResponseWriter, r *http.Request, in *inside) (*stream, error) {
	var q wire.ProcessConnect
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
	return out, late(ctx, follow(p, out, func(o guest.Output) []byte { return o.Data }))
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

func selector(s wire.ProcessSelector) guest.Selector { return guest.Selector{PID: s.PID, Tag: s.Tag} }

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
func ended(e guest.End) any {
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
	l := wire.ProcessList{Processes: []wire.ProcessInfo{}}
	for _, p := range all {
		c := wire.ProcessConfig{Cmd: p.Command.Path, Args: p.Command.Args, Envs: p.Command.Env, Cwd: p.Command.Dir}
		l.Processes = append(l.Processes, wire.ProcessInfo{Config: c, PID: p.PID, Tag: p.Tag})
	}
	return l, err
}

func (s *Server) serveSendInput(r *http.Request, in *inside, q *wire.ProcessSendInput) (any, error) {
	to, b := guest.Stdout, q.Input.Stdin // anything but Terminal is its stdin
	if q.Input.PTY != nil {
		to, b = guest.Terminal, q.Input.PTY
	}
	if b == nil {
		return nil, &connectError{codeInvalid, "the input is neither stdin nor pty"}
	}
	return struct{}{}, in.Input(r.Context(), selector(q.Process), to, *b)
}

func (s *Server) serveCloseStdin(r *http.Request, in *inside, q *wire.ProcessConnect) (any, error) {
	return struct{}{}, in.CloseInput(r.Context(), selector(q.Process))
}

func (s *Server) serveSendSignal(r *http.Request, in *inside, q *wire.ProcessSignal) (any, error) {
	n, ok := map[string]syscall.Signal{"SIGNAL_SIGKILL": syscall.SIGKILL, "SIGNAL_SIGTERM": syscall.SIGTERM}[q.Signal]
	if !ok {
		return nil, &connectError{codeInvalid, "the signal " + bounds.Quoted(q.Signal) + " is not one of SIGNAL_SIGKILL, SIGNAL_SIGTERM"}
	}
	return struct{}{}, in.Signal(r.Context(), selector(q.Process), n)
}

func (s *Server) serveUpdate(r *http.Request, in *inside, q *wire.ProcessUpdate) (any, error) {
	if q.PTY == nil {
		return struct{}{}, nil
	}
	size := q.PTY.Size16()
	return struct{}{}, in.Resize(r.Context(), selector(q.Process), sandbox.WindowSize{Rows: size.Rows, Cols: size.Cols})
}
