// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/envd"
	"github.com/caisson-run/caisson/sandbox"
)

// Command is a process that goes on without a listener, unlike a program of
// Run. It runs as the client's user; see [Client.As].
type Command struct {
	Path string   // looked up in PATH, inside, when it has no slash
	Args []string // without the name
	// Env is on top of PATH, HOME, USER and LOGNAME, and of the sandbox's own
	// variables; see [Client.Resume].
	Env map[string]string
	// Dir is where it starts: from the user's home when it is relative or begins
	// with ~, and the sandbox's default or home when it is empty.
	Dir string
	// Tag is another name for it beside its pid. Of several processes with one
	// tag the latest is meant.
	Tag string
	// Terminal gives it a terminal of this size; nil is none.
	Terminal *sandbox.WindowSize
	// Stdin lets it have input; otherwise it reads /dev/null. With a terminal it
	// always has.
	Stdin bool
	// Timeout is when its whole tree is killed; 0 is never. It is rounded up to
	// milliseconds, 49 days at most.
	Timeout time.Duration
}

// Process is a listener of a process inside. What is read from it was written
// by untrusted code. The caller must call Close; the process goes on.
type Process struct {
	PID int // inside

	stream   *long
	frames   *wire.Reader
	terminal bool
	kind     wire.Kind // of the frame that is being read
	buf      []byte
	end      *sandbox.ProcessEnd
}

// Start starts a process and listens to it from its first byte on. It goes on
// when the listener is closed, when ctx ends, and when the session is lost; ctx
// bounds the listening.
//
// A command or directory that is not there, and a user whom the sandbox does not
// have, are errors that wrap a [*sandbox.AgentError].
func (c *Client) Start(ctx context.Context, cmd Command) (*Process, error) {
	q := wire.ProcessStart{Limits: c.options.limits(), ProcessStart: envd.ProcessStart{
		Process: envd.ProcessConfig{Cmd: cmd.Path, Args: cmd.Args, Envs: cmd.Env, Cwd: cmd.Dir}, Tag: cmd.Tag, Stdin: &cmd.Stdin,
	}}
	if t := cmd.Terminal; t != nil {
		q.PTY = pty(*t)
	}
	header := http.Header{}
	if cmd.Timeout > 0 {
		ms := (cmd.Timeout + time.Millisecond - 1) / time.Millisecond
		header.Set(envd.TimeoutHeader, strconv.FormatInt(int64(min(ms, 1<<32-1)), 10))
	}
	return c.listen(ctx, "start "+printable(cmd.Path), envd.PathStart, header, q)
}

// Connect listens to a process that runs already, from now on. Several can.
// One that ended within the last 30 s has only its end; one that never was gives
// ErrNotFound.
func (c *Client) Connect(ctx context.Context, s sandbox.ProcessSelector) (*Process, error) {
	return c.listen(ctx, "connect to "+s.String(), envd.PathConnect, http.Header{}, envd.ProcessConnect{Process: selector(s)})
}

// listen opens a stream of frames.
func (c *Client) listen(ctx context.Context, op, path string, header http.Header, q any) (*Process, error) {
	header.Set("Accept", wire.FramesType)
	l, err := c.openEnvelope(ctx, op, path, header, q)
	if err != nil {
		return nil, err
	}
	p := &Process{stream: l, frames: wire.NewReader(l.answer), buf: make([]byte, wire.MaxData)}
	if err := p.started(); err != nil {
		err = l.lost(err)
		l.Close()
		return nil, err
	}
	return p, nil
}

// started reads the first frame.
func (p *Process) started() error {
	k, _, err := p.frames.Next()
	if err != nil {
		return unexpected(err)
	}
	if k != wire.Started {
		return fmt.Errorf("frame %q has no place before the start", byte(k))
	}
	var e wire.StartedEvent
	if err := p.frames.JSON(&e); err != nil {
		return err
	}
	if e.PID < 1 {
		return fmt.Errorf("%d is no process", e.PID)
	}
	p.PID, p.terminal = e.PID, e.Terminal
	return nil
}

// Next waits for the next piece of output. Behind the last one it returns
// io.EOF, and End says how the process ended. It is called from one goroutine.
func (p *Process) Next() (sandbox.Output, error) {
	for p.end == nil {
		if p.frames.Left() == 0 {
			if err := p.next(); err != nil {
				return sandbox.Output{}, p.stream.lost(err)
			}
			continue
		}
		n, err := p.frames.Read(p.buf)
		if err != nil {
			return sandbox.Output{}, p.stream.lost(err)
		}
		if n > 0 {
			return sandbox.Output{Stream: p.writtenTo(), Data: p.buf[:n]}, nil
		}
	}
	return sandbox.Output{}, io.EOF
}

