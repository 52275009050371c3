// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// sockets are where QEMU connects to.
type sockets struct {
	dir       string
	listeners map[string]*net.UnixListener
}

// The sockets, in the order in which QEMU opens them.
const (
	monitorSocket = "qmp"
	agentSocket   = "agent"
	controlSocket = "control"
	consoleSocket = "console"
	networkSocket = "net"
)

// listen makes the sockets of a machine in their directory. A socket's name may have
// 107 bytes (unix(7)), a state directory's more.
func listen(at string, network bool) (*sockets, error) {
	s := &sockets{dir: at, listeners: map[string]*net.UnixListener{}}
	dir, err := os.Open(s.dir)
	if err != nil {
		return nil, unkept(err)
	}
	defer dir.Close()
	names := []string{monitorSocket, agentSocket, controlSocket, consoleSocket}
	if network {
		names = append(names, networkSocket)
	}
	for _, name := range names {
		short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		if err == nil {
			l.SetUnlinkOnClose(false) // with the directory
			s.listeners[name] = l
			err = os.Chmod(filepath.Join(s.dir, name), 0o666) // who may enter the directory
		}
		if err != nil {
			s.close()
			return nil, unkept(err)
		}
	}
	return s, nil
}

func (s *sockets) close() {
	for _, l := range s.listeners {
		l.Close()
	}
}

// accept waits for the monitor at one of them.
func (s *sockets) accept(ctx context.Context, name string, gone <-chan struct{}) (*net.UnixConn, error) {
	l := s.listeners[name]
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-gone:
			cancel(errMonitorGone)
		case <-ctx.Done():
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := l.AcceptUnix()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return c, err
}
