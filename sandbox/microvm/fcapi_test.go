// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
	"github.com/caisson-run/caisson/sandbox/microvm/firecrackertest"
)

// What Firecracker says is bounded: it may be in the hands of who broke out of a machine.
func TestHostileAPI(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	flood := strings.Repeat("x", 1<<16)
	for name, tt := range map[string]struct {
		answer string // to each request; what follows is not written
		want   string
	}{
		"nonsense":          {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]", "answers nonsense"},
		"no HTTP":           {"SSH-2.0-OpenSSH\r\n\r\n", "malformed HTTP"},
		"a long body":       {"HTTP/1.1 200 OK\r\n\r\n" + flood + flood, "too long"},
		"a long header":     {"HTTP/1.1 200 OK\r\nA: " + flood + flood + "\r\n\r\n", "server response headers exceeded"},
		"many beginnings":   {strings.Repeat("HTTP/1.1 103 Early Hints\r\nA: "+flood[:8000]+"\r\n\r\n", 100), "headers exceeded"},
		"a fault":           {"HTTP/1.1 400 Bad Request\r\nContent-Length: 34\r\n\r\n{\"fault_message\": \"no such \\u001b\"}\n", "says 400"},
		"an old version":    {"HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n{\"firecracker_version\": \"1.7.0\"}\n", "1.14 is the first"},
		"an old pause":      {"HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n{\"firecracker_version\": \"1.16.1\"}\n", "does not go on after a pause"},
		"the old pause":     {"HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n{\"firecracker_version\": \"1.16.2\"}\n", "does not go on after a pause"},
		"an older version":  {"HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n{\"firecracker_version\": \"0.25.2\"}\n", "1.14 is the first"},
		"no version":        {"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{\"firecracker_version\": \"new\"}\n", "the version of Firecracker is"},
		"a way elsewhere":   {"HTTP/1.1 302 Found\r\nLocation: http://localhost/other\r\nContent-Length: 0\r\n\r\n", "says 302"},
		"the end":           {"", "EOF"},
		"half of an answer": {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			err := microvm.StartFirecracker(t.Context(), answering(t, tt.answer))
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.ContainsRune(err.Error(), '\x1b') {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if old := strings.Contains(name, "old"); old != errors.Is(err, sandbox.ErrUnsupported) {
				t.Errorf("it is of the kind %v", err)
			}
		})
	}
}

// answering is a server that says the same whatever it is asked, and hangs up.
func answering(t *testing.T, answer string) func(context.Context) (net.Conn, error) {
	t.Helper()
	return accepting(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 64<<10))
		_, _ = io.WriteString(c, answer)
	})
}

// accepting is a server that does something with each connection, and hangs up.
func accepting(t *testing.T, do func(net.Conn)) func(context.Context) (net.Conn, error) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			do(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-over })
	return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", socket) }
}

// One that never answers is given up with the caller's wait.
func TestSilentAPI(t *testing.T) {
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the caller has gone")
	err := microvm.StartFirecracker(ctx, accepting(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 64<<10))
		cancel(why)
		_, _ = io.Copy(io.Discard, c)
	}))
	if !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	// One that refuses in the middle does not get the machine started.
	api := &firecrackertest.API{Version: "1.15.0", Check: func(r *http.Request, _ []byte) error {
		if r.URL.Path == "/vsock" {
			return errors.New("there is no vsock")
		}
		return nil
	}}
	err = microvm.StartFirecracker(t.Context(), serve(t, api))
	if _, runs := api.Asked(); err == nil || !strings.Contains(err.Error(), "PUT /vsock") || runs {
		t.Errorf("%v; it runs: %v", err, runs)
	}
}

// The way to the machine: what is refused may be asked again, what is nonsense is the end.
func TestHostileWayIn(t *testing.T) {
	for name, tt := range map[string]struct{ answer, want string }{
		"the machine":         {"OK 1073741824\nthe machine", ""},
		"not yet":             {"", microvm.ErrNotThere.Error()},
		"half":                {"OK 10", microvm.ErrNotThere.Error()},
		"another word":        {"NO\n", "answers nonsense"},
		"a line without end":  {strings.Repeat("OK ", 100), "answers nonsense"},
		"nothing but its end": {"\n", "answers nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := answering(t, tt.answer)(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			err = microvm.CallPort(t.Context(), c, 1024)
			if got := fmt.Sprint(err); tt.want != "" && !strings.Contains(got, tt.want) || tt.want == "" && err != nil {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if tt.want == "" {
				if rest, err := io.ReadAll(c); err != nil || string(rest) != "the machine" {
					t.Errorf("behind it: %q, %v", rest, err)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, err := accepting(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 100))
		cancel()
		_, _ = io.Copy(io.Discard, c)
	})(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := microvm.CallPort(ctx, c, 1024); !errors.Is(err, context.Canceled) {
		t.Errorf("one that never answers: %v", err)
	}
}

// A monitor can put what it likes where its sockets are to be. Caisson connects to a socket
// that lies there, and follows no name elsewhere.
func TestHostilePlace(t *testing.T) {
	elsewhere, place := t.TempDir(), t.TempDir()
	accepted := make(chan struct{}, 1)
	l, err := net.Listen("unix", filepath.Join(elsewhere, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
			accepted <- struct{}{}
		}
	}()
	own, err := net.Listen("unix", filepath.Join(place, "own"))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := errors.Join(os.Symlink(filepath.Join(elsewhere, "s"), filepath.Join(place, "link")), os.WriteFile(filepath.Join(place, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(place)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for name, want := range map[string]string{"own": "<nil>", "link": "no socket", "file": "no socket", "nothing": microvm.ErrNotThere.Error()} {
		c, err := microvm.DialIn(t.Context(), dir, name)
		if err == nil {
			c.Close()
		}
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	select {
	case <-accepted:
		t.Error("it connected elsewhere")
	default:
	}
}
