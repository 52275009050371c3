// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// qmp speaks QMP, QEMU's protocol for its owner
// (https://www.qemu.org/docs/master/interop/qmp-spec.html): lines of JSON. QEMU may be in
// the hands of code that broke out of its machine: what it says is bounded, and believed
// in nothing that protects the host.
type qmp struct {
	conn    net.Conn
	turn    chan struct{}  // one command at a time
	answers chan qmpAnswer // of a few commands that were given up, too
	last    int            // the number of the last command; of who has the turn
}

type qmpAnswer struct {
	ID    int `json:"id"`
	Error *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	Event string          `json:"event"`
	QMP   json.RawMessage `json:"QMP"`
}

const (
	maxQMPLine = 1 << 20
	maxAnswers = 16
	qmpTimeout = 30 * time.Second
)

// newQMP greets QEMU. The caller closes conn, which ends it.
func newQMP(ctx context.Context, conn net.Conn) (*qmp, error) {
	m := &qmp{conn: conn, turn: make(chan struct{}, 1), answers: make(chan qmpAnswer, maxAnswers)}
	go m.read()
	return m, m.call(ctx, "qmp_capabilities")
}

// read hands out answers until the connection ends. Nothing waits for events.
func (m *qmp) read() {
	defer close(m.answers)
	lines := bufio.NewScanner(m.conn)
	lines.Buffer(make([]byte, 0, 4<<10), maxQMPLine)
	for lines.Scan() {
		var a qmpAnswer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			return
		}
		if a.QMP != nil || a.Event != "" {
			continue
		}
		select {
		case m.answers <- a:
		default:
			return // more answers than questions
		}
	}
}

var errMonitorGone = errors.New("the machine monitor has ended")

// call runs one command and waits until it was done. When ctx ends first it may still be
// done later.
func (m *qmp) call(ctx context.Context, command string) error {
	ctx, cancel := context.WithTimeout(ctx, qmpTimeout)
	defer cancel()
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", command, context.Cause(ctx))
	}
	m.last++
	b, err := json.Marshal(map[string]any{"execute": command, "id": m.last})
	if err != nil {
		return err
	}
	if err := m.conn.SetWriteDeadline(time.Now().Add(qmpTimeout)); err != nil {
		return err
	}
	if _, err := m.conn.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	for {
		select {
		case a, ok := <-m.answers:
			switch {
			case !ok:
				return fmt.Errorf("%s: %w", command, errMonitorGone)
			case a.ID != m.last: // of a command that was given up
			case a.Error != nil:
				return fmt.Errorf("%s: QEMU says %q", command, a.Error.Desc)
			default:
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", command, context.Cause(ctx))
		}
	}
}
