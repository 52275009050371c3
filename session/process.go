// SPDX-License-Identifier: Apache-2.0

package session

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
)

// StartOptions say how a program is started that is followed while it runs.
type StartOptions struct {
	Tag     string        // another name of the program beside its PID
	Stdin   bool          // it has input, which is written while it runs: nobody can approve that beforehand
	Timeout time.Duration // it is killed when that is over; 0 is never
}

// Process is a program in a persistent sandbox that is followed while it runs. It lives on
// when nobody follows it. One goroutine at a time calls Next; the caller must call Close,
// after Next has returned an error. Its output is counted: a written output limit ends it.
type Process struct {
	PID int // inside

	boxes   *Sandboxes
	key     *Key
	id      string
	action  *action
	process *guest.Process
	kept    map[guest.Stream]*audit.Capture
	left    map[guest.Stream]int64 // bytes that each stream may still have
	over    bool                   // a stream had more, and the program is ended
	lost    error                  // why Next knows no more
}

// Start decides call by the key's policy, records the intent, and starts the program. What
// the policy refuses is recorded too, and is an ErrDenied with the rule. A paused sandbox is
// resumed first when it was made so.
//
// call names no host path, no level and no network: those are the sandbox's. Its Env comes on
// top of the sandbox's own. call.TTY gives the program a terminal.
func (b *Sandboxes) Start(ctx context.Context, k *Key, id string, call *Call, o StartOptions) (*Process, error) {
	call.WritesInput = o.Stdin
	a, err := b.beginAction(ctx, k, id, call, IO{})
	if err != nil {
		return nil, err
	}
	// As it was decided, shown and recorded: nothing is left to the agent to choose.
	cmd := guest.Command{Path: call.Argv[0], Args: call.Argv[1:], Dir: a.Dir, Env: variables(a.Env), Tag: o.Tag, Stdin: o.Stdin, Timeout: o.Timeout}
	if call.TTY != nil {
		cmd.Terminal = &call.TTY.Size
	}
	// It is followed until its end, for the record.
	p, err := a.Agent.Start(context.WithoutCancel(ctx), cmd)
	if err != nil {
		return nil, errors.Join(err, a.end(ctx, nil, err, nil, nil))
	}
	out := audit.NewCapture()
	return &Process{PID: p.PID, boxes: b, key: k, id: id, action: a, process: p, left: map[guest.Stream]int64{},
		kept: map[guest.Stream]*audit.Capture{guest.Stdout: out, guest.Terminal: out, guest.Stderr: audit.NewCapture()}}, nil
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
func (p *Process) Next() (guest.Output, error) {
	o, err := p.process.Next()
	if err != nil {
		p.lost = err
		return o, err
	}
	o.Data = p.within(o)
	p.kept[o.Stream].Write(o.Data)
	return o, nil
}

// within is what of o the policy's output limit lets through. More ends the program, and does
// not only cut: who connects to it later would see what is thrown away here.
func (p *Process) within(o guest.Output) []byte {
	l := p.action.Limits
	if !l.Explicit[sandbox.LimitOutput] || l.Output <= 0 {
		return o.Data
	}
	left, known := p.left[o.Stream]
	if !known {
		left = l.Output
	}
	n := min(left, int64(len(o.Data)))
	p.left[o.Stream] = left - n
	if n < int64(len(o.Data)) && !p.over {
		p.over = true
		p.kill()
	}
	return o.Data[:n]
}

// killTimeout is how long an agent may take to end a process.
const killTimeout = 10 * time.Second

// kill ends the program. An agent that does not do it loses its sandbox: nothing inside is
// trusted with a limit.
func (p *Process) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if err := p.action.Agent.Signal(ctx, guest.Selector{PID: p.PID}, syscall.SIGKILL); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		_ = p.boxes.Kill(context.Background(), p.key, p.id) // who follows hears that it has ended
	}
}

// End is how the program ended, once Next has returned io.EOF.
func (p *Process) End() (guest.End, bool) { return p.process.End() }

// Close stops following, and records what came of the program as far as it is known.
func (p *Process) Close() error {
	defer p.process.Close()
	end, ended := p.process.End()
	if !ended {
		return p.action.end(context.Background(), nil, p.lost, p.kept[guest.Stdout], p.kept[guest.Stderr])
	}
	res := endResult(end)
	if p.over {
		res.Status, res.Resource = sandbox.StatusResourceExceeded, sandbox.LimitOutput
		res.Reason = "a stream had more than the output limit of " + Size(p.action.Limits.Output)
	}
	return p.action.end(context.Background(), res, nil, p.kept[guest.Stdout], p.kept[guest.Stderr])
}

// endResult is an end as records have it.
func endResult(e guest.End) *sandbox.Result {
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
