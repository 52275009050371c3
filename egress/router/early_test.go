// SPDX-License-Identifier: Apache-2.0

package router

import (
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/caisson-run/caisson/egress/guesttest"
	"github.com/caisson-run/caisson/egress/wire"
)

// query is a packet that asks the gateway for a name's address.
func query(t *testing.T, host string) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 9}, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName(host), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	ask, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, header.IPv4MinimumSize+header.UDPMinimumSize+len(ask))
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.UDPProtocolNumber),
		SrcAddr: tcpip.AddrFrom4(guestAddr.As4()), DstAddr: tcpip.AddrFrom4(gatewayAddr.As4()),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	header.UDP(b[header.IPv4MinimumSize:]).Encode(&header.UDPFields{
		SrcPort: 4000, DstPort: 53, Length: uint16(header.UDPMinimumSize + len(ask)),
	})
	copy(b[header.IPv4MinimumSize+header.UDPMinimumSize:], ask)
	return b
}

// TestEarly: what a sandbox asked before there was a router is answered when there
// is one. A program asks a resolver that says nothing again after five seconds.
func TestEarly(t *testing.T) {
	for range 50 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := os.NewFile(uintptr(fds[0]), "router"), os.NewFile(uintptr(fds[1]), "guest")
		if _, err := theirs.Write(query(t, "good.test.")); err != nil {
			t.Fatal(err)
		}
		r, err := New(Options{
			Wire: ours, MTU: 32768, Guest: guestAddr, Gateway: gatewayAddr,
			Rules: rules(t, []string{"good.test"}, nil), Event: func(wire.Event) {},
			Own: func(netip.Addr) bool { return false },
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Begin()
		_ = theirs.SetReadDeadline(time.Now().Add(guesttest.Wait))
		b := make([]byte, 1500)
		n, err := theirs.Read(b)
		var m dnsmessage.Message
		if err == nil {
			err = m.Unpack(b[min(n, header.IPv4MinimumSize+header.UDPMinimumSize):n])
		}
		if err != nil || len(m.Answers) != 1 {
			t.Errorf("%+v, %v", m, err)
		}
		r.Close()
		theirs.Close()
		if t.Failed() {
			return
		}
	}
}

// ended is a wire that has ended, and whether it was read.
type ended struct{ read bool }

func (e *ended) Read([]byte) (int, error)    { e.read = true; return 0, io.EOF }
func (e *ended) Write(b []byte) (int, error) { return len(b), nil }
func (e *ended) Close() error                { return nil }

// A stack attaches itself as its interface is made, which is before it is whole.
func TestAttachDoesNotRead(t *testing.T) {
	var w ended
	l := newLink(&Options{Wire: &w, MTU: 1500, Guest: guestAddr}, func([]byte) {})
	l.Attach(struct{ stack.NetworkDispatcher }{})
	l.reading.Wait()
	if w.read {
		t.Error("the wire is read as soon as there is somebody to take packets")
	}
	l.begin()
	l.reading.Wait()
	if !w.read {
		t.Error("nobody reads")
	}
}
