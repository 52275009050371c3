// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"errors"
	"io"
	"syscall"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/toolcall"
)

// Serve serves a toolbox to one client on a stream of lines, until it leaves or
// ctx ends. What its calls still do is ended then.
func Serve(ctx context.Context, box Toolbox, version string, in io.ReadCloser, out io.WriteCloser) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	s, err := NewServer(bounding{box, ctx}, version)
	if err != nil {
		return err
	}
	return serveLines(ctx, s, in, out, leave)
}

// serveLines serves one client; leave is called as soon as it has left. The library
// ends the calls that it knows of, then; leave ends the rest: servers that start.
func serveLines(ctx context.Context, s *sdk.Server, in io.ReadCloser, out io.WriteCloser, leave func()) error {
	odd := func(one []byte, why error) ([]byte, error) { return fault(one, why), nil }
	err := s.Run(ctx, wire{in: &departure{in, leave}, out: out, odd: odd})
	// Who leaves while an answer is on its way has left all the same.
	if errors.Is(err, context.Canceled) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	if err != nil {
		return &sandbox.Error{Op: "mcp", Kind: sandbox.ErrInvalid, Problem: "standard input or output cannot be used",
			Hint: "an agent's client starts this command and speaks MCP with it; docs/mcp.md says how it is told to", Cause: err}
	}
	return nil
}

// departure says when nothing more comes.
type departure struct {
	io.ReadCloser
	leave func()
}

func (d *departure) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if err != nil {
		d.leave()
	}
	return n, err
}

// bounding is a toolbox whose calls end with a life.
type bounding struct {
	Toolbox
	life context.Context
}

func (b bounding) CallTool(ctx context.Context, c *toolcall.Call) (*toolcall.Answer, error) {
	ctx, stop := within(ctx, b.life)
	defer stop()
	return b.Toolbox.CallTool(ctx, c)
}

// within is ctx, which ends with life at the latest.
func within(ctx, life context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	return ctx, func() { stop(); cancel(nil) }
}
