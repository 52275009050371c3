// SPDX-License-Identifier: Apache-2.0

package api

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// limitedListener accepts no more connections than it has slots. Where all are
// taken, one on which no request is under way is closed for the next: who has no
// key can open connections, too, and would keep out everybody else with them.
type limitedListener struct {
	net.Listener
	slots chan struct{}
	stats *Stats
	over  chan struct{} // closed with the listener
	end   sync.Once

	mu      sync.Mutex
	waiting *list.List // of *limitedConn, on which no request is under way; longest first
}

func limited(ln net.Listener, most int, stats *Stats) *limitedListener {
	return &limitedListener{Listener: ln, slots: make(chan struct{}, most), stats: stats, over: make(chan struct{}), waiting: list.New()}
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
	select {
	case l.slots <- struct{}{}:
	default:
		l.makeRoom()
		select {
		case l.slots <- struct{}{}:
		case <-l.over:
			c.Close()
			return nil, net.ErrClosed
		}
	}
	l.stats.connections.Add(1)
	return &limitedConn{Conn: c, l: l}, nil
}

// makeRoom closes the connection that has waited longest for a request.
func (l *limitedListener) makeRoom() {
	l.mu.Lock()
	e := l.waiting.Front()
	if e == nil {
		l.mu.Unlock()
		return
	}
	l.waiting.Remove(e)
	c := e.Value.(*limitedConn)
	c.place = nil
	l.mu.Unlock()
	c.Close()
}

// limitedConn gives its slot back when it is closed.
type limitedConn struct {
	net.Conn
	l     *limitedListener
	place *list.Element // among those that wait; the listener's mu guards it
	once  sync.Once
}

// noteState is http.Server's ConnState.
func noteState(conn net.Conn, state http.ConnState) {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = t.NetConn()
	}
	if c, ok := conn.(*limitedConn); ok {
		c.waits(state == http.StateNew || state == http.StateIdle)
	}
}

// waits notes whether it waits for a request.
func (c *limitedConn) waits(yes bool) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	switch {
	case yes && c.place == nil:
		c.place = c.l.waiting.PushBack(c)
	case !yes && c.place != nil:
		c.l.waiting.Remove(c.place)
		c.place = nil
	}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.once.Do(func() {
		c.waits(false)
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
