// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// StartOptions say how a program is started that is followed while it runs.
type StartOptions struct {
	Tag     string        // another name of the program beside its PID
	Stdin   bool          // it has input, which is written while it runs and cannot be approved beforehand
	Timeout time.Duration // it is killed when that is over; 0 is never
}

// Process is a program in a persistent sandbox that is followed while it runs. It goes on
// without a follower. One goroutine at a time calls Next; the caller must call Close,
// after Next has returned an error.
type Process struct {
	PID int // inside

	process *guest.Process
	started *started // nil for who came later: who started it counts and records
}

// started is the call by which a program was started. Its output is counted: a written
// output limit ends it.
type started struct {
	handle *Handle
	action *action
	pid    int
	kept   map[sandbox.Stream]*audit.Capture
	left   map[sandbox.Stream]int64 // bytes that each stream may still have
	over   bool                     // a stream had more, and the program is ended
	lost   error                    // why Next knows no more
}

// Start decides call by the key's policy, records the intent, and starts the program. What
// the policy refuses is recorded too, and is an ErrDenied with the rule. A paused sandbox is
// resumed first when it was made so.
//
// call names no host path, no level and no network: those are the sandbox's. Its Env comes on
// top of the sandbox's own. call.TTY gives the program a terminal.
func (h *Handle) Start(ctx context.Context, call *session.Call, o StartOptions) (*Process, error) {
	call.WritesInput = o.Stdin
	a, err := newAction(ctx, h, call, session.IO{})
	if err != nil {
		return nil, err
	}
	// As it was decided, shown and recorded: nothing is left to the agent to choose.
	cmd := guest.Command{Path: call.Argv[0], Args: call.Argv[1:], Dir: a.Dir, Env: variables(a.Env), Tag: o.Tag, Stdin: o.Stdin, Timeout: o.Timeout}
	if call.TTY != nil {
		cmd.Terminal = &call.TTY.Size
	}
	// It is followed until its end, for the record.
	p, err := a.agent.Start(context.WithoutCancel(ctx), cmd)
	if err != nil {
		return nil, errors.Join(err, a.end(ctx, nil, err, nil, nil))
	}
	out := audit.NewCapture()
	return &Process{PID: p.PID, process: p, started: &started{handle: h, action: a, pid: p.PID, left: map[sandbox.Stream]int64{},
		kept: map[sandbox.Stream]*audit.Capture{sandbox.StreamStdout: out, sandbox.StreamTerminal: out, sandbox.StreamStderr: audit.NewCapture()}}}, nil
}

// Connect follows a program that runs already, from now on. ctx bounds the following. One
// that ended within the last 30 s has only its end; one that never was gives ErrNotFound.
func (in *Inside) Connect(ctx context.Context, s sandbox.ProcessSelector) (*Process, error) {
	p, err := in.agent.Connect(ctx, s)
	if err != nil {
		return nil, err
	}
	return &Process{PID: p.PID, process: p}, nil
}

// Processes lists the programs that run and can be connected to.
func (in *Inside) Processes(ctx context.Context) ([]sandbox.ProcessInfo, error) {
	return in.agent.Processes(ctx)
}

// WriteInput writes to a program: to its terminal when to is StreamTerminal, else to its
// standard input. It waits until the program has read enough; what was written when it fails
// stays written.
func (in *Inside) WriteInput(ctx context.Context, s sandbox.ProcessSelector, to sandbox.Stream, b []byte) error {
	return in.agent.Input(ctx, s, to, b)
}

// CloseInput ends the standard input of a program.
func (in *Inside) CloseInput(ctx context.Context, s sandbox.ProcessSelector) error {
	return in.agent.CloseInput(ctx, s)
}

// Signal sends SIGKILL or SIGTERM to the process group of a program.
func (in *Inside) Signal(ctx context.Context, s sandbox.ProcessSelector, n syscall.Signal) error {
	return in.agent.Signal(ctx, s, n)
}

// Resize changes the size of a program's terminal.
func (in *Inside) Resize(ctx context.Context, s sandbox.ProcessSelector, z sandbox.WindowSize) error {
	return in.agent.Resize(ctx, s, z)
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

// Next waits for what the program writes next; its Data is good until the next call. The
// error is io.EOF at the program's end, and otherwise why no more is known of it.
func (p *Process) Next() (sandbox.Output, error) {
	o, err := p.process.Next()
	switch s := p.started; {
	case s == nil:
	case err != nil:
		s.lost = err
	default:
		o.Data = s.within(o)
		s.kept[o.Stream].Write(o.Data)
	}
	return o, err
}

// within is what of o the policy's output limit lets through. More ends the program, and does
// not only cut: who connects to it later would see what is thrown away here.
func (s *started) within(o sandbox.Output) []byte {
	l := s.action.Limits
	if !l.Explicit[sandbox.LimitOutput] || l.Output <= 0 {
		return o.Data
	}
	left, known := s.left[o.Stream]
	if !known {
		left = l.Output
	}
	n := min(left, int64(len(o.Data)))
	s.left[o.Stream] = left - n
	if n < int64(len(o.Data)) && !s.over {
		s.over = true
		s.kill()
	}
	return o.Data[:n]
}

// killTimeout is how long an agent may take to end a process.
const killTimeout = 10 * time.Second

// kill ends the program. An agent that does not do it loses its sandbox: nothing inside is
// trusted with a limit.
func (s *started) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if err := s.action.agent.Signal(ctx, sandbox.ProcessSelector{PID: s.pid}, syscall.SIGKILL); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		_ = s.handle.Kill(context.Background()) // who follows hears that it has ended
	}
}

// End is how the program ended, once Next has returned io.EOF.
func (p *Process) End() (sandbox.ProcessEnd, bool) { return p.process.End() }

// Close stops following. For the caller that started the program it also records what came of
// it, as far as it is known.
func (p *Process) Close() error {
	defer p.process.Close()
	if p.started == nil {
		return nil
	}
	end, ended := p.process.End()
	return p.started.record(end, ended)
}

// record records the program's end, or why it is not known.
func (s *started) record(end sandbox.ProcessEnd, ended bool) error {
	out, errOut := s.kept[sandbox.StreamStdout], s.kept[sandbox.StreamStderr]
	if !ended {
		return s.action.end(context.Background(), nil, s.lost, out, errOut)
	}
	res := endResult(end)
	if s.over {
		res.Status, res.Resource = sandbox.StatusResourceExceeded, sandbox.LimitOutput
		res.Reason = "a stream had more than the output limit of " + session.Size(s.action.Limits.Output)
	}
	return s.action.end(context.Background(), res, nil, out, errOut)
}

// endResult is an end as records have it.
func endResult(e sandbox.ProcessEnd) *sandbox.Result {
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
