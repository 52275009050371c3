// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// monitor speaks QMP, QEMU's protocol for its owner
// (https://www.qemu.org/docs/master/interop/qmp-spec.html): lines of JSON. QEMU may be in
// the hands of code that broke out of its machine: what it says is bounded, and believed
// in nothing that protects the host.
type monitor struct {
	conn net.Conn

	mu      sync.Mutex // one command at a time
	answers chan qmpAnswer
	events  chan string // names; those that are not read in time are dropped
}

type qmpAnswer struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string          `json:"event"`
	QMP   json.RawMessage `json:"QMP"`
}

const (
	maxQMPLine = 1 << 20
	qmpTimeout = 30 * time.Second
)

// newMonitor greets QEMU. The caller closes conn, which ends the monitor.
func newMonitor(ctx context.Context, conn net.Conn) (*monitor, error) {
	m := &monitor{conn: conn, answers: make(chan qmpAnswer, 1), events: make(chan string, 16)}
	go m.read()
	if _, err := m.call(ctx, "qmp_capabilities", nil); err != nil {
		return nil, err
	}
	return m, nil
}

// read hands out answers and events until the connection ends.
func (m *monitor) read() {
	defer close(m.answers)
	lines := bufio.NewScanner(m.conn)
	lines.Buffer(make([]byte, 0, 4<<10), maxQMPLine)
	for lines.Scan() {
		var a qmpAnswer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			return
		}
		switch {
		case a.QMP != nil: // the greeting
		case a.Event != "":
			select {
			case m.events <- a.Event:
			default:
			}
		default:
			select {
			case m.answers <- a:
			default:
				return // more answers than questions
			}
		}
	}
}

var errMonitorGone = errors.New("the machine monitor has ended")

// call runs one command and waits for its answer.
func (m *monitor) call(ctx context.Context, command string, arguments map[string]any) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, qmpTimeout)
	defer cancel()
	q := map[string]any{"execute": command}
	if arguments != nil {
		q["arguments"] = arguments
	}
	b, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	if err := m.conn.SetWriteDeadline(time.Now().Add(qmpTimeout)); err != nil {
		return nil, err
	}
	if _, err := m.conn.Write(append(b, '\n')); err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	select {
	case a, ok := <-m.answers:
		switch {
		case !ok:
			return nil, fmt.Errorf("%s: %w", command, errMonitorGone)
		case a.Error != nil:
			return nil, fmt.Errorf("%s: QEMU says %q", command, a.Error.Desc)
		}
		return a.Return, nil
	case <-ctx.Done():
		// An answer that comes late would be the next question's.
		m.conn.Close()
		return nil, fmt.Errorf("%s: %w", command, context.Cause(ctx))
	}
}
