// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
)

// ThisHost is the name of this host's loopback inside a sandbox, whose own loopback
// has the usual names. It leads there by an entry that is this word with one port, and
// by nothing else: no wildcard, no internet, no address. The top-level domain is
// reserved for private use (ICANN, resolution 2024.07.29.06).
const ThisHost = "host.caisson.internal"

// thisHost is that name.
var thisHost = func() Name {
	n, err := ParseName(ThisHost)
	if err != nil {
		panic(err)
	}
	return n
}()

// IsThisHost reports whether n is the name of this host's loopback.
func IsThisHost(n Name) bool { return n == thisHost }

// Loopbacks are where that name leads, in the order in which they are tried.
func Loopbacks() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// checkLocal refuses to open more of this host's loopback than one port: what listens
// there counts on being alone.
func (r Rule) checkLocal() error {
	if r.Local() && (r.ports.web || r.ports.first != r.ports.last) {
		return errors.New("it is this host's loopback, which opens one port at a time: " + ThisHost + ":8080")
	}
	return nil
}

// Local says that r is about this host's loopback and nothing else.
func (r Rule) Local() bool { return r.host.Base() == thisHost && r.host.Match(thisHost) }

// leads says whether r, of an allow-list, lets connections to n through at all.
func (r Rule) leads(n Name) bool {
	if n == thisHost {
		return r.Local()
	}
	return r.matchName(n)
}

// Local says whether ThisHost may be dialled at an address.
func (l *List) Local(a netip.AddrPort) Decision {
	d := l.Name(thisHost, a.Port())
	if !d.Allow {
		return d
	}
	for _, r := range l.Deny {
		if r.ports.has(a.Port()) && (r.net.IsValid() && r.net.Contains(a.Addr().Unmap()) || r.all) {
			return denied(r, deniedBy)
		}
	}
	if !slices.Contains(Loopbacks(), a.Addr().Unmap()) {
		return Decision{Reason: "its address is not this host's loopback"}
	}
	return d
}

// Means says what an entry of an allow-list means where that is not what it looks
// like; empty for most.
func Means(text string) string {
	rules, err := Allow(text, "")
	switch {
	case err != nil:
		return ""
	case strings.HasPrefix(text, presetPrefix):
		var hosts []string
		for _, r := range rules {
			hosts = append(hosts, r.Text)
		}
		return strings.Join(hosts, " ")
	case rules[0].Local():
		return "this host's loopback"
	case rules[0].public:
		return "but not where they are this host's own"
	case rules[0].Inside():
		return "inside, that is the sandbox itself"
	}
	return ""
}

// Inside says that r names what is the sandbox's own loopback for all who ask inside,
// by name or by number.
func (r Rule) Inside() bool {
	h := r.host.Base().String()
	return h == "localhost" || strings.HasSuffix(h, ".localhost") || r.net.IsValid() && Classify(r.net.Addr()) == Loopback
}

// LocalInstead is the entry for this host's loopback at the port that an entry names.
func LocalInstead(text string) string {
	if _, port, err := cut(text); err == nil && port != "" {
		return ThisHost + ":" + port
	}
	return ThisHost + ":PORT"
}
