// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"github.com/caisson-run/caisson/guest/wire"
)

// carriedPort is openVsock over a port, for ChannelPorts.
func carriedPort(name string) (*os.File, *wire.Carrier, error) {
	port, inner, err := pair()
	if err != nil {
		return nil, nil, err
	}
	c := wire.NewCarrier(inner)
	go carry(c, func() (*os.File, uint32, error) {
		f, err := acceptPort(name)
		return f, hostCID, err
	})
	return port, c, nil
}

// pollHangUp is POLLHUP of poll(2): the host has not opened its end of a port.
const pollHangUp = 0x10

// acceptPort opens a port and waits until the host has, too.
func acceptPort(name string) (*os.File, error) {
	f, err := openPort(name, syscall.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	for alone := true; alone; {
		err := raw.Control(func(fd uintptr) {
			at := struct { // struct pollfd
				fd              int32
				events, revents int16
			}{fd: int32(fd)}
			var now syscall.Timespec
			_, _, e := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&at)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
			alone = e != 0 || at.revents&pollHangUp != 0
		})
		if err != nil {
			return nil, err
		}
		if alone {
			time.Sleep(devicePause)
		}
	}
	return f, nil
}
