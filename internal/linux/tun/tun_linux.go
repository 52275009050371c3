// SPDX-License-Identifier: Apache-2.0

// Package tun makes the only network device of a sandbox on a host's kernel: a
// TUN device (Documentation/networking/tuntap.rst) in a network namespace that
// has nothing else but its loopback. What code inside sends is read from the
// descriptor that made the device, by a router; when that descriptor is closed
// for the last time the device carries nothing any more, and goes with its
// namespace. It could go with the descriptor, but taking a device away waits for
// two grace periods of RCU, 20 ms, which a run would have to wait for; a
// namespace is taken down by the kernel itself when its last process has ended.
//
// The device carries IPv4 packets alone, without a header of a lower layer, so
// there are no addresses to ask for and nothing to learn. Each packet has a
// header before it ([HeaderLength]) by which the two ends leave out checksums:
// nothing between them can change a packet.
package tun

import (
	"encoding/binary"
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// Path is where every device is made. Opening it is bound to the network
	// namespace of who opens it.
	Path = "/dev/net/tun"
	// Name is what the device is called inside.
	Name = "eth0"
	// HeaderLength is how much comes before each packet, in bytes: struct
	// virtio_net_hdr (linux/virtio_net.h).
	HeaderLength = 10
)

// offloadChecksums is TUN_F_CSUM (linux/if_tun.h).
const offloadChecksums = 0x01

// NoIPv6 is a file that "1" is written to before the device is up, in the
// device's namespace: it gets no address by itself then, and looks for no
// neighbours. A host without IPv6 does not have it.
const NoIPv6 = "/proc/sys/net/ipv6/conf/" + Name + "/disable_ipv6"

// Config says what a device is like.
type Config struct {
	// Address is the sandbox's own, Gateway the one at the other end, by which
	// everything else is reached. They are bytes, since who makes a device ahead of
	// everything else has no net/netip yet.
	Address, Gateway [4]byte
	// MTU is how long a packet may be, in bytes.
	MTU int
}

// Request is one ioctl(2) of those that make a device.
type Request struct {
	What string // for people: "make its network device"
	Op   uintptr
	// Device says that it is for the file that was opened at Path; otherwise it
	// is for any socket.
	Device bool
	// Arg is what the call points to, or nil and the call has Value.
	Arg   unsafe.Pointer
	Value uintptr
}

// Requests are the calls that make the device, give it addresses and bring it
// up, in order. The caller has CAP_NET_ADMIN over the namespace. NoIPv6 comes
// after those that are for the device's file.
func (c Config) Requests() ([]Request, error) {
	if none := [4]byte{}; c.Address == none || c.Gateway == none || c.MTU < 576 || c.MTU > 65535 {
		return nil, errors.New("no device can have these addresses, or packets of this size")
	}
	what := "make its network device"
	all := []Request{
		{What: what, Device: true, Op: unix.TUNSETIFF, Arg: flags(Name, unix.IFF_TUN|unix.IFF_NO_PI|unix.IFF_VNET_HDR)},
		{What: what, Device: true, Op: unix.TUNSETOFFLOAD, Value: offloadChecksums},
		{What: what, Device: true, Op: unix.TUNSETPERSIST, Value: 1},
	}
	for _, r := range []Request{
		{Op: unix.SIOCSIFMTU, Arg: number(Name, uint32(c.MTU))},
		{Op: unix.SIOCSIFADDR, Arg: address(c.Address)},
		{Op: unix.SIOCSIFDSTADDR, Arg: address(c.Gateway)},
		{Op: unix.SIOCSIFFLAGS, Arg: flags(Name, unix.IFF_UP|unix.IFF_RUNNING|unix.IFF_POINTOPOINT|unix.IFF_NOARP)},
		{Op: unix.SIOCADDRT, Arg: defaultRoute(c.Gateway)},
	} {
		r.What = "set up its network device"
		all = append(all, r)
	}
	return all, nil
}

// interfaceRequest is struct ifreq (netdevice(7)).
type interfaceRequest struct {
	name [unix.IFNAMSIZ]byte
	data [24]byte
}

func newRequest(name string) *interfaceRequest {
	r := new(interfaceRequest)
	copy(r.name[:], name)
	return r
}

func flags(name string, f uint16) unsafe.Pointer {
	r := newRequest(name)
	binary.NativeEndian.PutUint16(r.data[:], f)
	return unsafe.Pointer(r)
}

func number(name string, n uint32) unsafe.Pointer {
	r := newRequest(name)
	binary.NativeEndian.PutUint32(r.data[:], n)
	return unsafe.Pointer(r)
}

func address(a [4]byte) unsafe.Pointer {
	r := newRequest(Name)
	copy(r.data[:], socketAddress(a))
	return unsafe.Pointer(r)
}

// socketAddress is struct sockaddr_in.
func socketAddress(a [4]byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
	b = append(b, 0, 0) // the port
	return append(append(b, a[:]...), make([]byte, 8)...)
}

// routeEntry is struct rtentry (linux/route.h) of a 64-bit kernel.
type routeEntry struct {
	_             uint64
	to, via, mask [16]byte
	flags         uint16
	_             [62]byte
}

func defaultRoute(via [4]byte) unsafe.Pointer {
	r := &routeEntry{flags: unix.RTF_UP | unix.RTF_GATEWAY}
	copy(r.to[:], socketAddress([4]byte{}))
	copy(r.mask[:], socketAddress([4]byte{}))
	copy(r.via[:], socketAddress(via))
	return unsafe.Pointer(r)
}

// Make makes the device in the network namespace of the calling thread. The
// file is the router's; without it the device carries nothing.
func (c Config) Make() (*os.File, error) {
	requests, err := c.Requests()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(Path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: Path, Err: err}
	}
	device := os.NewFile(uintptr(fd), Path) // which blocks yet, so that this process does not poll what is not its own
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		device.Close()
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(sock)
	silenced := false
	for _, r := range requests {
		on := fd
		if !r.Device {
			on = sock
			if !silenced { // the device has its name by now
				silence()
				silenced = true
			}
		}
		if err := r.make(on); err != nil {
			device.Close()
			return nil, os.NewSyscallError(r.What, err)
		}
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		device.Close()
		return nil, os.NewSyscallError("fcntl", err)
	}
	return device, nil
}

// silence keeps IPv6 from the device. Where there is none there is no file.
func silence() {
	if fd, err := unix.Open(NoIPv6, unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		_, _ = unix.Write(fd, []byte("1"))
		unix.Close(fd)
	}
}

func (r *Request) make(fd int) error {
	var errno unix.Errno
	if r.Arg != nil {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), r.Op, uintptr(r.Arg))
	} else {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), r.Op, r.Value)
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// Usable says why the calling user cannot make devices, and what mends it;
// empty where nothing is against it.
func Usable() (why, remedy string) {
	fd, err := unix.Open(Path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
		unix.Close(fd)
		return "", ""
	case unix.EACCES, unix.EPERM:
		return Path + " may not be opened by this user", "as root: chmod 0666 " + Path + ", as udev does; making a device with it takes rights over a network namespace anyway"
	case unix.ENOENT, unix.ENODEV, unix.ENXIO:
		return "this host has no " + Path, "as root: modprobe tun"
	}
	return Path + " cannot be opened: " + err.Error(), "look at " + Path
}