// next goes to the next frame.
func (p *Process) next() (err error) {
	if p.kind, _, err = p.frames.Next(); err != nil {
		return unexpected(err)
	}
	switch p.kind {
	case wire.Stdout, wire.Stderr, wire.Alive:
		return nil
	case wire.Exit:
	default:
		return fmt.Errorf("frame %q has no place behind the start", byte(p.kind))
	}
	var e wire.ExitEvent
	if err := p.frames.JSON(&e); err != nil {
		return err
	}
	p.end = &sandbox.ProcessEnd{Code: e.Code & 0xff, Expired: e.Expired}
	if e.Signal != 0 {
		p.end.Code, p.end.Signal = -1, syscall.Signal(e.Signal&0x7f)
	}
	return nil
}

func (p *Process) writtenTo() sandbox.Stream {
	switch {
	case p.terminal:
		return sandbox.StreamTerminal
	case p.kind == wire.Stderr:
		return sandbox.StreamStderr
	}
	return sandbox.StreamStdout
}

// End is how the process ended, once Next has returned io.EOF.
func (p *Process) End() (sandbox.ProcessEnd, bool) {
	if p.end == nil {
		return sandbox.ProcessEnd{}, false
	}
	return *p.end, true
}

// Close stops listening. A call of Next that waits returns an error.
func (p *Process) Close() error { return p.stream.Close() }

// Processes lists the processes that run, but programs of Run.
func (c *Client) Processes(ctx context.Context) ([]sandbox.ProcessInfo, error) {
	var a envd.ProcessList
	if err := c.call(ctx, "list processes", envd.PathList, struct{}{}, &a); err != nil {
		return nil, err
	}
	all := make([]sandbox.ProcessInfo, 0, len(a.Processes))
	for _, p := range a.Processes {
		all = append(all, sandbox.ProcessInfo{
			PID: p.PID, Tag: p.Tag, Argv: append([]string{p.Config.Cmd}, p.Config.Args...), Env: p.Config.Envs, Dir: p.Config.Cwd,
		})
	}
	return all, nil
}

// maxInput is how much of an input goes in one request, in bytes.
const maxInput = 1 << 20

// Input writes to a process: to its terminal when to is its terminal, else to its
// stdin. It waits until the process has read enough, or ctx or the time for one
// call ends; what was written until then stays written.
func (c *Client) Input(ctx context.Context, s sandbox.ProcessSelector, to sandbox.Stream, b []byte) error {
	for first := true; first || len(b) > 0; first = false {
		part := b[:min(len(b), maxInput)]
		b = b[len(part):]
		q := envd.ProcessSendInput{Process: selector(s)}
		if to == sandbox.StreamTerminal {
			q.Input.PTY = &part
		} else {
			q.Input.Stdin = &part
		}
		if err := c.call(ctx, "write to "+s.String(), envd.PathSendInput, q, &struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

// CloseInput is the end of a process's stdin. On a terminal that is a character,
// which is written like any other.
func (c *Client) CloseInput(ctx context.Context, s sandbox.ProcessSelector) error {
	return c.urgent(ctx, "close the input of "+s.String(), envd.PathCloseStdin, envd.ProcessConnect{Process: selector(s)}, &struct{}{})
}

// Signal sends SIGKILL or SIGTERM to a process's group. Its end does not wait
// for the output that others hold open then.
func (c *Client) Signal(ctx context.Context, s sandbox.ProcessSelector, n syscall.Signal) error {
	op := "signal " + s.String()
	if n != syscall.SIGKILL && n != syscall.SIGTERM {
		return sandbox.Errorf(sandbox.ErrInvalid, op, "it can be sent SIGKILL and SIGTERM, not signal %d", n)
	}
	return c.urgent(ctx, op, envd.PathSendSignal, envd.ProcessSignal{Process: selector(s), Signal: "SIGNAL_" + wire.SignalName(int(n))}, &struct{}{})
}

// Resize changes the size of a process's terminal.
func (c *Client) Resize(ctx context.Context, s sandbox.ProcessSelector, z sandbox.WindowSize) error {
	return c.urgent(ctx, "resize "+s.String(), envd.PathUpdate, envd.ProcessUpdate{Process: selector(s), PTY: pty(z)}, &struct{}{})
}

func selector(s sandbox.ProcessSelector) envd.ProcessSelector {
	return envd.ProcessSelector{PID: s.PID, Tag: s.Tag}
}

func pty(z sandbox.WindowSize) *envd.PTY {
	return &envd.PTY{Size: envd.PTYSize{Cols: uint32(z.Cols), Rows: uint32(z.Rows)}}
}
