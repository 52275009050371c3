// SPDX-License-Identifier: Apache-2.0

package api

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// limitedListener accepts no more connections than it has slots. Where all are
// taken, one on which no handler is at work is closed for the next: who has no key
// can open connections, too, and would keep out everybody else with them.
type limitedListener struct {
	net.Listener
	slots chan struct{}
	stats *Stats
	grace time.Duration // of a connection whose last handler is done
	over  chan struct{} // closed with the listener
	more  chan struct{} // has an element when another connection waits
	end   sync.Once

	mu      sync.Mutex
	waiting *list.List // of *limitedConn, on which no handler is at work; longest first
}

func limited(ln net.Listener, maximum int, stats *Stats) *limitedListener {
	return &limitedListener{
		Listener: ln, slots: make(chan struct{}, maximum), stats: stats, grace: tailGrace,
		over: make(chan struct{}), more: make(chan struct{}, 1), waiting: list.New(),
	}
}

// Close implements net.Listener.
func (l *limitedListener) Close() error {
	l.end.Do(func() { close(l.over) })
	return l.Listener.Close()
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if !l.enter() {
		c.Close()
		return nil, net.ErrClosed
	}
	l.stats.connections.Add(1)
	return &limitedConn{Conn: c, l: l}, nil
}

// enter takes a slot, as soon as there is one or one can be made free. False is that
// the listener is closed.
func (l *limitedListener) enter() bool {
	for {
		select {
		case l.slots <- struct{}{}:
			return true
		default:
		}
		l.makeRoom()
		select {
		case l.slots <- struct{}{}:
			return true
		case <-l.more:
		case <-l.over:
			return false
		}
	}
}

// makeRoom closes the connection that has waited longest.
func (l *limitedListener) makeRoom() {
	l.mu.Lock()
	e := l.waiting.Front()
	if e == nil {
		l.mu.Unlock()
		return
	}
	c := l.waiting.Remove(e).(*limitedConn)
	c.place = nil
	l.mu.Unlock()
	c.Close()
}

// limitedConn gives its slot back when it is closed. It waits from when it is there
// until a handler is at work, and again when the last one is done and there was
// grace for what is left of its request and answer. That a request has come is not
// enough, since net/http answers some by itself, and reads their bodies for as long
// as they do not come.
type limitedConn struct {
	net.Conn
	l    *limitedListener
	once sync.Once

	// The listener's mu guards these.
	place    *list.Element // among those that wait
	handlers int           // that are at work
	late     *time.Timer   // of the end of its grace
	gone     bool          // closed, or a handler's own
}

// noteState is http.Server's ConnState.
func noteState(conn net.Conn, state http.ConnState) {
	c := limitedOf(conn)
	switch state {
	case http.StateNew, http.StateIdle:
		c.waits()
	case http.StateHijacked, http.StateClosed:
		c.leaves()
	}
}

// limitedOf is the connection that conn is, or that is below its TLS; nil for
// another listener's.
func limitedOf(conn net.Conn) *limitedConn {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = t.NetConn()
	}
	c, _ := conn.(*limitedConn)
	return c
}

// connKey is where a request's connection is in its context.
type connKey struct{}

// withConn is http.Server's ConnContext.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, limitedOf(conn))
}

// connOf is the connection of a request's context; nil for another listener's.
func connOf(ctx context.Context) *limitedConn {
	c, _ := ctx.Value(connKey{}).(*limitedConn)
	return c
}

// begins notes that a handler is at work; HTTP/2 has several at once.
func (c *limitedConn) begins() {
	if c == nil {
		return
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.handlers++
	c.stay()
}

// ends notes that a handler is done.
func (c *limitedConn) ends() {
	if c == nil {
		return
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.handlers--; c.handlers == 0 && c.place == nil && !c.gone {
		c.late = time.AfterFunc(c.l.grace, c.waits)
	}
}

// waits notes that it may be closed for another one, unless a handler is at work.
func (c *limitedConn) waits() {
	if c == nil {
		return
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.gone || c.place != nil || c.handlers > 0 {
		return
	}
	c.stay()
	c.place = c.l.waiting.PushBack(c)
	select {
	case c.l.more <- struct{}{}:
	default:
	}
}

// leaves notes that it never waits again.
func (c *limitedConn) leaves() {
	if c == nil {
		return
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.gone = true
	c.stay()
}

// stay takes it from those that wait, or will. The listener's mu is held.
func (c *limitedConn) stay() {
	if c.late != nil {
		c.late.Stop()
		c.late = nil
	}
	if c.place != nil {
		c.l.waiting.Remove(c.place)
		c.place = nil
	}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.once.Do(func() {
		c.leaves()
		c.l.stats.connections.Add(-1)
		<-c.l.slots
	})
	return c.Conn.Close()
}

// CloseWrite is the half that upgraded connections need.
func (c *limitedConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}
