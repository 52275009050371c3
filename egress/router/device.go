// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Device is a wire that is handed over later: over a socket the descriptor of a
// TUN device comes, once, which is read and written from then on. Until then
// reading waits, and nothing is written, because nothing asks.
type Device struct {
	mu     sync.Mutex
	over   *net.UnixConn // nil once the device is here
	device *os.File
	closed bool
}

// NewDevice takes over the socket f, which it closes. It takes nothing off it: the
// owner, who looks whether a device lies there, may not have done so yet.
func NewDevice(f *os.File) (*Device, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	over, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("a device comes over a Unix socket only")
	}
	return &Device{over: over}, nil
}

// Look takes a device that lies on the socket already, so that it is the wire from the
// start. It is called once, when the owner has said that packets are to be read, and
// before that is done.
func (d *Device) Look() error {
	if !pending(d.over) {
		return nil
	}
	f, err := receive(d.over)
	if err != nil {
		return err
	}
	_, err = d.take(f)
	return err
}

// pending reports whether something lies on a socket.
func pending(c *net.UnixConn) (yes bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		yes = err == nil && n > 0
	})
	return yes && err == nil
}

// Read reads one packet, with its header. It is called by one goroutine.
func (d *Device) Read(b []byte) (int, error) {
	d.mu.Lock()
	device, over := d.device, d.over
	d.mu.Unlock()
	if device == nil {
		f, err := receive(over)
		if err != nil {
			return 0, err
		}
		if device, err = d.take(f); err != nil {
			return 0, err
		}
	}
	return device.Read(b)
}

// take puts the device in the socket's place.
func (d *Device) take(f *os.File) (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		f.Close()
		return nil, os.ErrClosed
	}
	d.over.Close()
	d.over, d.device = nil, f
	return f, nil
}

// receive waits for a descriptor. What else comes is closed.
func receive(over *net.UnixConn) (*os.File, error) {
	text, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, flags, _, err := over.ReadMsgUnix(text, control)
	if err != nil {
		return nil, err
	}
	var fds []int
	messages, err := unix.ParseSocketControlMessage(control[:n])
	for i := range messages {
		if more, rerr := unix.ParseUnixRights(&messages[i]); rerr == nil {
			fds = append(fds, more...)
		}
	}
	if err == nil && len(fds) == 1 && flags&unix.MSG_CTRUNC == 0 {
		if err = unix.SetNonblock(fds[0], true); err == nil {
			return os.NewFile(uintptr(fds[0]), "device"), nil
		}
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return nil, fmt.Errorf("not a device came over the socket, but %d descriptors (%v)", len(fds), err)
}

// Write writes one packet, with its header.
func (d *Device) Write(b []byte) (int, error) {
	d.mu.Lock()
	device := d.device
	d.mu.Unlock()
	if device == nil {
		return 0, os.ErrClosed
	}
	return device.Write(b)
}

// SetReadDeadline is the device's. Before it is here there is nothing to read.
func (d *Device) SetReadDeadline(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.device == nil {
		return os.ErrNoDeadline
	}
	return d.device.SetReadDeadline(t)
}

// SyscallConn is the device's.
func (d *Device) SyscallConn() (syscall.RawConn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.device == nil {
		return nil, os.ErrClosed
	}
	return d.device.SyscallConn()
}

// Close closes what is open and wakes who reads.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.device != nil {
		return d.device.Close()
	}
	return d.over.Close()
}
