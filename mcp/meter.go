// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"

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
