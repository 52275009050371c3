// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How much a server may say, beyond which it waits until it may go on.
const (
	messagesPerSecond = 500
	messagesAtOnce    = 2000
	bytesPerSecond    = 32 << 20
	bytesAtOnce       = 64 << 20
)

// meter reads what a server says no faster than it may say it: the server's
// writes wait, and nothing is kept here.
type meter struct {
	io.ReadCloser
	messages, bytes *rate.Limiter
	over            context.Context
	close           context.CancelFunc
}

func newMeter(r io.ReadCloser) *meter {
	m := &meter{ReadCloser: r, messages: rate.NewLimiter(messagesPerSecond, messagesAtOnce), bytes: rate.NewLimiter(bytesPerSecond, bytesAtOnce)}
	m.over, m.close = context.WithCancel(context.Background())
	return m
}

// Read reads at most as many lines as may come at once.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p[:min(len(p), messagesAtOnce)])
	if werr := m.messages.WaitN(m.over, bytes.Count(p[:n], []byte{'\n'})); werr != nil && err == nil {
		err = io.ErrClosedPipe
	}
	if werr := m.bytes.WaitN(m.over, n); werr != nil && err == nil {
		err = io.ErrClosedPipe
	}
	return n, err
}

// Close ends a Read that waits, too.
func (m *meter) Close() error {
	m.close()
	return m.ReadCloser.Close()
}

// heard is the way to a server, which may leave unread what it is told for so long: the
// library waits for it, beyond the time of any call, and with it everybody who calls.
type heard struct {
	*io.PipeWriter
	timeout time.Duration
	deaf    func() // it has read nothing
}

// errDeaf is why a server is ended that does not read.
var errDeaf = errors.New("it does not read what it is told")

// heardAtOnce is how much of a message is to be read in that time, in bytes.
const heardAtOnce = 64 << 10

func (h *heard) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		late := time.AfterFunc(h.timeout, func() {
			h.CloseWithError(errDeaf)
			h.deaf()
		})
		var m int
		m, err = h.PipeWriter.Write(p[:min(len(p), heardAtOnce)])
		if !late.Stop() && err != nil {
			err = errDeaf
		}
		n, p = n+m, p[m:]
	}
	return n, err
}

// complaints passes a server's standard error on, line by line, plain and no
// more than a person can read.
type complaints struct {
	name string
	to   func(string)

	mu   sync.Mutex
	part []byte
	pace *rate.Limiter
	lost int
}

const maxComplaint = 4 << 10

func (c *complaints) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pace == nil {
		c.pace = rate.NewLimiter(20, 200)
	}
	for rest := p; len(rest) > 0; {
		one, after, whole := bytes.Cut(rest, []byte{'\n'})
		c.part = append(c.part, one[:min(len(one), maxComplaint-len(c.part))]...)
		if rest = after; whole {
			c.tell()
		}
	}
	return len(p), nil
}

func (c *complaints) tell() {
	text := strings.TrimSpace(line(string(c.part), maxComplaint))
	c.part = c.part[:0]
	if text == "" || c.to == nil {
		return
	}
	if !c.pace.Allow() {
		if c.lost++; c.lost == 1 {
			c.to("server " + c.name + ": it says more than is shown")
		}
		return
	}
	c.lost = 0
	c.to("[" + c.name + "] " + text)
}
