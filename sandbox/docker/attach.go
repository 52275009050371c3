// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// logTail is how much of what the agent says on fd 2 is kept, in bytes.
const logTail = 64 << 10

// attached is the agent's stream: a connection that the engine has turned into
// the first process's fd 0, 1 and 2.
type attached struct {
	conn net.Conn
	out  demux

	mu     sync.Mutex
	log    tail
	oom    bool          // the agent has said that the memory limit has killed something
	broken chan struct{} // closed when the stream has ended
	once   sync.Once
}

var _ wire.Stream = (*attached)(nil)

// attach connects to a container that was created and not started yet.
func (e *engine) attach(ctx context.Context, id string) (*attached, error) {
	query := url.Values{"stream": {"1"}, "stdin": {"1"}, "stdout": {"1"}, "stderr": {"1"}}
	req, err := e.request(ctx, http.MethodPost, "/containers/"+id+"/attach", query, nil, "text/plain")
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "tcp")
	conn, err := e.dial(ctx)
	if err != nil {
		return nil, e.unreachable(err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	r, err := hijack(conn, req)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	a := &attached{conn: conn, broken: make(chan struct{})}
	a.log.maximum = logTail
	a.out = demux{r: r, log: writerFunc(a.complain)}
	return a, nil
}

// hijack sends req and returns what follows the answer to it.
func hijack(conn net.Conn, req *http.Request) (io.Reader, error) {
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	// Answers have no bound in net/http's reader; this one is a few lines.
	limited := &io.LimitedReader{R: conn, N: 64 << 10}
	buffered := bufio.NewReaderSize(limited, 4<<10)
	resp, err := http.ReadResponse(buffered, req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusSwitchingProtocols, http.StatusOK: // old engines say 200
	default:
		if err := failure(resp); err != nil {
			return nil, err
		}
		return nil, sandbox.Errorf(sandbox.ErrUnavailable, "attach", "the engine answers %d", resp.StatusCode)
	}
	rest, err := buffered.Peek(buffered.Buffered())
	if err != nil {
		return nil, err
	}
	return &ahead{rest: rest, r: conn}, nil
}

// ahead hands out what was read too far before the connection itself.
type ahead struct {
	rest []byte
	r    io.Reader
}

func (a *ahead) Read(p []byte) (int, error) {
	if len(a.rest) > 0 {
		n := copy(p, a.rest)
		a.rest = a.rest[n:]
		return n, nil
	}
	return a.r.Read(p)
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// complain keeps the end of what the agent says on fd 2.
func (a *attached) complain(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, err := a.log.Write(p)
	a.oom = a.oom || strings.Contains("\n"+string(a.log.kept), "\n"+agent.OOMLine+"\n")
	return n, err
}

// outOfMemory reports whether the agent has said so. One that was not asked to never does.
func (a *attached) outOfMemory() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.oom
}

// said is the end of what the agent said on fd 2.
func (a *attached) said() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return string(a.log.kept)
}

// firstLine waits for the first line that the agent says on fd 2. It comes
// before anything on fd 1.
func (a *attached) firstLine(ctx context.Context) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = a.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var buf [512]byte
	for {
		if line, _, found := strings.Cut(a.said(), "\n"); found {
			return line, nil
		}
		n, err := a.Read(buf[:])
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err != nil:
			return "", err
		case n > 0:
			return "", errors.New("it spoke before it was asked")
		}
	}
}

func (a *attached) Read(p []byte) (int, error) {
	n, err := a.out.Read(p)
	if err != nil && !isTimeout(err) {
		a.once.Do(func() { close(a.broken) })
	}
	return n, err
}

func isTimeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

func (a *attached) Write(p []byte) (int, error)        { return a.conn.Write(p) }
func (a *attached) Close() error                       { return a.conn.Close() }
func (a *attached) SetReadDeadline(t time.Time) error  { return a.conn.SetReadDeadline(t) }
func (a *attached) SetWriteDeadline(t time.Time) error { return a.conn.SetWriteDeadline(t) }
