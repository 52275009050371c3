// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// established is the state of a connection that neither end has closed (TCP_ESTABLISHED
// in include/net/tcp_states.h).
const established = 1

// over reports whether the far end has closed a connection of ours. The kernel is
// asked: what came before the end may lie there unread.
func over(c net.Conn) bool {
	if m, ok := c.(*metered); ok {
		c = m.Conn
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	var info *unix.TCPInfo
	cerr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return cerr != nil || err == nil && info.State != established
}
