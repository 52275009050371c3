// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Why a session was cut.
var (
	errWasteful = errors.New("the guest agent floods the session with what was not asked for")
	errStrange  = errors.New("the guest agent sends frames that no agent sends")
)

// expected are the kinds of HTTP/2 frames that an agent has a use for: all but
// PRIORITY and PUSH_PROMISE. net/http writes a line to the log for every frame
// of an unknown kind, which would give a sandbox the host's log to fill.
var expected = [...]bool{0: true, 1: true, 3: true, 4: true, 6: true, 7: true, 8: true, 9: true}

// What an agent may send in vain: a burst, and a steady rate per second. A
// stream of empty frames or of interim answers costs the host half a core or
// more, for ever, and net/http has no knob against it; measured, an honest
// agent under load stays below a tenth of this.
const (
	wasteFrames    = 10_000
	maxWasteFrames = 100_000
	wasteBytes     = 8 << 20
	maxWasteBytes  = 16 << 20
	// Honest frames that carry no data acknowledge ours: at most one for so
	// many bytes that we wrote.
	bytesPerAck = 2 << 10
)

// meter is a connection that ends when the other side sends too much that no
// caller gets. It follows HTTP/2's frame headers and pays for each frame and
// byte out of a budget, which grows with time, with the bytes that callers
// read, and with the bytes that we write.
type meter struct {
	net.Conn

	mu            sync.Mutex
	last          time.Time
	frames, bytes float64 // the budget
	header        [9]byte // of the frame that is being read
	have          int     // bytes of header
	left          int     // bytes of payload to come
	err           error
}

func newMeter(c net.Conn) *meter {
	return &meter{Conn: c, last: time.Now(), frames: maxWasteFrames, bytes: maxWasteBytes}
}

// Read implements net.Conn.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	if fault := m.pay(p[:n]); fault != nil {
		m.Conn.Close()
		return 0, fault
	}
	return n, err
}

// Write implements net.Conn.
func (m *meter) Write(p []byte) (int, error) {
	n, err := m.Conn.Write(p)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frames = min(m.frames+float64(n)/bytesPerAck, maxWasteFrames)
	return n, err
}

// pay takes what was read from the budget.
func (m *meter) pay(p []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	passed := now.Sub(m.last).Seconds()
	m.last = now
	m.frames = min(m.frames+passed*wasteFrames, maxWasteFrames)
	m.bytes = min(m.bytes+passed*wasteBytes, maxWasteBytes)

	m.bytes -= float64(len(p))
	for len(p) > 0 {
		if m.left > 0 {
			n := min(m.left, len(p))
			m.left -= n
			p = p[n:]
			continue
		}
		n := copy(m.header[m.have:], p)
		m.have += n
		p = p[n:]
		if m.have == len(m.header) {
			m.have = 0
			m.left = int(m.header[0])<<16 | int(m.header[1])<<8 | int(m.header[2])
			m.frames--
			if k := int(m.header[3]); m.err == nil && (k >= len(expected) || !expected[k]) {
				m.err = errStrange
			}
		}
	}
	if m.err == nil && (m.frames < 0 || m.bytes < 0) {
		m.err = errWasteful
	}
	return m.err
}

// credit gives back what was of use: a caller got n bytes, which are worth
// their frames, however small these were.
func (m *meter) credit(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frames = min(m.frames+float64(n), maxWasteFrames)
	m.bytes = min(m.bytes+float64(n)*1.1, maxWasteBytes) // and their headers
}

// silence is how long nothing has come.
func (m *meter) silence() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.last)
}

// cut ends the connection, for a reason.
func (m *meter) cut(why error) {
	m.mu.Lock()
	if m.err == nil {
		m.err = why
	}
	m.mu.Unlock()
	m.Conn.Close()
}

func (m *meter) fault() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// credited is an answer's body. What is read from it is of use.
type credited struct {
	io.ReadCloser
	meter *meter
}

func (c *credited) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.meter.credit(n)
	return n, err
}
