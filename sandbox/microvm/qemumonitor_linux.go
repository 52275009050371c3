// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"net"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// qemuMonitor is one QEMU. It connects to sockets of caisson's: it can make none itself.
type qemuMonitor struct {
	*qemu
	sockets *sockets
	console *console
	network *sandbox.Network // nil without one

	stream, orders, serial, commands *net.UnixConn

	qmp *qmp
	nic *nic

	saved bool          // it was written down before
	stall time.Duration // stallTimeout
}

// connect waits for QEMU at all of the sockets, and greets it.
func (m *qemuMonitor) connect(ctx context.Context, gone <-chan struct{}) (err error) {
	defer m.sockets.close()
	for _, s := range []struct {
		name string
		conn **net.UnixConn
	}{{monitorSocket, &m.commands}, {agentSocket, &m.stream}, {controlSocket, &m.orders}, {consoleSocket, &m.serial}} {
		if *s.conn, err = m.sockets.accept(ctx, s.name, gone); err != nil {
			return err
		}
	}
	m.console.follow(m.serial)
	if m.qmp, err = newQMP(ctx, m.commands); err != nil || m.network == nil {
		return err
	}
	c, err := m.sockets.accept(ctx, networkSocket, gone)
	if err != nil {
		return err
	}
	if m.nic, err = newNIC(m.network, newStream(c)); err != nil {
		c.Close()
	}
	return err
}

// box shows its sockets: in a read-only mount they can be connected to, and nothing be put
// beside them.
func (m *qemuMonitor) box(p *boxPlan, program string) (string, error) {
	return program, p.show(m.sockets.dir, boxSockets, true)
}

func (m *qemuMonitor) channel() net.Conn { return m.stream }
func (m *qemuMonitor) control() net.Conn { return m.orders }

// pause and resume are commands that QEMU takes twice as well as once.
func (m *qemuMonitor) pause(ctx context.Context) error  { return m.qmp.call(ctx, "stop") }
func (m *qemuMonitor) resume(ctx context.Context) error { return m.qmp.call(ctx, "cont") }

// reach has nothing to do: a port is the same in each monitor.
func (m *qemuMonitor) reach(context.Context) error { return nil }

func (m *qemuMonitor) stuck() <-chan struct{} { return m.qmp.stuck }

func (m *qemuMonitor) close() {
	m.sockets.close()
	m.nic.close()
	for _, c := range []*net.UnixConn{m.stream, m.orders, m.serial, m.commands} {
		if c != nil {
			c.Close()
		}
	}
}
