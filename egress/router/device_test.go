// SPDX-License-Identifier: Apache-2.0

package router

import (
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// sockets are the two ends over which a device is handed over.
func sockets(t *testing.T) (_ *Device, over int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDevice(os.NewFile(uintptr(fds[0]), "wire"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, fds[1]
}

// What comes over the socket is read and written from then on.
func TestDevice(t *testing.T) {
	d, over := sockets(t)
	defer unix.Close(over)
	if _, err := d.Write([]byte("early")); err == nil {
		t.Error("something was written before there was a device")
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	if err := unix.Sendmsg(over, []byte{0}, unix.UnixRights(fds[0]), nil, 0); err != nil {
		t.Fatal(err)
	}
	unix.Close(fds[0])
	if _, err := unix.Write(fds[1], []byte("packet")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if n, err := d.Read(b); err != nil || string(b[:n]) != "packet" {
		t.Fatalf("%q, %v", b[:n], err)
	}
	if _, err := d.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(fds[1], b); err != nil || string(b[:n]) != "answer" {
		t.Fatalf("%q, %v", b[:n], err)
	}
	// A close wakes who reads, and lets go of the device.
	ended := make(chan error, 1)
	go func() { _, err := d.Read(b); ended <- err }()
	d.Close()
	if err := <-ended; err == nil {
		t.Error("reading went on after the close")
	}
	if n, err := unix.Read(fds[1], b); n != 0 || err != nil {
		t.Errorf("the device is still held: %d, %v", n, err)
	}
}

// Until the owner has said so a device is left where the owner looks for it.
func TestDeviceIsLeft(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	look, err := unix.Dup(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(look)
	if err := unix.Sendmsg(fds[1], []byte{0}, unix.UnixRights(fds[1]), nil, 0); err != nil {
		t.Fatal(err)
	}
	d, err := NewDevice(os.NewFile(uintptr(fds[0]), "wire"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	lies := func() bool {
		n, _, err := unix.Recvfrom(look, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return n == 1 && err == nil
	}
	if !lies() {
		t.Error("it was taken")
	}
	if err := d.Look(); err != nil || lies() || d.device == nil {
		t.Errorf("it was not taken: %v", err)
	}
}

// A message without exactly one descriptor is the end of the wire.
func TestDeviceNotHandedOver(t *testing.T) {
	for name, send := range map[string]func(int) error{
		"nothing but bytes": func(over int) error { return unix.Sendmsg(over, []byte{0}, nil, nil, 0) },
		"two descriptors":   func(over int) error { return unix.Sendmsg(over, []byte{0}, unix.UnixRights(0, 1), nil, 0) },
		"many descriptors": func(over int) error {
			return unix.Sendmsg(over, []byte{0}, unix.UnixRights(0, 1, 2, 0, 1, 2, 0, 1), nil, 0)
		},
		"the end": func(over int) error { return unix.Shutdown(over, unix.SHUT_WR) },
	} {
		t.Run(name, func(t *testing.T) {
			before := descriptors(t)
			d, over := sockets(t)
			if err := send(over); err != nil {
				t.Fatal(err)
			}
			if n, err := d.Read(make([]byte, 100)); err == nil && n > 0 {
				t.Errorf("%d bytes were read", n)
			} else if err == nil && err != io.EOF {
				t.Error("it is no end")
			}
			d.Close()
			unix.Close(over)
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors became %d", before, after)
			}
		})
	}
}
