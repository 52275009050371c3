// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// gift is a socket over which a monitor's box gives caisson one descriptor: before the
// monitor runs, so it is the process level's word.
type gift struct {
	theirs *os.File
	ours   *net.UnixConn
}

func newGift() (*gift, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs, ours := os.NewFile(uintptr(fds[0]), "gift"), os.NewFile(uintptr(fds[1]), "gift")
	c, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		theirs.Close()
		return nil, err
	}
	return &gift{theirs: theirs, ours: c.(*net.UnixConn)}, nil
}

// take waits for it. The descriptor is the caller's.
func (g *gift) take(ctx context.Context) (int, error) {
	stop := context.AfterFunc(ctx, func() { _ = g.ours.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := g.ours.ReadMsgUnix(make([]byte, 1), control)
	if err != nil {
		return -1, fmt.Errorf("the box of the machine monitor: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err == nil && len(messages) == 1 {
		var fds []int
		if fds, err = unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return -1, errors.Join(errors.New("the box of the machine monitor gave nothing"), err)
}

func (g *gift) close() {
	if g == nil {
		return
	}
	g.theirs.Close()
	g.ours.Close()
}
