// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// link is the sandbox's wire as the stack sees it: each read and write of wire
// is one IP packet.
//
// A write waits when the sandbox does not read, which holds back the one
// sandbox that it is for.
type link struct {
	wire    io.ReadWriteCloser
	mtu     uint32
	guest   netip.Addr
	trusted bool // the other end writes no checksums

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher

	reading sync.WaitGroup
	gone    chan struct{} // closed when the wire cannot be read any more
	odd     func(b []byte)
}

var _ stack.LinkEndpoint = (*link)(nil)

func newLink(o *Options, odd func([]byte)) *link {
	return &link{wire: o.Wire, mtu: uint32(o.MTU), guest: o.Guest, trusted: o.Trusted, gone: make(chan struct{}), odd: odd}
}

func (l *link) MTU() uint32                             { return l.mtu }
func (l *link) SetMTU(uint32)                           {}
func (l *link) MaxHeaderLength() uint16                 { return 0 }
func (l *link) LinkAddress() tcpip.LinkAddress          { return "" }
func (l *link) SetLinkAddress(tcpip.LinkAddress)        {}
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (l *link) AddHeader(*stack.PacketBuffer)           {}
func (l *link) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (l *link) SetOnCloseAction(func())                 {}
func (l *link) Wait()                                   { l.reading.Wait() }
func (l *link) Close()                                  { l.wire.Close() }
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	if l.trusted {
		return stack.CapabilityTXChecksumOffload | stack.CapabilityRXChecksumOffload
	}
	return 0
}

// Attach begins reading; a nil dispatcher ends it.
func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	begin := l.dispatcher == nil && d != nil
	l.dispatcher = d
	l.mu.Unlock()
	if begin {
		l.reading.Go(l.read)
	}
}

func (l *link) IsAttached() bool { return l.attached() != nil }

func (l *link) attached() stack.NetworkDispatcher {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher
}

// read hands the sandbox's packets to the stack.
func (l *link) read() {
	defer close(l.gone)
	b := make([]byte, l.mtu+1) // one more, to see a packet that is too long
	for {
		n, err := l.wire.Read(b)
		if err != nil || n == 0 {
			return // an empty message is how the end of a socket looks
		}
		d := l.attached()
		if d == nil {
			return
		}
		if n > int(l.mtu) || !l.passes(b[:n]) {
			l.odd(b[:n])
			continue
		}
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(b[:n])})
		d.DeliverNetworkPacket(header.IPv4ProtocolNumber, pkt)
		pkt.DecRef()
	}
}

// What is read of an IPv4 header (RFC 791) before the stack sees it.
const (
	headerLength = 20
	protocolTCP  = 6
	protocolUDP  = 17
)

// passes lets through whole packets of TCP and UDP over IPv4 that come from the
// sandbox's own address, and nothing else: no IPv6, no ICMP, no fragment, no
// option, no other sender.
func (l *link) passes(p []byte) bool {
	if len(p) < headerLength || p[0] != 4<<4|headerLength/4 {
		return false
	}
	if int(binary.BigEndian.Uint16(p[2:])) != len(p) || binary.BigEndian.Uint16(p[6:])&0x3fff != 0 {
		return false
	}
	return (p[9] == protocolTCP || p[9] == protocolUDP) && netip.AddrFrom4([4]byte(p[12:16])) == l.guest
}

// WritePackets gives packets to the sandbox.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	sent := 0
	for _, pkt := range pkts.AsSlice() {
		v := pkt.ToView()
		_, err := l.wire.Write(v.AsSlice())
		v.Release()
		if err != nil {
			if errors.Is(err, os.ErrClosed) {
				return sent, &tcpip.ErrClosedForSend{}
			}
			return sent, &tcpip.ErrAborted{}
		}
		sent++
	}
	return sent, nil
}
