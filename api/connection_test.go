// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// pipes listens in memory, where nothing is on its way: what one side writes waits
// until the other has read it.
type pipes struct {
	dialled  chan net.Conn
	accepted chan struct{}
	closed   chan struct{}
	once     sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialled:
		p.accepted <- struct{}{}
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// crowd is a server for few connections, which would wait for ever for the rest of a
// request, and for who does not read its answer.
type crowd struct {
	*pipes
	asked chan struct{} // has an element for each request of a handler
	held  chan struct{} // closed when what is held is answered
}

const fewConnections = 4

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{
		pipes: &pipes{dialled: make(chan net.Conn), accepted: make(chan struct{}, 100), closed: make(chan struct{})},
		asked: make(chan struct{}, 100), held: make(chan struct{}),
	}
	l := limited(c.pipes, fewConnections, NewStats())
	s := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.asked <- struct{}{}
		switch r.URL.Path {
		case "/held":
			<-c.held
			fallthrough
		case "/refused":
			http.Error(w, "no key", http.StatusUnauthorized)
		default:
			io.WriteString(w, "whole")
		}
	}), l.stats, slog.New(slog.DiscardHandler), time.Hour)
	var served sync.WaitGroup
	served.Go(func() { s.http.Serve(l) })
	t.Cleanup(served.Wait)
	t.Cleanup(func() { s.http.Close() })
	return c
}

// says connects and says something.
func (c *crowd) says(t *testing.T, text string) net.Conn {
	t.Helper()
	conn, other := net.Pipe()
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * time.Minute)) // or it hangs
	select {
	case c.dialled <- other:
	case <-time.After(2 * time.Minute):
		t.Fatal("kept out")
	}
	var said sync.WaitGroup
	said.Go(func() { io.WriteString(conn, text) })
	t.Cleanup(said.Wait)
	return conn
}

// is waits until a handler has been asked.
func (c *crowd) is(t *testing.T) {
	t.Helper()
	select {
	case <-c.asked:
	case <-time.After(2 * time.Minute):
		t.Fatal("kept out")
	}
}

const simple = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

func served(t *testing.T, conn net.Conn) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal("kept out:", err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "whole" {
		t.Errorf("%q %v", b, err)
	}
}

// unread is what a client says in HTTP/2 that has no room for any answer.
func unread(t *testing.T) string {
	t.Helper()
	var out, head bytes.Buffer
	out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&out, nil)
	if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	fields := hpack.NewEncoder(&head)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "x"}, {":path", "/refused"}} {
		fields.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A client that needs no key to be answered, and neither sends the rest of the
// request nor reads the answer, keeps no other client out.
func TestUnfinishedRequestsMakeRoom(t *testing.T) {
	for name, c := range map[string]struct {
		says  string
		reads bool
		own   bool // net/http's own answer, which no handler knows of
	}{
		"body":             {"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", true, false},
		"body in pieces":   {"POST /refused HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", true, false},
		"continued body":   {"POST /refused HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n", true, false},
		"answered body":    {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", true, false},
		"body of no path":  {"OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", true, true},
		"unexpected body":  {"POST / HTTP/1.1\r\nHost: x\r\nExpect: much\r\nContent-Length: 100\r\n\r\n", true, true},
		"answer":           {"GET /refused HTTP/1.1\r\nHost: x\r\n\r\n", false, false},
		"answer of HTTP/2": {unread(t), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCrowd(t)
			for range 3 * fewConnections {
				conn := s.says(t, c.says)
				if c.reads {
					go io.Copy(io.Discard, conn)
				}
				if !c.own {
					s.is(t)
				}
			}
			for range fewConnections {
				served(t, s.says(t, simple))
			}
		})
	}
}

// It is so, too, for who came while a handler was at work on all connections.
func TestUnfinishedRequestsMakeRoomLater(t *testing.T) {
	s := newCrowd(t)
	for range fewConnections {
		s.says(t, "POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
		s.is(t)
	}
	late := s.says(t, simple)
	for range fewConnections + 1 {
		<-s.accepted
	}
	close(s.held)
	served(t, late)
}

// When a connection may be closed for another one.
func TestWaiting(t *testing.T) {
	begins, ends := (*limitedConn).begins, (*limitedConn).ends
	state := func(s http.ConnState) func(*limitedConn) { return func(c *limitedConn) { noteState(c, s) } }
	fresh, active, idle, closes := state(http.StateNew), state(http.StateActive), state(http.StateIdle), state(http.StateClosed)
	taken := state(http.StateHijacked)
	all := func(steps ...func(*limitedConn)) []func(*limitedConn) { return steps }
	for name, c := range map[string]struct {
		steps []func(*limitedConn)
		waits bool
	}{
		"nothing has come":           {all(fresh), true},
		"net/http reads a request":   {all(fresh, active), true},
		"a handler is at work":       {all(fresh, active, begins), false},
		"in its grace":               {all(fresh, active, begins, ends), false},
		"between requests":           {all(fresh, active, begins, ends, idle), true},
		"in the next request":        {all(fresh, active, begins, ends, idle, active, begins), false},
		"one of two is at work":      {all(fresh, active, begins, begins, ends), false},
		"its stream was given up":    {all(fresh, active, begins, idle), false},
		"grace that ends in another": {all(fresh, active, begins, ends, begins, (*limitedConn).waits), false},
		"closed":                     {all(fresh, active, begins, ends, idle, closes, idle), false},
		"a handler's own":            {all(fresh, active, begins, taken, ends, (*limitedConn).waits), false},
	} {
		t.Run(name, func(t *testing.T) {
			l := limited(nil, 1, NewStats())
			l.grace = time.Hour
			conn := &limitedConn{l: l}
			defer conn.leaves()
			for _, step := range c.steps {
				step(conn)
			}
			if got := l.waiting.Len() == 1; got != c.waits {
				t.Errorf("it waits: %t", got)
			}
		})
	}
}

// Requests find their connections, below whatever they come over.
func TestConnOf(t *testing.T) {
	c := new(limitedConn)
	if got := connOf(withConn(context.Background(), c)); got != c {
		t.Error(got)
	}
	if got := connOf(withConn(context.Background(), under{c})); got != c {
		t.Error(got)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	none := connOf(withConn(context.Background(), a))
	if none != nil {
		t.Error(none)
	}
	none.begins()
	none.ends()
	noteState(a, http.StateIdle)
}

// under is a connection on another one, as that of TLS is.
type under struct{ net.Conn }

func (u under) NetConn() net.Conn { return u.Conn }
