// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// wire is a way to the other end of two streams of lines. The library's own ends at the
// first line that it does not understand, which one word of a library that prints to
// standard output is.
type wire struct {
	in  io.ReadCloser
	out io.WriteCloser
	// odd is told of a line that is no message, or nil for one that was too long, and says
	// what is answered, if anything, and whether that is the end.
	odd func(one []byte, why error) (answer []byte, end error)
}

// Connect connects.
func (w wire) Connect(context.Context) (sdk.Connection, error) {
	c := &wireConn{wire: w, came: make(chan came), closed: make(chan struct{})}
	go c.read()
	return c, nil
}

type came struct {
	message jsonrpc.Message
	err     error
}

type wireConn struct {
	wire
	came    chan came
	writing sync.Mutex

	once   sync.Once
	closed chan struct{}
	err    error
}

// read reads until the stream ends; it may be held by a stream that Close does not end,
// as standard input is.
func (c *wireConn) read() {
	for l := newLines(c.in); ; {
		one, err := l.next()
		if err != nil && !errors.Is(err, errLong) && !errors.Is(err, errMuch) {
			c.pass(came{err: err})
			return
		}
		if !c.take(one, err) {
			return
		}
	}
}

// take passes on what a line says; false is that nothing more is wanted.
func (c *wireConn) take(one []byte, why error) bool {
	var messages []jsonrpc.Message
	if why == nil {
		messages, why = parse(one)
	}
	for _, m := range messages {
		if !c.pass(came{message: m}) {
			return false
		}
	}
	if why == nil {
		return true
	}
	answer, err := c.odd(one, why)
	if err == nil && answer != nil {
		err = c.write(answer)
	}
	return err == nil || c.pass(came{err: err}) && false
}

func (c *wireConn) pass(one came) bool {
	select {
	case c.came <- one:
		return true
	case <-c.closed:
		return false
	}
}

// Read reads the next message.
func (c *wireConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case one := <-c.came:
		return one.message, one.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closed:
		return nil, io.EOF
	}
}

// Write writes a message.
func (c *wireConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	return c.write(b)
}

func (c *wireConn) write(one []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.out.Write(append(one, '\n'))
	return err
}

// Close ends both streams.
func (c *wireConn) Close() error {
	c.once.Do(func() {
		c.err = errors.Join(c.in.Close(), c.out.Close())
		close(c.closed)
	})
	return c.err
}

// SessionID is none: there is one session.
func (c *wireConn) SessionID() string { return "" }
