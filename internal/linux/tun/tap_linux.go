// SPDX-License-Identifier: Apache-2.0

package tun

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// TapName is what a TAP device is called: the network card of a virtual machine, whose
// monitor opens it by name. It carries Ethernet frames, and what the machine sends comes
// to a packet socket (packet(7)) in its namespace. The kernel has no address on it, so
// it answers nothing and passes nothing on.
const TapName = "tap0"

// NoIPv6OnTap is NoIPv6 for a TAP device.
const NoIPv6OnTap = "/proc/sys/net/ipv6/conf/" + TapName + "/disable_ipv6"

// TapRequests are the calls that make a TAP device for packets of mtu bytes and bring it
// up, in order, as Config.Requests does. It stays when the descriptor is closed, until
// its namespace goes: any process in there may open it then, without a capability.
func TapRequests(mtu int) ([]Request, error) {
	if mtu < 576 || mtu > 65535-14 {
		return nil, errors.New("no device can have packets of this size")
	}
	what := "make its network device"
	return []Request{
		{What: what, Device: true, Op: unix.TUNSETIFF, Arg: flags(TapName, unix.IFF_TAP|unix.IFF_NO_PI|unix.IFF_VNET_HDR)},
		{What: what, Device: true, Op: unix.TUNSETPERSIST, Value: 1},
		{What: "set up its network device", Op: unix.SIOCSIFMTU, Arg: number(TapName, uint32(mtu))},
		{What: "set up its network device", Op: unix.SIOCSIFFLAGS, Arg: flags(TapName, unix.IFF_UP|unix.IFF_RUNNING)},
	}, nil
}

// frameBuffer is how many bytes of frames wait for who reads a packet socket.
const frameBuffer = 2 << 20

// Frames makes a packet socket, which was made in the namespace of a TAP device and is
// fd, the other end of that device: each message is one frame, of IPv4 where it is read.
// It takes no capability. The socket is not closed when it fails.
func Frames(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if domain != unix.AF_PACKET {
		return errors.New("it is no packet socket")
	}
	request, err := unix.NewIfreq(TapName)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return os.NewSyscallError("find its network device", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, frameBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, frameBuffer)
	}
	var ip [2]byte
	binary.BigEndian.PutUint16(ip[:], unix.ETH_P_IP)
	at := &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16(ip[:]), Ifindex: int(request.Uint32())}
	return os.NewSyscallError("bind", unix.Bind(fd, at))
}
