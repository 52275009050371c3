// SPDX-License-Identifier: Apache-2.0

package guest_test

import (
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/caisson-run/caisson/guest"
)

// one is a listener that has one connection.
type one struct {
	net.Conn
	waits chan net.Conn // holds it
	over  chan struct{}
}

func (l *one) Accept() (net.Conn, error) {
	select {
	case c := <-l.waits:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (l *one) Addr() net.Addr { return l.LocalAddr() }
func (l *one) Close() error   { close(l.over); return nil }

// frail is the agent's end of a connection. Nothing goes in or out of one that is
// dead, not even an answer that HTTP/2 gives by itself.
type frail struct {
	net.Conn
	dead *atomic.Bool
}

func (f frail) Read(b []byte) (int, error) {
	for {
		n, err := f.Conn.Read(b)
		if err != nil || !f.dead.Load() {
			return n, err
		}
	}
}

func (f frail) Write(b []byte) (int, error) {
	if f.dead.Load() {
		return len(b), nil
	}
	return f.Conn.Write(b)
}

// session begins one with an agent that does with each request what h does, while it
// is not dead. ours is the host's end of the connection.
func session(t *testing.T, dead *atomic.Bool, h http.HandlerFunc) (c *guest.Client, ours *net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	l := &one{Conn: there, waits: make(chan net.Conn, 1), over: make(chan struct{})}
	l.waits <- frail{there, dead}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	// Something that no other session has, which is there for as long as the
	// session is.
	conn := struct{ net.Conn }{here}
	c, err := guest.NewClient(&conn, guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c, &conn.Conn
}

func lives(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// Nothing holds a session for long that has ended: a daemon has one for every sandbox
// that it makes. (net/http keeps a connection for some seconds that had one use.)
func TestEndedSessionIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := func() weak.Pointer[net.Conn] {
			c, ours := session(t, new(atomic.Bool), lives)
			if err := c.Health(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.Close()
			return weak.Make(ours)
		}()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		runtime.GC()
		if kept.Value() != nil {
			t.Error("it is still held by something")
		}
	})
}

// An agent of whom nothing comes is asked for a sign of life, and not before; who
// gives none is cut off.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var dead atomic.Bool
		c, _ := session(t, &dead, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			lives(w, r)
		})
		defer c.Close()
		if err := c.Health(t.Context()); err != nil {
			t.Fatal(err)
		}
		count := func(after time.Duration, want int64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if n := asked.Load(); n != want || c.Lost() != nil {
				t.Fatalf("it was asked %d times, want %d; lost: %v", n, want, c.Lost())
			}
		}
		count(4*time.Minute, 1)
		if err := c.Health(t.Context()); err != nil { // a sign of life that was not asked for
			t.Fatal(err)
		}
		count(4*time.Minute, 2)
		count(time.Minute+time.Second, 3)
		dead.Store(true)
		count(5*time.Minute, 3) // it is asked a fourth time, and hears of it no more
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if err := c.Lost(); err == nil || !strings.Contains(err.Error(), "no sign of life") {
			t.Errorf("it goes on: %v", err)
		}
		if err := c.Health(t.Context()); err == nil {
			t.Error("it is still asked")
		}
	})
}
