// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// net/http lets a connection linger for half a second after its last answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// started is a server of h on a port of its own.
func started(t *testing.T, h http.Handler, stats *Stats) (addr string, s *Server) {
	return patient(t, h, stats, tailTimeout)
}

func patient(t *testing.T, h http.Handler, stats *Stats, tail time.Duration) (addr string, s *Server) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = newServer(h, stats, slog.New(slog.DiscardHandler), tail)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln, nil) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String(), s
}

// The counts that an operator sees, for who has a key alone.
func TestOperator(t *testing.T) {
	stats := NewStats()
	stats.Sandboxes = func() map[string]int { return map[string]int{"running": 3} }
	mux := http.NewServeMux()
	mux.HandleFunc("/fault", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	mux.HandleFunc("/broken", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	var unready atomic.Bool
	unready.Store(true)
	ready := func() error {
		if unready.Load() {
			return errors.New("no level works")
		}
		return nil
	}
	mux.Handle("/", Operator(stats, ready, func(_ context.Context, token string) error {
		if token != "good" {
			return errors.New("no")
		}
		return nil
	}))
	addr, _ := started(t, mux, stats)
	get := func(path, key string) (int, string) {
		req, _ := http.NewRequest("GET", "http://"+addr+path, nil)
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		tr := &http.Transport{DisableKeepAlives: true}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	for _, c := range []struct {
		path, key string
		status    int
	}{{"/healthz", "", 200}, {"/readyz", "", 503}, {"/metrics", "", 401}, {"/metrics", "bad", 401}, {"/nothing", "", 404}, {"/fault", "", 500}, {"/broken", "", 0}} {
		if status, text := get(c.path, c.key); status != c.status || strings.Contains(text, "caisson_") {
			t.Errorf("%s: %d %s", c.path, status, text)
		}
	}
	unready.Store(false)
	if status, text := get("/readyz", ""); status != 200 {
		t.Errorf("/readyz: %d %s", status, text)
	}
	// Who opens the address that caisson serve prints in a browser learns where to go on.
	if _, text := get("/", ""); !strings.Contains(text, "/openapi.json") {
		t.Errorf("/: %s", text)
	}
	_, text := get("/metrics", "good")
	for _, want := range []string{
		`caisson_http_requests_total{code="2xx"} 2`, `caisson_http_requests_total{code="4xx"} 4`, `caisson_http_requests_total{code="5xx"} 2`,
		`caisson_http_requests_total{code="aborted"} 1`, "caisson_http_requests_in_flight 1", `caisson_sandboxes{state="running"} 3`, `caisson_sandboxes{state="paused"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}

// worded is a frontend with words of its own for one path.
type worded struct{ http.Handler }

func (worded) Refuse(w http.ResponseWriter, r *http.Request, status int, _ string) bool {
	mine := r.URL.Path == "/mine"
	if mine {
		w.WriteHeader(status)
		io.WriteString(w, "own words")
	}
	return mine
}

// Too much is refused, and the server goes on.
func TestBounds(t *testing.T) {
	hold, held := make(chan struct{}), make(chan struct{}, maxRequests)
	h := bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { held <- struct{}{}; <-hold }), worded{})
	done := make(chan struct{})
	for range maxRequests {
		go func() { h.ServeHTTP(httptest.NewRecorder(), nil); done <- struct{}{} }()
	}
	for range maxRequests {
		<-held
	}
	for path, want := range map[string]string{"/mine": "own words", "/": "the server has as many requests under way as it takes\n"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Body.String() != want {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
	close(hold)
	for range maxRequests {
		<-done
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil)); w.Code != 200 {
		t.Errorf("%d afterwards", w.Code)
	}
}

// A connection gives its slot back once, however often it is closed.
func TestLimitedListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stats := NewStats()
	l := limited(ln, 1, stats)
	for range 3 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if len(l.slots) != 1 || stats.connections.Load() != 1 {
			t.Error(len(l.slots), stats.connections.Load())
		}
		s.Close()
		s.Close()
		c.Close()
	}
	ln.Close()
	if _, err := l.Accept(); err == nil || len(l.slots) != 0 {
		t.Errorf("%v, %d slots are taken", err, len(l.slots))
	}
}

// Connections on which nothing is under way, which everybody can open, keep no
// client out; one with a request is left alone.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const maximum = 4
	l := limited(ln, maximum, NewStats())
	begun, end := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			close(begun)
			<-end
		}
		io.WriteString(w, "whole")
	})
	s := newServer(h, l.stats, slog.New(slog.DiscardHandler), tailTimeout)
	var served sync.WaitGroup
	served.Go(func() { s.http.Serve(l) })
	defer served.Wait()
	defer s.http.Close()
	ask := func(path string) (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(2 * time.Minute)) // or it hangs
		if path != "" {
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		}
		return c, bufio.NewReader(c)
	}
	answer := func(r *bufio.Reader) error {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(resp.Body)
		if string(b) != "whole" {
			return fmt.Errorf("%q, %w", b, err)
		}
		return nil
	}
	_, long := ask("/long")
	<-begun
	for range maximum - 2 { // kept alive by who has asked once, and by who has not
		_, r := ask("/")
		if err := answer(r); err != nil {
			t.Fatal(err)
		}
	}
	for range maximum {
		ask("")
	}
	for range 3 * maximum {
		_, r := ask("/")
		if err := answer(r); err != nil {
			t.Fatal("kept out:", err)
		}
	}
	close(end)
	if err := answer(long); err != nil {
		t.Error("a request under way was broken off:", err)
	}
}

// A head that never ends and one that is too long are ended by the server.
func TestHeads(t *testing.T) {
	addr, _ := started(t, http.NotFoundHandler(), NewStats())
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", maxHeader+8<<10))
	b, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(b), "HTTP/1.1 431 ") {
		t.Errorf("%.100q", b)
	}
}

// Who announces a body and does not send it, and who does not read answers,
// holds a connection no longer than a client that says nothing.
func TestHalfRequests(t *testing.T) {
	addr, _ := patient(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, strings.Repeat("no ", 300))
	}), NewStats(), 100*time.Millisecond)
	dial := func(t *testing.T) net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		return c
	}
	for name, send := range map[string]string{
		"half a body":  "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx",
		"half a chunk": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n400\r\nx",
		// No handler knows of these.
		"half a body of no path":    "OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx",
		"half a body, and too much": "POST / HTTP/1.1\r\nHost: x\r\nExpect: much\r\nContent-Length: 1000\r\n\r\nx",
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t)
			io.WriteString(c, send)
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is held")
			}
		})
	}
	t.Run("answers that nobody reads", func(t *testing.T) {
		c := dial(t)
		many := strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1000)
		var err error
		for err == nil {
			_, err = io.WriteString(c, many)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the connection is held")
		}
	})
}

// The next request of a connection has all the time that it had.
func TestAfterADeadline(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Second
	wait := make(chan struct{})
	addr, _ := patient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-wait
			if r.Context().Err() != nil {
				t.Error("it was given up")
			}
		}
		if r.URL.Path == "/upload" { // which takes as long as it takes
			if b, err := io.ReadAll(r.Body); err != nil {
				t.Errorf("%q %v", b, err)
			}
		}
		io.WriteString(w, "whole")
	}), NewStats(), timeout)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	up, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	up.SetDeadline(time.Now().Add(2 * time.Minute))
	io.WriteString(up, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n")
	time.AfterFunc(2*timeout, func() { close(wait); io.WriteString(up, "body") })
	in := bufio.NewReader(c)
	for _, path := range []string{"/", "/slow"} {
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(path, err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "whole" {
			t.Error(path, string(b), err)
		}
		resp.Body.Close()
	}
	served(t, up)
}

// A request that is under way is waited for, until the timeout ends.
func TestShutdown(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	addr, s := started(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { close(in); <-out; io.WriteString(w, "whole") }), NewStats())
	answered := make(chan string, 1)
	go func() {
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(httptest.NewRequest("GET", "http://"+addr, nil))
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		answered <- string(b)
	}()
	<-in
	ended := make(chan struct{})
	go func() { s.Shutdown(context.Background()); close(ended) }()
	close(out)
	if got := <-answered; got != "whole" {
		t.Error(got)
	}
	<-ended
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("it still listens")
	}
}
