// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// nic is the only one that the stack has.
const nic tcpip.NICID = 1

const (
	// maxPending bounds the connections that are being made; the beginnings
	// of more are dropped, and their senders try again. It is twice maxOpen:
	// those that are refused take a place for a moment, too, and must not keep
	// the others out.
	maxPending = 2 * maxOpen
	// maxOpen bounds the connections at one time, and placeTime is how long one
	// more waits for another's end before it is refused.
	maxOpen   = 512
	placeTime = 3 * time.Second
	// maxBuffer bounds what the stack keeps for one connection and direction,
	// in bytes.
	maxBuffer   = 1 << 20
	usualBuffer = 256 << 10
)

// newStack makes the stack that answers for every address.
func (r *Router) newStack() error {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
		HandleLocal:        false,
	})
	r.stack, r.link = s, newLink(&r.o, r.odd)
	for _, step := range []func() tcpip.Error{
		func() tcpip.Error { return r.tune() },
		func() tcpip.Error { return s.CreateNIC(nic, r.link) },
		func() tcpip.Error { return s.SetPromiscuousMode(nic, true) }, // take what is for any address
		func() tcpip.Error { return s.SetSpoofing(nic, true) },        // and answer from it
		func() tcpip.Error {
			return s.AddProtocolAddress(nic, tcpip.ProtocolAddress{
				Protocol: ipv4.ProtocolNumber, AddressWithPrefix: addr(r.o.Gateway).WithPrefix(),
			}, stack.AddressProperties{})
		},
	} {
		if err := step(); err != nil {
			return fmt.Errorf("router: the stack: %s", err)
		}
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(s, 0, maxPending, r.accept).HandlePacket)
	s.SetTransportProtocolHandler(udp.ProtocolNumber, r.stray)
	dns, err := gonet.DialUDP(s, &tcpip.FullAddress{NIC: nic, Addr: addr(r.o.Gateway), Port: 53}, nil, ipv4.ProtocolNumber)
	if err != nil {
		return fmt.Errorf("router: the resolver: %w", err)
	}
	r.dns = dns
	return nil
}

// tune sets what a wire without loss and a short life want.
func (r *Router) tune() tcpip.Error {
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true)
	wait, linger := tcpip.TCPTimeWaitTimeoutOption(time.Second), tcpip.TCPLingerTimeoutOption(10*time.Second)
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: usualBuffer, Max: maxBuffer}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: usualBuffer, Max: maxBuffer}
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &wait, &linger, &receive, &send} {
		if err := r.stack.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return err
		}
	}
	return nil
}

// stray takes UDP that is not for the resolver. It is dropped: no answer says more
// than a network that is not there. Where that is so for good the stack answers,
// since no client needs to wait to find out.
func (r *Router) stray(id stack.TransportEndpointID, _ *stack.PacketBuffer) bool {
	to := netip.AddrPortFrom(netip.AddrFrom4(id.LocalAddress.As4()), id.LocalPort)
	r.refuseStray(wire.UDP, to)
	return !r.o.Closed
}

// odd takes packets that the link did not let through. Those of IPv4 and UDP or
// TCP that are malformed are no attempt to reach anything; what has another
// protocol is recorded once for each.
func (r *Router) odd(p []byte) {
	if len(p) < headerLength || p[0]>>4 != 4 {
		return // IPv6 looks for its neighbours by itself
	}
	if proto := p[9]; proto == protocolTCP || proto == protocolUDP {
		return
	}
	rec := wire.Record{Address: netip.AddrFrom4([4]byte(p[16:20])).String(), Reason: "only TCP can leave"}
	switch p[9] {
	case 1:
		rec.Protocol = "icmp"
	default:
		rec.Protocol = wire.Protocol(fmt.Sprintf("ip %d", p[9]))
	}
	r.recordStray(rec)
}

func (r *Router) refuseStray(p wire.Protocol, to netip.AddrPort) {
	rec := wire.Record{Protocol: p, Address: to.Addr().String(), Port: int(to.Port()), Reason: "only TCP can leave"}
	if n := r.zone.Name(to.Addr()); !n.IsZero() {
		rec.Host, rec.Address = n.String(), ""
	}
	if to.Port() == 53 {
		rec.Reason = "only the sandbox's own resolver answers"
	}
	r.recordStray(rec)
}

func (r *Router) recordStray(rec wire.Record) {
	if r.o.Closed {
		rec.Reason = rule.NetworkOff
	}
	r.record.refuse(rec)
}
