// SPDX-License-Identifier: Apache-2.0

//go:build linux

package boot

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// On this host's own kernel: the ports are those that are said, and who calls from the
// same machine is hung up.
func TestVsock(t *testing.T) {
	for _, name := range []string{Port, ControlPort} {
		port, _, err := openVsock(name)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			t.Skip("this host has no vsock")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer port.Close()
		at := unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: VsockPorts()[name]}
		if err := unix.Bind(vsock(t), &at); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%s: the port %d is free: %v", name, at.Port, err)
		}
	}
	c, at := vsock(t), unix.SockaddrVM{CID: unix.VMADDR_CID_LOCAL, Port: VsockPorts()[Port]}
	if err := unix.Connect(c, &at); err != nil {
		t.Logf("this host has no vsock to itself: %v", err)
		return
	}
	if n, err := unix.Read(c, make([]byte, 1)); n > 0 || errors.Is(err, unix.EAGAIN) {
		t.Errorf("a caller from the same machine is let in: %d, %v", n, err)
	}
}

func vsock(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(os.NewSyscallError("socket", err))
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}); err != nil {
		t.Fatal(os.NewSyscallError("setsockopt", err))
	}
	return fd
}
