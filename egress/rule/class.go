// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"net/netip"
	"sync"
)

// Class is what sort of address one is. The zero Class is Unknown, which is
// refused.
type Class string

// The classes that a connection may have to do with.
const (
	Unknown   Class = ""
	Public    Class = "public"     // reachable from everywhere
	Private   Class = "private"    // RFC 1918, RFC 4193
	Loopback  Class = "loopback"   // this host
	LinkLocal Class = "link-local" // this wire
	Metadata  Class = "metadata"   // a cloud's metadata and credentials
	Shared    Class = "shared"     // carrier-grade NAT, RFC 6598
	Reserved  Class = "reserved"   // everything else with a special purpose
	Embedded  Class = "embedded"   // IPv6 that carries an IPv4 address: NAT64, 6to4, Teredo
	Multicast Class = "multicast"
	Own       Class = "own" // an address of this host's interfaces; given by the caller, who knows them
)

// block is a range of addresses with one class.
type block struct {
	prefix netip.Prefix
	class  Class
}

// blocks are the ranges that are not public, the narrowest first where two
// overlap: the IANA special-purpose registries of IPv4 and IPv6 (RFC 6890 and
// its updates) and the addresses where clouds hand out credentials.
var blocks = sync.OnceValue(func() []block {
	var all []block
	for _, b := range []struct {
		class    Class
		prefixes []string
	}{
		{Metadata, []string{
			"169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", // EC2, ECS, EKS
			"168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", // Azure, Alibaba, Oracle
			"fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128", // EC2, EKS, Google
		}},
		{Loopback, []string{"127.0.0.0/8", "::1/128"}},
		{LinkLocal, []string{"169.254.0.0/16", "fe80::/10"}},
		{Private, []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"}},
		{Shared, []string{"100.64.0.0/10"}},
		{Multicast, []string{"224.0.0.0/4", "ff00::/8"}},
		{Embedded, []string{"64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0:0/96", "192.88.99.0/24"}},
		{Reserved, []string{
			"0.0.0.0/8", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
			"192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24",
			"100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "2620:4f:8000::/48",
		}},
	} {
		for _, p := range b.prefixes {
			all = append(all, block{netip.MustParsePrefix(p), b.class})
		}
	}
	return all
})

// global is the only range of IPv6 from which public addresses are given out.
var global = netip.MustParsePrefix("2000::/3")

// Classify says what a is. An IPv4 address that is mapped into IPv6 is what the
// IPv4 address is; one with a zone is link-local.
func Classify(a netip.Addr) Class {
	c, _ := classify(a)
	return c
}

func classify(a netip.Addr) (Class, netip.Prefix) {
	if !a.IsValid() {
		return Unknown, netip.Prefix{}
	}
	if a.Zone() != "" {
		return LinkLocal, netip.Prefix{}
	}
	a = a.Unmap()
	for _, b := range blocks() {
		if b.prefix.Contains(a) {
			return b.class, b.prefix
		}
	}
	if a.Is6() && !global.Contains(a) {
		return Reserved, netip.Prefix{}
	}
	return Public, netip.Prefix{}
}

// opens reports whether p, written by an operator, names a as what it is. What
// is not public is opened only by a range that lies within its block: 10.0.0.0/8
// opens private addresses, 168.0.0.0/7 no metadata.
func opens(p netip.Prefix, a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" || !p.Contains(a) {
		return false
	}
	class, within := classify(a)
	switch class {
	case Public:
		return true
	case Unknown, Multicast, Embedded:
		return false
	}
	return within.IsValid() && p.Bits() >= within.Bits()
}
