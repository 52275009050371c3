// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// link is the sandbox's wire as the stack sees it: each read and write of wire
// is one IP packet, with a header before it where the wire has headers.
//
// A write waits when the sandbox does not read, which holds back the one
// sandbox that it is for.
type link struct {
	wire       io.ReadWriteCloser
	mtu        uint32
	guest      netip.Addr
	headers    bool
	resets     resets
	suppressed atomic.Int64 // resets that did not reach the sandbox

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher

	reading sync.WaitGroup
	gone    chan struct{} // closed when the wire cannot be read any more
	odd     func(b []byte)
}

var _ stack.LinkEndpoint = (*link)(nil)

func newLink(o *Options, odd func([]byte)) *link {
	return &link{wire: o.Wire, mtu: uint32(o.MTU), guest: o.Guest, headers: o.Headers, gone: make(chan struct{}), odd: odd}
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
	return stack.CapabilityTXChecksumOffload | stack.CapabilityRXChecksumOffload
}

// lastWrites is how long a sandbox has to read the last words of a router that
// ends: a sandbox that is gone, or stands still, reads none.
const lastWrites = 200 * time.Millisecond

// hasten has writes fail soon that wait for the sandbox to read. A TUN device
// makes no write wait.
func (l *link) hasten() {
	if w, ok := l.wire.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = w.SetWriteDeadline(time.Now().Add(lastWrites))
	}
}

// Attach says who takes the sandbox's packets; nil is the end of reading.
func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatcher = d
}

// begin reads what the sandbox sends, which may have waited here since before
// there was a stack. It is for a stack that is whole: one that has no resolver yet
// drops a query, and the program that asked asks again after five seconds.
func (l *link) begin() { l.reading.Go(l.read) }

func (l *link) IsAttached() bool { return l.attached() != nil }

func (l *link) attached() stack.NetworkDispatcher {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher
}

// read hands the sandbox's packets to the stack.
func (l *link) read() {
	defer close(l.gone)
	b := make([]byte, l.before()+int(l.mtu)+1) // one more, to see a packet that is too long
	for {
		n, err := l.next(b)
		if err != nil || n == 0 {
			return // an empty message is how the end of a socket looks
		}
		d := l.attached()
		if d == nil {
			return
		}
		if n < l.before() {
			continue
		}
		p := b[l.before():n]
		if len(p) > int(l.mtu) || !l.passes(p) {
			l.odd(p)
			continue
		}
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(p)})
		d.DeliverNetworkPacket(header.IPv4ProtocolNumber, pkt)
		pkt.DecRef()
	}
}

// lastReads is how long a router that ends may take for what is on the wire already.
const lastReads = 200 * time.Millisecond

// finish waits until what the sandbox has sent so far is read: a program that sends
// something and ends at once has tried to reach something all the same.
func (l *link) finish() {
	w, ok := l.wire.(interface{ SetReadDeadline(time.Time) error })
	if !ok || w.SetReadDeadline(time.Unix(1, 0)) != nil {
		return
	}
	late := time.NewTimer(lastReads)
	defer late.Stop()
	select {
	case <-l.gone:
	case <-late.C:
	}
}

// next reads one packet. After finish it waits for none.
func (l *link) next(b []byte) (int, error) {
	n, err := l.wire.Read(b)
	w, ok := l.wire.(syscall.Conn)
	if !ok || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	raw, err := w.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := raw.Control(func(fd uintptr) { n, err = syscall.Read(int(fd), b) })
	return n, errors.Join(cerr, err)
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

// before is how long the header before a packet is, in bytes.
func (l *link) before() int {
	if l.headers {
		return vnetHeader
	}
	return 0
}

// packets are buffers for what is written.
var packets = sync.Pool{New: func() any { return new([]byte) }}

// WritePackets gives packets to the sandbox.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	p := packets.Get().(*[]byte)
	defer packets.Put(p)
	for sent, pkt := range pkts.AsSlice() {
		b := append((*p)[:0], make([]byte, l.before())...)
		for _, part := range pkt.AsSlices() {
			b = append(b, part...)
		}
		if l.headers {
			describe(b[:vnetHeader], b[vnetHeader:])
		}
		*p = b
		if l.resets.accident(b[l.before():]) {
			l.suppressed.Add(1)
			continue
		}
		if _, err := l.wire.Write(b); err != nil {
			if errors.Is(err, os.ErrClosed) {
				return sent, &tcpip.ErrClosedForSend{}
			}
			return sent, &tcpip.ErrAborted{}
		}
	}
	return pkts.Len(), nil
}

// struct virtio_net_hdr (linux/virtio_net.h), in the byte order of the host.
const (
	vnetHeader     = 10
	needsChecksum  = 1  // VIRTIO_NET_HDR_F_NEEDS_CSUM
	checksumOfTCP  = 16 // where it stands in a header
	checksumOfUDP  = 6
	checksumStarts = 6 // the offsets of fields
	checksumOffset = 8
)

// describe writes the header before a packet: its checksum is not written, and
// who receives it need not look. That of ICMP is.
func describe(h, p []byte) {
	if p[9] != protocolTCP && p[9] != protocolUDP {
		clear(h)
		return
	}
	offset := checksumOfTCP
	if p[9] == protocolUDP {
		offset = checksumOfUDP
	}
	h[0] = needsChecksum
	binary.NativeEndian.PutUint16(h[checksumStarts:], headerLength)
	binary.NativeEndian.PutUint16(h[checksumOffset:], uint16(offset))
}
