// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net"
	"sync"
)

// limitedConn gives its slot back when it is closed.
type limitedConn struct {
	net.Conn
	l    *limitedListener
	once sync.Once
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.once.Do(func() {
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
