// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// early passes on what a server says before its client does, as those of mail
// and SSH do.
type early struct {
	up    net.Conn
	done  chan struct{}
	spoke bool
}

// listen begins that, except where only HTTP is spoken: no server of it does.
func (c *conn) listen(up net.Conn) *early {
	e := &early{up: up, done: make(chan struct{})}
	if c.speaksWeb() {
		close(e.done)
		return e
	}
	ok := c.r.at.do(func() {
		defer close(e.done)
		b := make([]byte, 4<<10)
		for {
			n, err := up.Read(b)
			if n > 0 {
				e.spoke = true
				if _, werr := c.down.Write(b[:n]); werr != nil {
					return
				}
			}
			if err != nil {
				if errors.Is(err, io.EOF) {
					_ = c.down.CloseWrite()
				}
				return
			}
		}
	})
	if !ok {
		close(e.done)
	}
	return e
}

// stop ends listening and reports whether the server has spoken.
func (e *early) stop() bool {
	_ = e.up.SetReadDeadline(time.Unix(1, 0))
	<-e.done
	_ = e.up.SetReadDeadline(time.Time{})
	return e.spoke
}

// relay moves bytes both ways until both have ended: to up what in reads, to the
// sandbox what from does. It returns why in could not be read or passed on.
func (c *conn) relay(up net.Conn, in, from io.Reader) error {
	var back sync.WaitGroup
	back.Go(func() {
		_, err := io.CopyBuffer(onlyWriter{c.down}, onlyReader{from}, make([]byte, copySize))
		if err != nil {
			c.abort()
			return
		}
		_ = c.down.CloseWrite()
	})
	_, err := io.CopyBuffer(onlyWriter{up}, onlyReader{in}, make([]byte, copySize))
	if err != nil {
		c.abort()
	} else if half, ok := up.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	back.Wait()
	return err
}

// onlyReader and onlyWriter keep io.Copy from finding a way of its own.
type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }
