// SPDX-License-Identifier: Apache-2.0

package process

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/tun"
	"github.com/caisson-run/caisson/sandbox"
)

// connect makes the sandbox's network device in its own network namespace and
// gives the device's descriptor to the router.
//
// It comes first: the builder is still who caisson is for the host's files, so
// that root needs no rights of others on /dev/net/tun, and has every capability
// in its user namespace. No program inside has CAP_NET_ADMIN later, so what is
// set here stays.
func (p *plan) connect(b *script) error {
	n := p.spec.Network
	if n == nil {
		return nil
	}
	if p.tap {
		return p.plug(b)
	}
	address, gateway := n.IPv4()
	requests, err := tun.Config{Address: address, Gateway: gateway, MTU: n.MTU}.Requests()
	if err != nil {
		return &sandbox.Error{Op: "network", Kind: sandbox.ErrInvalid, Problem: "there is no such wire", Cause: err}
	}
	device := p.makeDevice(b, requests, tun.NoIPv6)
	b.doing("give its network device to the router")
	b.keep = append(b.keep, n.NIC)
	b.sendFile(int(n.NIC.Fd()), device)
	b.close(device)
	return nil
}

// makeDevice makes a network device and returns the file that it was made with.
func (p *plan) makeDevice(b *script, requests []tun.Request, noIPv6 string) slot {
	b.doing("open " + tun.Path)
	device, sock := b.slot(), b.slot()
	b.call(unix.SYS_OPENAT, unix.AT_FDCWD, tun.Path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0).save(device)
	b.call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0).save(sock)
	silenced := false
	for i := range requests {
		r := &requests[i]
		if !r.Device && !silenced {
			b.writeIfThere(noIPv6, "1")
			silenced = true
		}
		on := sock
		if r.Device {
			on = device
		}
		b.doing("%s", r.What)
		if r.Arg == nil {
			b.call(unix.SYS_IOCTL, on, r.Op, r.Value)
			continue
		}
		b.call(unix.SYS_IOCTL, on, r.Op, pointer{r.Arg, r.Arg})
	}
	b.close(sock)
	return device
}

// plug makes a TAP device that the program opens by its name, and gives its owner a
// packet socket, which becomes the other end of it (tun.Frames).
func (p *plan) plug(b *script) error {
	requests, err := tun.TapRequests(p.spec.Network.MTU)
	if err != nil {
		return &sandbox.Error{Op: "network", Kind: sandbox.ErrInvalid, Problem: "there is no such wire", Cause: err}
	}
	device := p.makeDevice(b, requests, tun.NoIPv6OnTap)
	b.close(device)
	b.doing("make the other end of its network device")
	frames := b.slot()
	b.call(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0).save(frames)
	b.keep = append(b.keep, p.spec.Network.NIC)
	b.sendFile(int(p.spec.Network.NIC.Fd()), frames)
	b.close(frames)
	return nil
}

// writeIfThere writes a file of the kernel's that not every kernel has.
func (s *script) writeIfThere(name, text string) {
	fd := s.slot()
	s.call(unix.SYS_OPENAT, unix.AT_FDCWD, name, unix.O_WRONLY|unix.O_CLOEXEC, 0).save(fd).or(passAll)
	s.call(unix.SYS_WRITE, fd, text, len(text)).or(passAll)
	s.call(unix.SYS_CLOSE, fd).or(passAll)
	s.next--
}

// sendFile sends a descriptor over a socket (unix(7), SCM_RIGHTS).
func (s *script) sendFile(over int, f slot) {
	type rights struct {
		header unix.Cmsghdr
		fd     int32
		_      int32
	}
	type message struct {
		header unix.Msghdr
		vector unix.Iovec
		rights rights
		text   byte
	}
	m := new(message)
	m.rights.header = unix.Cmsghdr{Level: unix.SOL_SOCKET, Type: unix.SCM_RIGHTS}
	m.rights.header.SetLen(unix.CmsgLen(4))
	m.vector.Base = &m.text
	m.vector.SetLen(1)
	m.header.Iov = &m.vector
	m.header.SetIovlen(1)
	m.header.Control = (*byte)(unsafe.Pointer(&m.rights))
	m.header.SetControllen(unix.CmsgSpace(4))
	s.put(&m.rights.fd, f)
	s.call(unix.SYS_SENDMSG, over, pointer{unsafe.Pointer(&m.header), m}, unix.MSG_NOSIGNAL)
}
