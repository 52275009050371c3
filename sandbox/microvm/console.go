// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/guest/agent"
)

// consoleTail is how much of a machine's console is kept, in bytes.
const consoleTail = 16 << 10

// console keeps the end of what a machine writes to its serial line: the kernel's last
// words, and the agent's log.
type console struct {
	mu   sync.Mutex
	tail []byte
	oom  chan struct{} // closed when the agent has said that the memory limit has killed something
	said bool

	serial *net.UnixConn // where it is read from; nil where it is written here
	heard  chan struct{} // closed when its end was read
}

func newConsole() *console { return &console{oom: make(chan struct{})} }

// follow reads a machine's serial line to its end.
func (c *console) follow(serial *net.UnixConn) {
	c.serial, c.heard = serial, make(chan struct{})
	go func() {
		defer close(c.heard)
		_, _ = io.Copy(c, serial)
	}()
}

// wait returns when the end of what is followed was read.
func (c *console) wait() {
	if c.heard != nil {
		<-c.heard
	}
}

// Write implements io.Writer.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := max(len(c.tail)-len(agent.OOMLine)-4, 0)
	c.tail = append(c.tail, p...)
	if !c.said && bytes.Contains(c.tail[from:], []byte("\n"+agent.OOMLine+"\r\n")) {
		c.said = true
		close(c.oom)
	}
	if n := len(c.tail) - consoleTail; n > consoleTail {
		c.tail = append(c.tail[:0], c.tail[n:]...)
	}
	return len(p), nil
}

// lastLines are the end of it, harmless for a terminal.
func (c *console) lastLines(n int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r < ' ' || r >= 0x7f && r < 0xa0 || r == '\uFFFD':
			return -1
		}
		return r
	}, string(c.tail))), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// panicked says whether the guest's kernel has ended itself.
func (c *console) panicked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.tail, []byte("Kernel panic"))
}
