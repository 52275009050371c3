// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// dialTimeout bounds connecting to a port inside.
const dialTimeout = 5 * time.Second

// serveTunnel connects the request's two directions with a port of the
// sandbox's own loopback. The request's end is the end of what is sent; when
// the port's side sends no more, the tunnel ends.
func (a *Agent) serveTunnel(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.URL.Query().Get("port"), 10, 16)
	if err != nil || port == 0 {
		writeError(w, &connectError{codeInvalid, "the port is no number from 1 to 65535"})
		return
	}
	conn, err := dialLoopback(r.Context(), uint16(port))
	if err != nil {
		writeError(w, &connectError{codeNotFound, fmt.Sprintf("port %d is not open: %v", port, err)})
		return
	}
	defer conn.Close()
	defer context.AfterFunc(r.Context(), func() { conn.Close() })()
	out := newWriter(w, "application/octet-stream")
	out.mu.Lock() // this is the only writer
	defer out.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	out.control.Flush()
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{r.Body}, make([]byte, 32<<10))
		if err != nil {
			conn.Close()
			return
		}
		conn.CloseWrite()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		if n > 0 && out.send(buf[:n]) != nil {
			return
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // a reset there is a reset here
		}
	}
}

// dialLoopback connects to a port that something inside listens on: on 127.0.0.1
// or, as some servers do, on ::1 alone.
func dialLoopback(ctx context.Context, port uint16) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	var all error
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return c.(*net.TCPConn), nil
		}
		all = errors.Join(all, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, all
}
