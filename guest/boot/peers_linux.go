// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A machine that goes on from its memory has TCP connections whose other ends are gone: the
// gateway is another, and knows none of them. It answers each segment of one with a reset, but
// a program that waits to read sends none. So each connection gets a segment here that none of
// its numbers fit. What the kernel answers, that it expects others (RFC 9293, 3.10.7.4), goes to
// the gateway, and the reset comes back. A connection whose other end still is there loses
// nothing by it. The kernel needs no option for this, as it does for SOCK_DESTROY.

// connection is one of TCP.
type connection struct{ local, remote netip.AddrPort }

// Connections are asked again whose answer may have been left out: the kernel answers one of
// them twice a second at most (tcp_invalid_ratelimit).
const (
	peerTries = 3
	peerPause = time.Second
)

// askPeers has the connections end whose other ends are gone, soon after it returns.
func askPeers() error {
	lost, err := connections()
	if err != nil || len(lost) == 0 {
		return err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.IPPROTO_RAW)
	if err != nil {
		return err
	}
	ask := func() {
		for _, c := range lost {
			c.provoke(fd)
		}
	}
	ask()
	go func() {
		defer syscall.Close(fd)
		for range peerTries - 1 {
			time.Sleep(peerPause)
			left, err := connections()
			if lost = slices.DeleteFunc(lost, func(c connection) bool { return !slices.Contains(left, c) }); err != nil || len(lost) == 0 {
				return
			}
			ask()
		}
	}()
	return nil
}

// provoke gives a connection two segments, of which one at least is none that it expects: what
// it does expect is less than half of all numbers. What a firewall of the machine's root's own
// refuses is not given.
func (c connection) provoke(fd int) {
	for _, sequence := range []uint32{0, 1 << 31} {
		_ = syscall.Sendto(fd, c.segment(sequence), 0, &syscall.SockaddrInet4{Addr: c.local.Addr().As4()})
	}
}

const (
	ipHead  = 20
	tcpHead = 20
	tcpACK  = 0x10
)

// segment is an empty one of the other end's. The kernel writes the IP header's length and sum.
func (c connection) segment(sequence uint32) []byte {
	p := make([]byte, ipHead+tcpHead)
	from, to := c.remote.Addr().As4(), c.local.Addr().As4()
	p[0], p[8], p[9] = 4<<4|ipHead/4, 64, syscall.IPPROTO_TCP
	copy(p[12:], from[:])
	copy(p[16:], to[:])
	t := p[ipHead:]
	binary.BigEndian.PutUint16(t, c.remote.Port())
	binary.BigEndian.PutUint16(t[2:], c.local.Port())
	binary.BigEndian.PutUint32(t[4:], sequence)
	t[12], t[13] = tcpHead/4<<4, tcpACK
	total := uint32(syscall.IPPROTO_TCP + tcpHead)
	for i := 12; i < len(p); i += 2 { // the addresses and the header
		total += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for total>>16 != 0 {
		total = total&0xffff + total>>16
	}
	binary.BigEndian.PutUint16(t[16:], ^uint16(total))
	return p
}

// connections are those of the machine that lead out of it.
func connections() (all []connection, err error) {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) { // a kernel without it
			continue
		}
		if err != nil {
			return nil, err
		}
		found, err := outward(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// connected are the states, as the kernel numbers them, in which a connection has another end:
// established, and those of its end but TIME_WAIT.
var connected = []string{"01", "04", "05", "08", "09", "0B"}

// outward reads the kernel's list (proc_pid_net(5)).
func outward(r io.Reader) (all []connection, err error) {
	lines := bufio.NewScanner(r)
	lines.Scan() // what the columns are called
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || !slices.Contains(connected, f[3]) {
			continue
		}
		local, err := endpoint(f[1])
		remote, err2 := endpoint(f[2])
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		if local.Addr().Is4() && remote.Addr().Is4() && !remote.Addr().IsLoopback() && remote.Addr() != local.Addr() {
			all = append(all, connection{local, remote})
		}
	}
	return all, lines.Err()
}

// endpoint reads an address, each four bytes of which are a number of this processor's, and a port.
func endpoint(s string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(address)
	p, err2 := hex.DecodeString(port)
	if errors.Join(err, err2) != nil || len(p) != 2 || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", s)
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(p)), nil
}
