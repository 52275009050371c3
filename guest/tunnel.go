// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// DialPort connects to a port of the sandbox's own loopback (127.0.0.1, or ::1
// where nothing listens there): a stream of bytes in both directions, whatever is
// spoken on it. A port that nothing listens on gives ErrNotFound. ctx bounds the
// dialling alone.
//
// The connection also is a CloseWrite() error. It ends when the other side sends
// no more; what was sent to it and not taken is lost then. A deadline that passes
// ends it for good.
func (c *Client) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	number := strconv.Itoa(int(port))
	op := "connect to port " + number
	if port == 0 {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, op, "there is no such port")
	}
	select {
	case c.tunnels <- struct{}{}:
	default:
		return nil, &sandbox.Error{
			Op: op, Kind: sandbox.ErrUnavailable, Problem: "the sandbox has as many connections to its ports as it may have",
			Hint: "close some that are no longer needed",
		}
	}
	// The tunnel outlives the dialling.
	tunnelCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	body, input := io.Pipe()
	header := http.Header{"Content-Type": {"application/octet-stream"}}
	l, err := c.open(tunnelCtx, op, http.MethodPost, wire.PathTunnel+"?port="+number, header, body)
	if err == nil && !stop() {
		err = l.lost(context.Cause(ctx))
		l.Close()
	}
	if err != nil {
		cancel(errClosed)
		body.Close()
		<-c.tunnels
		return nil, err
	}
	return &tunnel{long: l, input: input, port: number, leave: sync.OnceFunc(func() { <-c.tunnels })}, nil
}

// tunnel is a connection to a port inside.
type tunnel struct {
	*long
	input *io.PipeWriter
	port  string
	leave func() // gives its place back

	expired atomic.Bool

	mu    sync.Mutex
	timer *time.Timer
}

// Read implements net.Conn.
func (t *tunnel) Read(p []byte) (int, error) {
	n, err := t.resp.Body.Read(p)
	if err != nil && err != io.EOF {
		err = t.fault("read", err)
	}
	return n, err
}

// Write implements net.Conn.
func (t *tunnel) Write(p []byte) (int, error) {
	n, err := t.input.Write(p)
	if err != nil {
		err = t.fault("write", err)
	}
	return n, err
}

func (t *tunnel) fault(op string, err error) error {
	switch {
	case t.expired.Load():
		err = os.ErrDeadlineExceeded
	case context.Cause(t.ctx) == errClosed:
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: "guest", Addr: t.RemoteAddr(), Err: err}
}

// CloseWrite is the end of what is sent.
func (t *tunnel) CloseWrite() error { return t.input.Close() }

// Close implements net.Conn.
func (t *tunnel) Close() error {
	t.mu.Lock()
	if t.timer != nil {
		t.timer.Stop()
	}
	t.mu.Unlock()
	t.input.CloseWithError(errClosed)
	defer t.leave()
	return t.long.Close()
}

// SetDeadline implements net.Conn. When it passes the tunnel ends.
func (t *tunnel) SetDeadline(at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	if !at.IsZero() {
		t.timer = time.AfterFunc(time.Until(at), func() {
			t.expired.Store(true)
			t.cancel(os.ErrDeadlineExceeded)
			t.input.CloseWithError(os.ErrDeadlineExceeded)
		})
	}
	return nil
}

// SetReadDeadline implements net.Conn. There is one deadline for both directions.
func (t *tunnel) SetReadDeadline(at time.Time) error { return t.SetDeadline(at) }

// SetWriteDeadline implements net.Conn. There is one deadline for both directions.
func (t *tunnel) SetWriteDeadline(at time.Time) error { return t.SetDeadline(at) }

// LocalAddr implements net.Conn.
func (t *tunnel) LocalAddr() net.Addr { return tunnelAddr("") }

// RemoteAddr implements net.Conn.
func (t *tunnel) RemoteAddr() net.Addr { return tunnelAddr(t.port) }

// tunnelAddr is a port inside.
type tunnelAddr string

func (tunnelAddr) Network() string  { return "guest" }
func (a tunnelAddr) String() string { return "guest:" + string(a) }

var _ interface {
	net.Conn
	CloseWrite() error
} = (*tunnel)(nil)
