// SPDX-License-Identifier: Apache-2.0

//go:build linux

package boot

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// listed is an address as the kernel lists it.
func listed(a netip.AddrPort) string {
	b := a.Addr().AsSlice()
	s := ""
	for ; len(b) > 0; b = b[4:] {
		s += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(b))
	}
	return fmt.Sprintf("%s:%04X", s, a.Port())
}

func TestOutward(t *testing.T) {
	address := netip.MustParseAddrPort
	var list strings.Builder
	list.WriteString("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n")
	var want []connection
	for i, c := range []struct {
		local, remote, state string
		counts               bool
	}{
		{"198.18.0.2:40000", "198.18.0.7:443", "01", true},
		{"[::ffff:198.18.0.2]:40001", "[::ffff:198.18.0.7]:443", "05", true},
		{"198.18.0.2:40002", "198.18.0.7:443", "02", false}, // it sends by itself
		{"198.18.0.2:40003", "198.18.0.7:443", "06", false}, // no program waits
		{"0.0.0.0:80", "0.0.0.0:0", "0A", false},
		{"127.0.0.1:40004", "127.0.0.1:80", "01", false},
		{"127.0.0.1:40005", "127.1.2.3:80", "01", false},
		{"198.18.0.2:40006", "198.18.0.2:80", "01", false},
		{"[::1]:40007", "[::1]:80", "01", false},
		{"[::ffff:127.0.0.1]:40008", "[::ffff:127.0.0.1]:80", "01", false},
	} {
		local, remote := address(c.local), address(c.remote)
		fmt.Fprintf(&list, "%4d: %s %s %s 00000000:00000000 00:00000000 00000000 1000 0 1 1 0 100 0 0 10 0\n", i, listed(local), listed(remote), c.state)
		if c.counts {
			unmapped := func(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
			want = append(want, connection{unmapped(local), unmapped(remote)})
		}
	}
	got, err := outward(strings.NewReader(list.String()))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"0100007F", "0100007F:", "01:0050", "0100007G:0050"} {
		if a, err := endpoint(bad); err == nil {
			t.Errorf("%q is %v", bad, a)
		}
	}
}

// What a kernel checks of a segment is right: the sum of all, with the addresses, the protocol
// and the length, is the number that says so (RFC 9293, 3.1).
func TestSegmentsSum(t *testing.T) {
	c := connection{netip.MustParseAddrPort("198.18.0.2:40000"), netip.MustParseAddrPort("203.0.113.255:65535")}
	for _, sequence := range []uint32{0, 1 << 31, 1<<32 - 1} {
		p := c.segment(sequence)
		total := 6 + len(p) - ipHead
		for i := 12; i < len(p); i += 2 {
			total += int(p[i])<<8 | int(p[i+1])
		}
		if total%0xffff != 0 || len(p) != 40 {
			t.Errorf("%x", p)
		}
	}
}
