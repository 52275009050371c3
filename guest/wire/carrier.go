// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Carrier carries a stream over connections, one after the other, to another Carrier:
//
//	stream ⇄ Carrier ⇄ connection ⇄ Carrier ⇄ stream
//
// Nothing is lost where both part before a connection ends: each sends no more (Part), says
// how much it has sent (Sent), and takes all that the other has sent (Await). What is on its
// way in a connection that ends otherwise is lost, in both directions. A Carrier is safe for
// use from many goroutines.
type Carrier struct {
	inner Stream

	mu      sync.Mutex
	changed chan struct{} // closed at the next change, and made anew
	came    []byte        // what came, and is not yet written to inner
	closed  bool          // inner has ended
	apart   bool          // nothing is sent, and all that comes is taken
	sending bool
	conn    Stream // nil between two connections
	in, out int64  // bytes of the last connection
}

const (
	// roomFor is how many bytes wait for a reader of the stream before no more are taken.
	roomFor = 64 << 10
	// maxApart is how many of them may wait when all are taken. What two kernels and a
	// monitor keep of a connection is less than 1 MiB.
	maxApart = 4 << 20
)

// NewCarrier carries inner, which is its own from there on.
func NewCarrier(inner Stream) *Carrier {
	c := &Carrier{inner: inner, changed: make(chan struct{})}
	go c.deliver()
	return c
}

// Join carries both ways over a connection until that or the stream has ended, closes it, and
// reports whether the stream has not. There is one connection at a time. It is Begin and Carry.
func (c *Carrier) Join(conn Stream) (more bool) {
	if c.Begin(conn) {
		more, _ = c.Carry(conn)
	}
	return more
}

// Carry carries over a connection that was begun, as Join does, and says besides whether the
// Carrier was parted with when that ended.
func (c *Carrier) Carry(conn Stream) (more, parted bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.take(conn)
		conn.Close()
		_ = c.inner.SetReadDeadline(past)
	}()
	if parted := c.send(conn); !parted {
		conn.Close()
	}
	<-done
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = nil
	c.tell()
	return !c.closed, c.apart
}

// Begin makes a connection the Carrier's: what is sent and has come is counted from there on,
// and Carry is to follow. It is closed where the stream has ended or there is another.
func (c *Carrier) Begin(conn Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.conn != nil {
		conn.Close()
		return false
	}
	c.conn, c.in, c.out, c.sending = conn, 0, 0, true
	deadline := time.Time{}
	if c.apart {
		deadline = past
	}
	_ = c.inner.SetReadDeadline(deadline)
	c.tell()
	return true
}

// tell wakes those that wait for a change. The caller holds mu.
func (c *Carrier) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait waits until ready says so, which is asked with mu held.
func (c *Carrier) wait(ctx context.Context, ready func() bool) error {
	for {
		c.mu.Lock()
		is, changed := ready(), c.changed
		c.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// send sends what the stream has, until the connection or the stream has ended, or the two
// part; then the other side may still send.
func (c *Carrier) send(conn Stream) (parted bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.inner.Read(buf)
		if n > 0 {
			if _, werr := conn.Write(buf[:n]); werr != nil && err == nil {
				err = werr
			}
		}
		c.mu.Lock()
		c.out += int64(n)
		if err != nil {
			if parted = errors.Is(err, os.ErrDeadlineExceeded) && c.apart; !parted && !errors.Is(err, os.ErrDeadlineExceeded) && n == 0 {
				c.closed = true
			}
			c.sending = false
			c.tell()
		}
		c.mu.Unlock()
		if err != nil {
			return parted
		}
	}
}

// take takes what comes over the connection, until that has ended.
func (c *Carrier) take(conn Stream) {
	buf := make([]byte, 32<<10)
	for {
		_ = c.wait(context.Background(), func() bool { return c.apart || c.closed || !c.sending || len(c.came) < roomFor })
		n, err := conn.Read(buf)
		c.mu.Lock()
		c.came = append(c.came, buf[:n]...)
		c.in += int64(n)
		over := c.closed || len(c.came) > maxApart
		c.tell()
		c.mu.Unlock()
		if err != nil || over {
			return
		}
	}
}

// deliver writes what came to the stream, until that has ended.
func (c *Carrier) deliver() {
	for {
		_ = c.wait(context.Background(), func() bool { return c.closed || len(c.came) > 0 })
		c.mu.Lock()
		b, closed := c.came, c.closed
		c.mu.Unlock()
		if closed {
			return
		}
		n, err := c.inner.Write(b)
		c.mu.Lock()
		if c.came = c.came[n:]; len(c.came) == 0 {
			c.came = nil // its room is free
		}
		c.closed = c.closed || err != nil
		c.tell()
		c.mu.Unlock()
	}
}

// Part has nothing more be sent, and all be taken that comes, until Meet.
func (c *Carrier) Part() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apart = true
	_ = c.inner.SetReadDeadline(past)
	c.tell()
}

// Meet takes Part back, for the next connection. Nothing was sent and has come over that yet.
func (c *Carrier) Meet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apart = false
	if c.conn == nil {
		c.in, c.out = 0, 0
	}
	c.tell()
}

// Together waits until the Carrier is not to be apart, and reports whether its stream has not
// ended.
func (c *Carrier) Together() bool {
	_ = c.wait(context.Background(), func() bool { return !c.apart || c.closed })
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed
}

// Sent waits, after Part, until nothing more is sent, and is how many bytes were sent over this
// connection.
func (c *Carrier) Sent(ctx context.Context) (n int64, err error) {
	err = c.wait(ctx, func() bool { n = c.out; return !c.sending })
	return n, err
}

// Await waits until so many bytes have come over this connection, which is all that the other
// side has sent.
func (c *Carrier) Await(ctx context.Context, n int64) (err error) {
	var in int64
	if err = c.wait(ctx, func() bool { in = c.in; return in >= n || c.conn == nil }); err == nil && in != n {
		err = fmt.Errorf("of %d bytes that the other side has sent %d came", n, in)
	}
	return err
}

// Cut ends the connection that there is, and returns when Join has.
func (c *Carrier) Cut() {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		conn.Close()
		_ = c.wait(context.Background(), func() bool { return c.conn != conn })
	}
}

// Close ends the stream, and the connection that there is.
func (c *Carrier) Close() error {
	c.mu.Lock()
	c.closed = true
	c.tell()
	c.mu.Unlock()
	err := c.inner.Close()
	c.Cut()
	return err
}
