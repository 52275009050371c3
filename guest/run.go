// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Exit is how a program ended, as the agent says.
type Exit struct {
	Code   *int   // nil when a signal ended it, or when it did not start; 126 or 127 with an error when it could not be executed
	Signal string // "SIGSEGV"
	PID    int    // inside
}

const (
	// killGrace is how long Run waits for the end of what it has killed.
	killGrace = 3 * time.Second
	chunk     = 32 << 10
)

// Run runs one program and waits for its end and for all that it wrote until
// then. Sample is the driver's to serve; everything else in x is served here.
//
// The error is ctx's own when ctx ended: the program's whole tree is killed
// then, Exit.Signal is SIGKILL, and Run waits a few seconds for the end. A
// command that does not exist or cannot be executed gives an *sandbox.Error of
// kind ErrNotFound or ErrInvalid together with Exit.Code 127 or 126.
//
// Run returns without waiting for a Read of x.Stdin that is under way; what
// that reads is lost.
func (c *Client) Run(ctx context.Context, x *sandbox.Exec) (Exit, error) {
	if err := ctx.Err(); err != nil {
		return Exit{}, err
	}
	if len(x.Argv) == 0 {
		return Exit{}, sandbox.Errorf(sandbox.ErrInvalid, "exec", "there is no program to start")
	}
	r := &running{client: c, exec: x, op: "exec " + printable(x.Argv[0]), id: rand.Text()}
	return r.run(ctx)
}

// SignalAll signals every process inside but the agent, whatever started it and
// wherever it hid. The agent refuses unless it is the sandbox's first process.
func (c *Client) SignalAll(ctx context.Context, s syscall.Signal) error {
	return c.urgent(ctx, "signal all", wire.PathSignal, wire.SignalRequest{Signal: int(s), Scope: wire.All}, &struct{}{})
}

// running is one Run.
type running struct {
	client *Client
	exec   *sandbox.Exec
	op     string
	id     string
}

func (r *running) run(ctx context.Context) (Exit, error) {
	start, err := r.startFrame()
	if err != nil {
		return Exit{}, &sandbox.Error{Op: r.op, Kind: sandbox.ErrInvalid, Problem: "the request cannot be written", Cause: err}
	}
	// The stream outlives ctx for a moment, to learn the end of what ctx's end
	// kills.
	streamCtx, hangUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer hangUp(nil)
	body, input := io.Pipe()
	defer body.CloseWithError(io.ErrClosedPipe)
	go r.sendInput(input, start)

	finished := make(chan struct{})
	defer close(finished)
	go r.endWith(ctx, hangUp, finished)

	slow := time.AfterFunc(r.client.options.CallTimeout, func() { hangUp(errors.New("it did not start in time")) })
	resp, release, err := r.client.roundTrip(streamCtx, http.MethodPost, wire.PathExec, body, "application/octet-stream")
	slow.Stop()
	if err != nil {
		return r.lost(ctx, streamCtx, Exit{}, err)
	}
	defer release()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Exit{}, answeredError(r.op, resp)
	}
	go r.control(finished)
	exit, err := r.receive(&watched{r: resp.Body, idle: r.client.options.IdleTimeout, hangUp: hangUp})
	if err != nil {
		return r.lost(ctx, streamCtx, exit, err)
	}
	if ctx.Err() != nil && exit.Code == nil {
		return exit, context.Cause(ctx)
	}
	return exit, nil
}

// lost is the end of a Run whose stream broke.
func (r *running) lost(ctx, streamCtx context.Context, exit Exit, err error) (Exit, error) {
	var mine *sandbox.Error
	switch {
	case ctx.Err() != nil:
		return Exit{Signal: "SIGKILL", PID: exit.PID}, context.Cause(ctx)
	case errors.As(err, &mine):
		return exit, mine
	case streamCtx.Err() != nil:
		err = context.Cause(streamCtx)
	}
	return exit, r.client.lost(r.op, err)
}

func (r *running) startFrame() ([]byte, error) {
	o := r.client.options
	q := wire.StartRequest{
		ID: r.id, Argv: r.exec.Argv, Env: r.exec.Env, Dir: r.exec.Dir,
		UID: uint32(o.User.UID), GID: uint32(o.User.GID), NewPrivileges: o.NewPrivileges,
		Limits: o.limits(), Stdin: r.exec.Stdin != nil,
	}
	if t := r.exec.Terminal; t != nil {
		q.Terminal = &wire.Size{Rows: t.Size.Rows, Cols: t.Size.Cols}
	}
	if err := q.Check(); err != nil {
		return nil, err
	}
	return wire.AppendJSON(nil, wire.Start, q)
}

// sendInput writes the request's body. Its pipe breaks when Run returns.
func (r *running) sendInput(w *io.PipeWriter, start []byte) {
	defer w.Close()
	if _, err := w.Write(start); err != nil || r.exec.Stdin == nil {
		return
	}
	frame := make([]byte, 0, wire.HeaderSize+chunk)
	buf := make([]byte, chunk)
	for {
		n, err := r.exec.Stdin.Read(buf)
		if n > 0 {
			frame = wire.AppendFrame(frame[:0], wire.Stdin, buf[:n])
			if _, err := w.Write(frame); err != nil {
				return
			}
		}
		if err != nil { // any error ends the input, as it does for os/exec
			w.Write(wire.AppendFrame(frame[:0], wire.EOF, nil))
			return
		}
	}
}

