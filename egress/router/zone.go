// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/netip"
	"sync"

	"github.com/caisson-run/caisson/egress/rule"
)

// The router is the only resolver that a sandbox can reach. It answers for names
// that are allowed, with addresses of its own making. No query is ever passed on,
// so nothing can be told to the outside in one. A name gets an address that
// belongs to it for as long as the sandbox lives. A connection to that address has
// named the host, whatever protocol follows. The host's real addresses are looked
// up when a connection is made.

// Pool is where the made-up addresses come from: the range for benchmarks of
// network devices (RFC 2544), which is not routed.
var Pool = netip.MustParsePrefix("198.18.0.0/15")

// first and last are the ends of what is given out; the sandbox's own wire lies
// below first.
var (
	first = netip.MustParseAddr("198.18.1.0")
	last  = netip.MustParseAddr("198.19.255.255")
)

// maxNames bounds how many names one sandbox may have addresses for. A
// wildcard allows more names than there is memory for.
const maxNames = 8192

// Zone binds names to addresses. The zero Zone is empty and ready; it may be
// used from many goroutines.
type Zone struct {
	mu     sync.Mutex
	byName map[rule.Name]netip.Addr
	byAddr map[netip.Addr]rule.Name
	next   netip.Addr
}

// Address returns n's address, a new one the first time. It is not valid when
// there are too many names.
func (z *Zone) Address(n rule.Name) netip.Addr {
	z.mu.Lock()
	defer z.mu.Unlock()
	if a, ok := z.byName[n]; ok {
		return a
	}
	if n.IsZero() || len(z.byName) >= maxNames {
		return netip.Addr{}
	}
	if z.byName == nil {
		z.byName, z.byAddr, z.next = map[rule.Name]netip.Addr{}, map[netip.Addr]rule.Name{}, first
	}
	a := z.next
	if a.Compare(last) > 0 {
		return netip.Addr{}
	}
	z.next = a.Next()
	z.byName[n], z.byAddr[a] = a, n
	return a
}

// Name returns the name that a belongs to; the zero Name when there is none.
func (z *Zone) Name(a netip.Addr) rule.Name {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.byAddr[a.Unmap()]
}
