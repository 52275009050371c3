// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

// listener is a server inside, in Python, that is ready when it says so.
func listener(t *testing.T, c *guest.Client, script string) {
	t.Helper()
	p := start(t, c, guest.Command{Path: "/usr/bin/python3", Args: []string{"-u", "-c", script}})
	hear(t, p, "ready\n")
}

// withLoopback is a session in whose sandbox 127.0.0.1 is up.
func withLoopback(t *testing.T) *guest.Client {
	t.Helper()
	b := newBox(t)
	output(t, b.dial(t, guest.Options{}), "/usr/sbin/ip link set lo up || /sbin/ip link set lo up")
	return b.dial(t, user())
}

const echoServer = `
import socket, threading
def serve(c):
    while True:
        b = c.recv(65536)
        if not b:
            c.sendall(b"bye")
            c.close()
            return
        c.sendall(b)
s = socket.socket(%s)
s.bind(("%s", %d))
s.listen(50)
print("ready")
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
`

// A client of a port, which may be any client, does not keep the owner out.
func TestTunnelsAreBounded(t *testing.T) {
	b := newBox(t)
	output(t, b.dial(t, guest.Options{}), "/usr/sbin/ip link set lo up || /sbin/ip link set lo up")
	o := user()
	o.Listeners = 8
	c := b.dial(t, o)
	listener(t, c, fmt.Sprintf(echoServer, "", "127.0.0.1", 4000)) // which is listened to
	var open []net.Conn
	for range 6 {
		conn, err := c.DialPort(t.Context(), 4000)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
	}
	if _, err := c.DialPort(t.Context(), 4000); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("one tunnel more than there may be: %v", err)
	}
	p := start(t, c, guest.Command{Path: "/bin/true"})
	p.Close()
	open[0].Close()
	open[0].Close() // one place, however often
	conn, err := c.DialPort(t.Context(), 4000)
	if err != nil {
		t.Fatalf("after one was closed: %v", err)
	}
	defer conn.Close()
	if _, err := c.DialPort(t.Context(), 4001); err == nil {
		t.Error("a place was given back twice")
	}
}

func TestDialPort(t *testing.T) {
	c := withLoopback(t)
	if _, err := c.DialPort(t.Context(), 4000); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("a port that nothing listens on: %v", err)
	}
	if _, err := c.DialPort(t.Context(), 0); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("no port: %v", err)
	}
	listener(t, c, fmt.Sprintf(echoServer, "", "127.0.0.1", 4000))
	listener(t, c, fmt.Sprintf(echoServer, "socket.AF_INET6", "::1", 4001))
	sent := make([]byte, 3<<20)
	rand.Read(sent)
	for _, port := range []uint16{4000, 4001} {
		dialling, dialled := context.WithCancel(t.Context())
		conn, err := c.DialPort(dialling, port)
		if err != nil {
			t.Fatal(err)
		}
		dialled() // the connection outlives it
		failed := make(chan error, 1)
		go func() {
			_, err := conn.Write(sent)
			failed <- errors.Join(err, conn.(interface{ CloseWrite() error }).CloseWrite())
		}()
		got, err := io.ReadAll(conn)
		if err := errors.Join(err, <-failed); err != nil {
			t.Fatal(err)
		}
		if want := append(bytes.Clone(sent), "bye"...); !bytes.Equal(got, want) {
			t.Errorf("port %d echoes %d bytes, want %d", port, len(got), len(want))
		}
		conn.Close()
		if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write behind the end: %v", err)
		}
	}

	conn, err := c.DialPort(t.Context(), 4000)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("behind the deadline: %v", err)
	}
	if err := c.Health(t.Context()); err != nil {
		t.Errorf("the session after it: %v", err)
	}
}

// What is spoken on a tunnel is the two ends' own: HTTP as it stands.
func TestDialPortCarriesHTTP(t *testing.T) {
	c := withLoopback(t)
	listener(t, c, `
import http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_POST(self):
        b = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(b)))
        self.end_headers()
        self.wfile.write(b.upper())
s = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H)
print("ready")
s.serve_forever()
`)
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.DialPort(ctx, 8000) }}
	defer tr.CloseIdleConnections()
	for i := range 20 {
		text := strings.Repeat(fmt.Sprintf("request %d ", i), 1000)
		resp, err := (&http.Client{Transport: tr}).Post("http://inside/", "text/plain", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(b) != strings.ToUpper(text) {
			t.Fatalf("request %d: %d bytes, %v", i, len(b), err)
		}
	}
}