// endWith kills the program when ctx ends, and hangs up when that does not
// end it soon.
func (r *running) endWith(ctx context.Context, hangUp context.CancelCauseFunc, finished <-chan struct{}) {
	select {
	case <-finished:
		return
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), killGrace)
	defer cancel()
	if r.signal(grace, syscall.SIGKILL, wire.Tree) != nil {
		// Perhaps it has not started yet. The agent kills it when we hang up.
		hangUp(context.Cause(ctx))
		return
	}
	select {
	case <-finished:
	case <-grace.Done():
		hangUp(context.Cause(ctx))
	}
}

// control passes signals and sizes on until the program has ended. They go
// beside the stream: its input may be full.
func (r *running) control(finished <-chan struct{}) {
	var sizes <-chan sandbox.WindowSize
	if r.exec.Terminal != nil {
		sizes = r.exec.Terminal.Resize
	}
	signals := r.exec.Signals
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { <-finished; cancel() }()
	for {
		select {
		case <-finished:
			return
		case s, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			r.signal(ctx, s, wire.Group) // a program that has ended gets none
		case z, ok := <-sizes:
			if !ok {
				sizes = nil
				continue
			}
			q := wire.ResizeRequest{ID: r.id, Size: wire.Size{Rows: z.Rows, Cols: z.Cols}}
			r.client.urgent(ctx, r.op, wire.PathResize, q, &struct{}{})
		}
	}
}

func (r *running) signal(ctx context.Context, s syscall.Signal, scope wire.Scope) error {
	q := wire.SignalRequest{ID: r.id, Signal: int(s), Scope: scope}
	return r.client.urgent(ctx, r.op, wire.PathSignal, q, &struct{}{})
}

// receive hands out what the program writes, until its end.
func (r *running) receive(body io.Reader) (Exit, error) {
	var exit Exit
	started := false
	frames := wire.NewReader(body)
	buf := make([]byte, chunk)
	for {
		k, _, err := frames.Next()
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return exit, err
		}
		switch k {
		case wire.Started:
			var e wire.StartedEvent
			if err := frames.JSON(&e); err != nil {
				return exit, err
			}
			if !started && r.exec.Started != nil {
				r.exec.Started()
			}
			exit.PID, started = e.PID, true
		case wire.Stdout:
			err = deliver(r.exec.Stdout, frames, buf)
		case wire.Stderr:
			err = deliver(r.exec.Stderr, frames, buf)
		case wire.Exit:
			return r.exited(exit, frames)
		case wire.Alive:
		default:
			return exit, fmt.Errorf("frame %q has no place in an exec", byte(k))
		}
		if err != nil {
			return exit, err
		}
	}
}

// deliver copies a frame's payload. An error of w is the caller's own.
func deliver(w io.Writer, frames *wire.Reader, buf []byte) error {
	for {
		n, err := frames.Read(buf)
		if n > 0 && w != nil {
			if _, err := w.Write(buf[:n]); err != nil {
				return &sandbox.Error{Op: "exec", Kind: sandbox.ErrUnavailable, Problem: "its output cannot be written", Cause: err}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// exited reads the end.
func (r *running) exited(exit Exit, frames *wire.Reader) (Exit, error) {
	var e wire.ExitEvent
	if err := frames.JSON(&e); err != nil {
		return exit, err
	}
	message := printable(e.Message)
	code := e.Code & 0xff
	switch e.Failure {
	case "":
	case wire.NotFound:
		code = 127
		exit.Code = &code
		return exit, &sandbox.Error{Op: "exec", Kind: sandbox.ErrNotFound, Problem: message, Hint: "check the name and PATH inside the sandbox"}
	case wire.NotExecutable:
		code = 126
		exit.Code = &code
		return exit, &sandbox.Error{Op: "exec", Kind: sandbox.ErrInvalid, Problem: message, Hint: "check that the file may be executed inside the sandbox"}
	case wire.NoDirectory:
		// In the words of [sandbox.NoDirectory], as far as the agent's can be trusted.
		return exit, &sandbox.Error{Kind: sandbox.ErrInvalid, Problem: message, Hint: sandbox.NoDirectoryHint}
	case wire.Refused:
		return exit, sandbox.Errorf(sandbox.ErrInvalid, r.op, "%s", message)
	default:
		return exit, sandbox.Errorf(sandbox.ErrUnavailable, r.op, "%s", message)
	}
	if e.Signal != 0 {
		exit.Signal = wire.SignalName(e.Signal)
		return exit, nil
	}
	exit.Code = &code
	return exit, nil
}

// watched hangs up when one read takes too long. Time that passes between
// reads is the caller's own.
type watched struct {
	r      io.Reader
	idle   time.Duration
	hangUp context.CancelCauseFunc
}

func (w *watched) Read(p []byte) (int, error) {
	t := time.AfterFunc(w.idle, func() { w.hangUp(fmt.Errorf("nothing arrived for %v", w.idle)) })
	defer t.Stop()
	return w.r.Read(p)
}
