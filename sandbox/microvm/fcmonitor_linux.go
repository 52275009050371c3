// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/internal/linux/tun"
	"github.com/caisson-run/caisson/sandbox"
)

// firecrackerMonitor is one Firecracker. It makes its sockets itself, in a directory that
// its box gives to caisson.
type firecrackerMonitor struct {
	*firecracker
	machine *machine
	console *console
	network *sandbox.Network // nil without one

	place, card *gift
	dir         *os.File // of its sockets
	api         *fcAPI
	nic         *nic

	agent, orders *carried
	writes        bool     // it may be asked to write its machine down
	memory        *os.File // where to, with writes

	// What the machine was parted from, and has to be connected to anew: its agent, and its
	// first process. Of who pauses it.
	parted, cut bool

	life  context.Context // until the monitor has ended, or is closed
	end   context.CancelCauseFunc
	tasks sync.WaitGroup
}

// fcPause is how often it is looked whether Firecracker listens, or the machine.
const fcPause = 10 * time.Millisecond

// connect has Firecracker make its machine, and waits until that listens.
func (m *firecrackerMonitor) connect(ctx context.Context, gone <-chan struct{}) error {
	m.tasks.Go(func() {
		select {
		case <-gone:
			m.end(errMonitorGone)
		case <-m.life.Done():
		}
	})
	ctx, cancel := m.alive(ctx)
	defer cancel()
	err := m.begin(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// alive is ctx until the monitor has ended.
func (m *firecrackerMonitor) alive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(m.life, func() { cancel(context.Cause(m.life)) })
	return ctx, func() { stop(); cancel(nil) }
}

func (m *firecrackerMonitor) begin(ctx context.Context) (err error) {
	if m.network != nil { // the box's first
		if err := m.plug(ctx); err != nil {
			return err
		}
	}
	dir, err := m.place.take(ctx)
	if err != nil {
		return err
	}
	m.dir = os.NewFile(uintptr(dir), "sockets")
	m.api = newFCAPI(func(ctx context.Context) (net.Conn, error) { return dialIn(ctx, m.dir, fcSocket) })
	if m.machine.incoming {
		return m.api.greet(ctx)
	}
	if err := m.api.start(ctx, m.machine); err != nil {
		return err
	}
	if err := m.join(ctx, m.agent, boot.Port); err != nil {
		return err
	}
	return m.join(ctx, m.orders, boot.ControlPort)
}

// greet waits until Firecracker listens, and looks whether it is one that will do.
func (a *fcAPI) greet(ctx context.Context) error {
	return again(ctx, func() error { return a.checkVersion(ctx) })
}

// start makes a machine and has it boot, once Firecracker listens.
func (a *fcAPI) start(ctx context.Context, m *machine) error {
	err := a.greet(ctx)
	for _, r := range requests(m) {
		if err != nil {
			return err
		}
		err = a.put(ctx, r.path, r.body)
	}
	return err
}

// again tries until it is no longer too early.
func again(ctx context.Context, try func() error) error {
	for {
		err := try()
		if !errors.Is(err, errNotThere) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(fcPause):
		}
	}
}

// plug makes the machine's network card the router's wire.
func (m *firecrackerMonitor) plug(ctx context.Context) error {
	fd, err := m.card.take(ctx)
	if err != nil {
		return err
	}
	if err := tun.Frames(fd); err != nil {
		unix.Close(fd)
		return fmt.Errorf("the machine's network card: %w", err)
	}
	card := os.NewFile(uintptr(fd), "card") // it does not block, so that close ends a read
	if m.nic, err = newNIC(m.network, messages{card}); err != nil {
		card.Close()
	}
	return err
}

// dialIn connects to a socket in a directory that is the monitor's: to what has the name
// itself, where that is a socket.
func dialIn(ctx context.Context, dir *os.File, name string) (net.Conn, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, errNotThere
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("the machine monitor's %s is no socket: %w", name, err)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
	if errors.Is(err, unix.ECONNREFUSED) { // bound, and does not listen
		return nil, errNotThere
	}
	return c, err
}

// dial connects to a port of the machine's, once something listens there.
func (m *firecrackerMonitor) dial(ctx context.Context, port uint32) (c net.Conn, err error) {
	err = again(ctx, func() error {
		if c, err = dialIn(ctx, m.dir, fcStreams); err != nil {
			return err
		}
		if err := callPort(ctx, c, port); err != nil {
			c.Close()
			return err
		}
		return nil
	})
	return c, err
}

const (
	callTimeout = 30 * time.Second // Firecracker waits 2 s for a machine
	maxCalled   = 32               // bytes of its answer
)

// callPort asks Firecracker for a port of the machine's (docs/vsock.md of its sources). It
// hangs up where nothing listens yet.
func callPort(ctx context.Context, c net.Conn, port uint32) error {
	_ = c.SetDeadline(time.Now().Add(callTimeout))
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintf(c, "CONNECT %d\n", port); err != nil {
		return errNotThere
	}
	var line []byte
	for one := make([]byte, 1); ; {
		n, err := c.Read(one)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case n == 0 && (errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrDeadlineExceeded)):
			return errNotThere
		case n == 0 && err != nil:
			return err
		}
		if line = append(line, one[:n]...); one[0] == '\n' {
			break
		}
		if len(line) > maxCalled {
			return errors.New("the way to the machine answers nonsense")
		}
	}
	if !strings.HasPrefix(string(line), "OK ") {
		return errors.New("the way to the machine answers nonsense")
	}
	if !stop() {
		return context.Cause(ctx)
	}
	return c.SetDeadline(time.Time{})
}

func (m *firecrackerMonitor) channel() net.Conn { return m.agent.ours }
func (m *firecrackerMonitor) control() net.Conn { return m.orders.ours }

func (m *firecrackerMonitor) close() {
	m.end(net.ErrClosed)
	m.agent.close()
	m.orders.close()
	m.tasks.Wait()
	m.nic.close()
	if m.api != nil {
		m.api.close()
	}
	m.place.close()
	m.card.close()
	if m.dir != nil {
		m.dir.Close()
	}
}

// stuck is never told: the guest gets an error of its disk instead.
func (m *firecrackerMonitor) stuck() <-chan struct{} { return nil }
