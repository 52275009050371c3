// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/caisson-run/caisson/sandbox/microvm"
)

// gVisor's network stack is the oracle of checksums.
func FuzzSum(f *testing.F) {
	packet := func(protocol byte, n int) []byte {
		b := make([]byte, 20+n)
		for i := range b {
			b[i] = byte(i*7 + n)
		}
		b[0], b[9] = 0x45, protocol
		b[6], b[7] = 0, 0
		return b
	}
	f.Add(packet(6, 20))
	f.Add(packet(6, 1461))
	f.Add(packet(17, 8))
	f.Add(packet(17, 333))
	f.Add(packet(1, 8))
	f.Add([]byte{0x4f})
	f.Fuzz(func(t *testing.T, b []byte) {
		microvm.Sum(b)
		if len(b) < 20 || b[0]>>4 != 4 || b[6]&0x1f != 0 || b[7] != 0 {
			return
		}
		ip := header.IPv4(b)
		head, least := int(ip.HeaderLength()), map[byte]int{6: 18, 17: 8}[b[9]]
		if least == 0 || head < 20 || len(b) < head+least {
			return
		}
		body := b[head:]
		whole := header.PseudoHeaderChecksum(ip.TransportProtocol(), ip.SourceAddress(), ip.DestinationAddress(), uint16(len(body)))
		if got := checksum.Checksum(body, whole); got != 0xffff && len(body) < 1<<16 {
			t.Errorf("%x adds up to %#x", b, got)
		}
	})
}
