// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/caisson-run/caisson/guest/wire"
)

// Numbers of vsock(7).
const (
	familyVsock = 40
	anyCID      = 1<<32 - 1
	hostCID     = 2
)

// vsockAddress is struct sockaddr_vm of linux/vm_sockets.h.
type vsockAddress struct {
	family uint16
	_      uint16
	port   uint32
	cid    uint32
	_      [4]byte
}

// openVsock listens for the host where a port would be, and returns what stands for it: the end of a pair
// whose other end is carried over whatever connection the host has. While there is one no other is accepted, and code inside
// can fill the queue of those that wait: the host tries again until its time is over, and
// those of others are closed one by one then.
func openVsock(name string) (*os.File, *wire.Carrier, error) {
	fd, err := syscall.Socket(familyVsock, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("this kernel has no vsock: %w", err)
	}
	at := vsockAddress{family: familyVsock, port: VsockPorts()[name], cid: anyCID}
	if _, _, e := syscall.Syscall(syscall.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&at)), unsafe.Sizeof(at)); e != 0 {
		return nil, nil, fmt.Errorf("listen for the host: %w", e)
	}
	if err := syscall.Listen(fd, 1); err != nil {
		return nil, nil, fmt.Errorf("listen for the host: %w", err)
	}
	port, inner, err := pair()
	if err != nil {
		return nil, nil, err
	}
	c := wire.NewCarrier(inner)
	go carry(c, func() (*os.File, uint32, error) { return acceptVsock(fd) })
	return port, c, nil
}

// pair are two ends of a stream: the first blocks, as a port does.
func pair() (port, inner *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := syscall.SetNonblock(fds[1], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "port"), os.NewFile(uintptr(fds[1]), "channel"), nil
}

// acceptVsock waits for a connection, and says whose it is.
func acceptVsock(fd int) (*os.File, uint32, error) {
	var from vsockAddress
	size := uint32(unsafe.Sizeof(from))
	c, _, e := syscall.Syscall6(syscall.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size)), syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0, 0)
	if e != 0 {
		return nil, 0, e
	}
	return os.NewFile(c, "vsock"), from.cid, nil
}

// carry carries a stream over the host's connections, one after the other. Others than the
// host's, from inside the machine, are not let in.
func carry(c *wire.Carrier, accept func() (*os.File, uint32, error)) {
	for c.Together() {
		conn, cid, err := accept()
		switch {
		case errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.ECONNABORTED):
			continue
		case err != nil:
			fmt.Fprintln(os.Stderr, "caisson: the host cannot connect:", err)
			return
		case cid != hostCID:
			conn.Close()
			continue
		}
		if !c.Join(conn) {
			return
		}
	}
}
