// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// Wait is how long anything may take that a test waits for.
const Wait = 2 * time.Minute

// Guest is a sandbox without a sandbox.
type Guest struct {
	t       testing.TB
	stack   *stack.Stack
	gateway netip.Addr
	link    stack.LinkEndpoint
	fd      int
	closed  bool
}

// New makes a guest at the end of a wire. It keeps a copy of nic. Close ends
// it, when the other end of the wire is closed.
func New(t testing.TB, nic *os.File, mtu int, guest, gateway netip.Addr) *Guest {
	t.Helper()
	fd, err := syscall.Dup(int(nic.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	ep, err := fdbased.New(&fdbased.Options{
		FDs: []int{fd}, MTU: uint32(mtu), PacketDispatchMode: fdbased.RecvMMsg, PreConfigured: true, IsPacketSocket: []bool{false},
		RXChecksumOffload: true, TXChecksumOffload: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	soon := tcpip.TCPTimeWaitTimeoutOption(time.Second) // tests make more connections than there are ports
	if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, &soon); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateNIC(1, &waiting{LinkEndpoint: ep, fd: fd}); err != nil {
		t.Fatal(err)
	}
	address := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddrFrom4(guest.As4()).WithPrefix()}
	if err := s.AddProtocolAddress(1, address, stack.AddressProperties{}); err != nil {
		t.Fatal(err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	return &Guest{t: t, stack: s, gateway: gateway, link: ep, fd: fd}
}

// waiting is a wire that keeps who writes waiting while it is full. Without it a
// packet is lost then: one of TCP is sent again after a second, and the next time
// after two, while the writer of a datagram waits for a word that never comes.
type waiting struct {
	stack.LinkEndpoint
	fd   int
	full sync.Mutex // one at a time waits in the kernel: each who does takes a thread
}

// longestFull bounds that wait, for two who write to each other while they should
// read.
const longestFull = time.Second

func (w *waiting) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	for sent, pkt := range pkts.AsSlice() {
		var one stack.PacketBufferList
		one.PushBack(pkt)
		for {
			_, err := w.LinkEndpoint.WritePackets(one)
			if err == nil {
				break
			}
			if _, full := err.(*tcpip.ErrWouldBlock); !full {
				return sent, err
			}
			w.full.Lock()
			n, perr := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLOUT}}, int(longestFull.Milliseconds()))
			w.full.Unlock()
			if n == 0 && perr != unix.EINTR {
				return sent, &tcpip.ErrNoBufferSpace{}
			}
		}
	}
	return pkts.Len(), nil
}

// Close ends the guest's stack. It comes before the end of the wire: who reads
// a wire without another end does not hear that it should stop.
func (g *Guest) Close() {
	if g.closed {
		return
	}
	g.closed = true
	// Stops who reads it, and waits for him, whom a packet may have wait for the stack:
	// it must not be locked, as it is while RemoveNIC does the same.
	g.link.Attach(nil)
	g.stack.RemoveNIC(1)
	g.stack.Destroy()
	_ = syscall.Close(g.fd)
}

func full(to netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{Addr: tcpip.AddrFrom4(to.Addr().As4()), Port: to.Port()}
}

// Dial connects to an address.
func (g *Guest) Dial(to string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Wait)
	defer cancel()
	return gonet.DialContextTCP(ctx, g.stack, full(netip.MustParseAddrPort(to)), ipv4.ProtocolNumber)
}

// DialUDP is a socket that sends to an address.
func (g *Guest) DialUDP(to string) net.Conn {
	g.t.Helper()
	remote := full(netip.MustParseAddrPort(to))
	c, err := gonet.DialUDP(g.stack, nil, &remote, ipv4.ProtocolNumber)
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// Query asks the resolver at the gateway.
func (g *Guest) Query(host string, kind dnsmessage.Type) dnsmessage.Message {
	g.t.Helper()
	c := g.DialUDP(netip.AddrPortFrom(g.gateway, 53).String())
	defer c.Close()
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 9}, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName(host + "."), Type: kind, Class: dnsmessage.ClassINET}}}
	b, err := q.Pack()
	if err != nil {
		g.t.Fatal(err)
	}
	for late := time.Now().Add(Wait); ; { // which waits longestFull itself
		_, err := c.Write(b)
		if err == nil {
			break
		}
		if time.Now().After(late) {
			g.t.Fatal(err)
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(Wait))
	b = make([]byte, 1500)
	n, err := c.Read(b)
	var m dnsmessage.Message
	if err == nil {
		err = m.Unpack(b[:n])
	}
	if err != nil {
		g.t.Fatalf("%s: %v", host, err)
	}
	return m
}

// DialName looks a name up, or takes an address, and connects.
func (g *Guest) DialName(host string, port int) (net.Conn, error) {
	g.t.Helper()
	if a, err := netip.ParseAddr(host); err == nil {
		return g.Dial(netip.AddrPortFrom(a, uint16(port)).String())
	}
	m := g.Query(host, dnsmessage.TypeA)
	if len(m.Answers) == 0 {
		return nil, fmt.Errorf("%s: %v", host, m.RCode)
	}
	return g.Dial(netip.AddrPortFrom(netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A), uint16(port)).String())
}
