// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
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
	stuck   chan struct{}  // closed when QEMU has stopped the machine, as a disk cannot be written to
}

type qmpAnswer struct {
	ID    int `json:"id"`
	Error *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	Return json.RawMessage `json:"return"`
	Event  string          `json:"event"`
	Data   struct {
		Action string `json:"action"` // of BLOCK_IO_ERROR
	} `json:"data"`
	QMP json.RawMessage `json:"QMP"`
}

const (
	maxQMPLine = 1 << 20
	maxAnswers = 16
	qmpTimeout = 30 * time.Second
)

// newQMP greets QEMU. The caller closes conn, which ends it.
func newQMP(ctx context.Context, conn net.Conn) (*qmp, error) {
	m := &qmp{conn: conn, turn: make(chan struct{}, 1), answers: make(chan qmpAnswer, maxAnswers), stuck: make(chan struct{})}
	go m.read()
	return m, m.call(ctx, "qmp_capabilities")
}

// read hands out answers until the connection ends. Of events one counts.
func (m *qmp) read() {
	defer close(m.answers)
	stuck := false
	lines := bufio.NewScanner(m.conn)
	lines.Buffer(make([]byte, 0, 4<<10), maxQMPLine)
	for lines.Scan() {
		var a qmpAnswer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			return
		}
		if a.Event == "BLOCK_IO_ERROR" && a.Data.Action == "stop" && !stuck {
			stuck = true
			close(m.stuck)
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

// call runs a command that takes nothing and returns nothing.
func (m *qmp) call(ctx context.Context, command string) error {
	_, err := m.ask(ctx, command, nil, nil)
	return err
}

// ask runs one command and waits until it was done. When ctx ends first it may still be
// done later. A file goes with it to QEMU; the connection is a socket then.
func (m *qmp) ask(ctx context.Context, command string, arguments map[string]any, file *os.File) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, qmpTimeout)
	defer cancel()
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", command, context.Cause(ctx))
	}
	m.last++
	line := map[string]any{"execute": command, "id": m.last}
	if arguments != nil {
		line["arguments"] = arguments
	}
	err := m.send(line, file)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		err = errMonitorGone // which may be seen here first
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	for {
		select {
		case a, ok := <-m.answers:
			switch {
			case !ok:
				return nil, fmt.Errorf("%s: %w", command, errMonitorGone)
			case a.ID != m.last: // of a command that was given up
			case a.Error != nil:
				return nil, fmt.Errorf("%s: QEMU says %s", command, said(a.Error.Desc))
			default:
				return a.Return, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w", command, context.Cause(ctx))
		}
	}
}

func (m *qmp) send(line map[string]any, file *os.File) error {
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if err := m.conn.SetWriteDeadline(time.Now().Add(qmpTimeout)); err != nil {
		return err
	}
	b = append(b, '\n')
	if file == nil {
		_, err = m.conn.Write(b)
		return err
	}
	conn, ok := m.conn.(*net.UnixConn)
	if !ok {
		return errors.New("a file cannot go this way")
	}
	// The bytes that it goes with are few enough to be sent at once.
	_, _, err = conn.WriteMsgUnix(b, syscall.UnixRights(int(file.Fd())), nil)
	return err
}
