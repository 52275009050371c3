// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net"
	"slices"

	"golang.org/x/time/rate"
)

// metered counts what passes one of our connections and holds it to the
// budget.
type metered struct {
	net.Conn
	c *conn
}

func (m *metered) Read(b []byte) (int, error) {
	if len(b) > copySize {
		b = b[:copySize]
	}
	n, err := m.Conn.Read(b)
	if n > 0 {
		m.c.received.Add(int64(n))
		m.c.r.received.Add(int64(n))
		if werr := m.pace(m.c.r.pace[1], n); werr != nil {
			return n, werr
		}
	}
	return n, err
}

// Write holds bytes back before they leave: a budget that is used up lets not
// one more through.
func (m *metered) Write(b []byte) (total int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), copySize)]
		if maximum := m.c.r.o.Budget.Egress; m.c.r.sent.Add(int64(len(part))) > maximum && maximum > 0 {
			m.c.r.sent.Add(-int64(len(part)))
			// At once: a client that sees this connection end must not get
			// another. What is open is ended by a goroutine that holds none of
			// it.
			if m.c.r.bar() {
				m.c.r.at.do(func() { m.c.r.ended("egress"); m.c.r.shut() })
			}
			return total, errShut
		}
		if err := m.pace(m.c.r.pace[0], len(part)); err != nil {
			return total, err
		}
		n, err := m.Conn.Write(part)
		total += n
		m.c.sent.Add(int64(n))
		if err != nil {
			return total, err
		}
		b = b[n:]
	}
	return total, nil
}

// Close ends it and takes it out of the list of what is open: a client's one
// connection may need any number of ours.
func (m *metered) Close() error {
	m.c.mu.Lock()
	m.c.up = slices.DeleteFunc(m.c.up, func(up *metered) bool { return up == m })
	m.c.mu.Unlock()
	return m.Conn.Close()
}

func (m *metered) pace(l *rate.Limiter, n int) error {
	if l == nil {
		return nil
	}
	return l.WaitN(m.c.r.ctx, n)
}

// CloseWrite ends our direction.
func (m *metered) CloseWrite() error {
	if half, ok := m.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return m.Conn.Close()
}
