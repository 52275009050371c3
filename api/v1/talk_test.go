// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// aliveInTests is how often pings are sent here. The library closes a connection when
// the time of a ping is up before it has been written, which a busy machine may take
// ten milliseconds for, and does not take this long for.
const aliveInTests = 250 * time.Millisecond

// spoken lets do be spoken with and returns the client's end.
func spoken(t *testing.T, do carrier, memory *api.Memory) *websocket.Conn {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		held, err := memory.Hold("k")
		if err != nil {
			t.Error(err)
		}
		defer held.Done()
		conn.SetReadLimit(maxBody)
		k := &talk{conn: conn, taken: New(Options{}).taken, held: held, alive: aliveInTests}
		defer k.listening.Wait()
		defer conn.CloseNow()
		k.send(k.carry(r.Context(), do))
	}))
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // or it hangs
	t.Cleanup(cancel)
	c, _, err := websocket.Dial(ctx, strings.Replace(s.URL, "http", "ws", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return c
}

const anything = `{"command":["x"]}`

// A program that does not read its input ends with its caller, too.
func TestCallerGoesWhileNobodyReads(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan error, 1)
	c := spoken(t, func(ctx context.Context, _ *session.Call, in session.IO) (*sandbox.Result, error) {
		in.Stdin.Read(make([]byte, 1)) // and no more
		close(begun)
		select {
		case <-ctx.Done():
			ended <- nil
		case <-time.After(time.Minute):
			ended <- errors.New("it runs on without its caller")
		}
		return &sandbox.Result{}, nil
	}, new(api.Memory))
	for _, m := range []string{anything, strings.Repeat("x", 1<<19)} {
		kind := websocket.MessageBinary
		if m == anything {
			kind = websocket.MessageText
		}
		if err := c.Write(t.Context(), kind, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	<-begun
	c.CloseNow()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Input goes through as it comes: no message of it is held here.
func TestInputGoesThrough(t *testing.T) {
	some := make(chan struct{})
	c := spoken(t, func(_ context.Context, _ *session.Call, in session.IO) (*sandbox.Result, error) {
		if _, err := io.ReadFull(in.Stdin, make([]byte, 64<<10)); err == nil {
			close(some)
		}
		io.Copy(io.Discard, in.Stdin)
		return &sandbox.Result{}, nil
	}, new(api.Memory))
	if err := c.Write(t.Context(), websocket.MessageText, []byte(anything)); err != nil {
		t.Fatal(err)
	}
	w, err := c.Writer(t.Context(), websocket.MessageBinary)
	if err == nil {
		_, err = w.Write(make([]byte, 128<<10)) // and the rest of the message later
	}
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-some:
	case <-time.After(2 * time.Minute):
		t.Error("the server holds a message until it is whole")
	}
}

// A first message counts for the key as it comes, not when it is whole.
func TestFirstMessageCounts(t *testing.T) {
	memory := new(api.Memory)
	other, err := memory.Hold("k")
	if err == nil {
		err = other.Add(api.MaxMessages - 100<<10)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer other.Done()
	c := spoken(t, nil, memory)
	w, err := c.Writer(t.Context(), websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	go io.WriteString(w, `{"shell":"`+strings.Repeat("x", 256<<10)) // and no more
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.Read(t.Context()) // why, or that the connection is closed
	}()
	select {
	case <-over:
	case <-time.After(2 * time.Minute):
		t.Error("it is held, and nobody counts it")
	}
}

// A ping that has to wait for output, or for an answer, does not say that the client
// is gone; one on a connection that was closed does.
func TestPingThatWaits(t *testing.T) {
	conns, done := make(chan *websocket.Conn), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
		}
		conns <- c
		<-done
	}))
	defer s.Close()
	defer close(done)
	client, _, err := websocket.Dial(t.Context(), strings.Replace(s.URL, "http", "ws", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseNow()
	c := <-conns
	soon, cancel := context.WithTimeout(t.Context(), aliveInTests)
	defer cancel()
	if err := c.Ping(soon); err == nil || broken(err) { // no reader, no answer
		t.Errorf("unanswered: %v", err)
	}
	written := make(chan error)
	go func() {
		written <- c.Write(context.WithoutCancel(t.Context()), websocket.MessageBinary, make([]byte, 64<<20))
	}()
	head := make([]byte, 1) // of the message: it is under way, and the client reads no further
	if _, r, err := client.Reader(t.Context()); err != nil {
		t.Fatal(err)
	} else if _, err := r.Read(head); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(t.Context()); err == nil || broken(err) { // gives up by itself
		t.Errorf("behind output: %v", err)
	}
	client.CloseNow()
	if err := <-written; err == nil {
		t.Error("64 MiB went to somebody who reads nothing")
	}
	if err := c.Ping(t.Context()); !broken(err) {
		t.Errorf("closed: %v", err)
	}
}
