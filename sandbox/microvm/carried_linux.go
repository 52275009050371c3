// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/guest/wire"
)

// carried is a stream to the machine that goes on over other connections than its first.
type carried struct {
	*wire.Carrier
	ours net.Conn // the end that is caisson's
}

func newCarried() (*carried, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "stream")
		c, cerr := net.FileConn(f)
		f.Close()
		if ends[i] = c; cerr != nil {
			err = cerr
		}
	}
	if err != nil {
		for _, c := range ends {
			if c != nil {
				c.Close()
			}
		}
		return nil, err
	}
	return &carried{wire.NewCarrier(ends[0]), ends[1]}, nil
}

func (c *carried) close() {
	if c != nil {
		c.ours.Close()
		c.Carrier.Close()
	}
}

// join connects a stream to its port of the machine's, and carries it from there on. It ends
// with a connection that ends without that both sides have parted.
func (m *firecrackerMonitor) join(ctx context.Context, c *carried, port string) error {
	conn, err := m.dial(ctx, boot.VsockPorts()[port])
	if err != nil {
		return err
	}
	c.Meet()
	if !c.Begin(conn) {
		return errors.New("the stream to the machine has ended")
	}
	m.tasks.Go(func() {
		if more, parted := c.Carry(conn); more && !parted {
			c.Carrier.Close()
		}
	})
	return nil
}
