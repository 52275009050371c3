// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// RoundTripHTTP2 sends one request to a program that listens on a port of the
// sandbox and speaks HTTP/2 without TLS, from the first byte on: gRPC servers do.
// Request and answer go in both directions at once, trailers included.
//
// Each request has a connection of its own, which ends with the answer's body: a
// program that floods it unasked (see meter) breaks that one off, and no other. A
// port that nothing listens on gives ErrNotFound; one that answers in anything
// else fails. ctx is r's; it bounds all of it.
func (c *Client) RoundTripHTTP2(port uint16, r *http.Request) (*http.Response, error) {
	conn, err := c.DialPort(r.Context(), port)
	if err != nil {
		return nil, err
	}
	o := c.options
	o.PingTimeout = portTimeout
	session, m, err := speak(conn, o)
	if err != nil {
		return nil, err
	}
	end := sync.OnceFunc(func() { session.Close(); m.Close() })
	// A program may leave the request unread for as long as it likes.
	stop := context.AfterFunc(r.Context(), end)
	resp, err := session.RoundTrip(r)
	if err != nil {
		stop()
		end()
		if fault := m.fault(); fault != nil {
			err = fault
		}
		return nil, err
	}
	resp.Body = &ending{ReadCloser: &credited{ReadCloser: resp.Body, meter: m}, end: func() { stop(); end() }}
	return resp, nil
}

// portTimeout is how long a program may take nothing of a request: it is no agent,
// whose whole work is to answer. One that takes it and does not answer is waited for
// as long as its caller likes, as one that speaks HTTP/1.1.
const portTimeout = time.Minute

// ending is a body with which something else ends.
type ending struct {
	io.ReadCloser
	end func()
}

func (e *ending) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}
