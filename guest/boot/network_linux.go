// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"
)

// Requests of netdevice(7), rtnetlink's older forms: a machine has two devices, and no use
// for more.
const (
	nameSize    = 16
	siocAddRT   = 0x890b
	siocSetFlag = 0x8914
	siocSetAddr = 0x8916
	siocSetMask = 0x891c
	siocSetMTU  = 0x8922
	siocSetARP  = 0x8955
	siocEthtool = 0x8946
	setTSO      = 0x1f // ETHTOOL_STSO of linux/ethtool.h

	flagUp      = 0x1
	flagRunning = 0x40
	routeUp     = 0x1
	routeVia    = 0x2
	arpComplete = 0x2
	arpStays    = 0x4
)

// request is struct ifreq of linux/if.h.
type request struct {
	name [nameSize]byte
	data [24]byte
}

// addressIn writes a struct sockaddr_in.
func addressIn(b []byte, a netip.Addr) {
	*(*uint16)(unsafe.Pointer(&b[0])) = syscall.AF_INET
	four := a.As4()
	copy(b[4:], four[:])
}

// connect brings the loopback up and, where there is one, the wire to the gateway.
func (c *Config) connect() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	defer syscall.Close(fd)
	n := &cards{fd: fd}
	n.up("lo")
	if c.Network != nil {
		n.wire(c.Network)
	}
	if n.err != nil {
		return fmt.Errorf("network: %w", n.err)
	}
	return nil
}

// cards sets network devices up; after an error it does nothing more.
type cards struct {
	fd  int
	err error
}

func (n *cards) call(what string, request uintptr, arg unsafe.Pointer) {
	if n.err != nil {
		return
	}
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(n.fd), request, uintptr(arg)); e != 0 {
		n.err = fmt.Errorf("%s: %w", what, e)
	}
}

func (n *cards) up(name string) {
	r := request{}
	copy(r.name[:], name)
	*(*uint16)(unsafe.Pointer(&r.data)) = flagUp | flagRunning
	n.call("start "+name, siocSetFlag, unsafe.Pointer(&r))
}

func (n *cards) wire(w *Network) {
	address, err := netip.ParseAddr(w.Address)
	gateway, err2 := netip.ParseAddr(w.Gateway)
	mac, err3 := net.ParseMAC(w.MAC)
	if n.err = errors.Join(n.err, err, err2, err3); n.err != nil {
		return
	}
	name := card()
	if name == "" {
		n.err = errors.New("the machine has no network device")
		return
	}
	set := func(what string, code uintptr, fill func(b []byte)) {
		r := request{}
		copy(r.name[:], name)
		fill(r.data[:])
		n.call(what, code, unsafe.Pointer(&r))
	}
	set("its MTU", siocSetMTU, func(b []byte) { *(*int32)(unsafe.Pointer(&b[0])) = int32(w.MTU) })
	set("its address", siocSetAddr, func(b []byte) { addressIn(b, address) })
	set("its mask", siocSetMask, func(b []byte) { addressIn(b, mask(address, gateway)) })
	n.whole(name)
	n.up(name)
	n.neighbour(name, gateway, mac)
	n.route(name, gateway)
}

// whole has the kernel send no segments longer than a packet, which a monitor may have
// offered to cut: what carries packets here does not. A device that cannot has none.
func (n *cards) whole(name string) {
	var r struct { // struct ifreq, with a struct ethtool_value
		name  [nameSize]byte
		value *[2]uint32
		_     [16]byte
	}
	copy(r.name[:], name)
	r.value = &[2]uint32{setTSO, 0}
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, uintptr(n.fd), siocEthtool, uintptr(unsafe.Pointer(&r)))
}

// mask is that of the smallest network that has both.
func mask(a, b netip.Addr) netip.Addr {
	for bits := 31; bits > 0; bits-- {
		p := netip.PrefixFrom(a, bits)
		if p.Contains(b) {
			m := net.CIDRMask(bits, 32)
			return netip.AddrFrom4([4]byte(m))
		}
	}
	return netip.AddrFrom4([4]byte{})
}

// neighbour says whose the gateway's address is: nothing on the wire answers that.
func (n *cards) neighbour(name string, a netip.Addr, mac net.HardwareAddr) {
	var r struct { // struct arpreq of linux/if_arp.h
		protocol, hardware [16]byte
		flags              int32
		mask               [16]byte
		name               [nameSize]byte
	}
	addressIn(r.protocol[:], a)
	*(*uint16)(unsafe.Pointer(&r.hardware)) = 1 // Ethernet
	copy(r.hardware[2:], mac)
	r.flags = arpComplete | arpStays
	copy(r.name[:], name)
	n.call("its gateway's device", siocSetARP, unsafe.Pointer(&r))
}

// route leads everything to the gateway.
func (n *cards) route(name string, gateway netip.Addr) {
	label := append([]byte(name), 0)
	var r struct { // struct rtentry of linux/route.h
		_                      uint64
		destination, via, mask [16]byte
		flags                  uint16
		_                      int16
		_                      uint64
		_                      uint64
		metric                 int16
		_                      [3]int16
		device                 *byte
		mtu, window            uint64
		roundTrip              uint16
	}
	addressIn(r.destination[:], netip.IPv4Unspecified())
	addressIn(r.mask[:], netip.IPv4Unspecified())
	addressIn(r.via[:], gateway)
	r.flags = routeUp | routeVia
	r.device = &label[0]
	n.call("its route", siocAddRT, unsafe.Pointer(&r))
}

// card is the one network device that is none of the kernel's own. It appears some time
// after its driver.
func card() string {
	for until := time.Now().Add(deviceWait); time.Now().Before(until); time.Sleep(devicePause) {
		found, _ := filepath.Glob("/sys/class/net/*/device")
		for _, f := range found {
			if _, err := os.Stat(f); err == nil {
				return filepath.Base(filepath.Dir(f))
			}
		}
	}
	return ""
}
