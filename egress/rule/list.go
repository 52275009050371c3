// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"fmt"
	"net/netip"
)

// List decides about connections. The zero List allows nothing. It is not
// changed after it was made and may be used from many goroutines.
type List struct {
	Allow []Rule
	Deny  []Rule
	// Web are what AllowWeb read, layer by layer. Each layer that says something
	// of a host holds it to that, whatever other entries and layers allow.
	Web [][]Rule
	// Ended are the hosts whose TLS is ended here although no entry says
	// anything of requests: they get secrets, or headers that a client asked for.
	Ended []Rule
}

// Decision is what a list says of one connection or name. The zero Decision
// refuses.
type Decision struct {
	Allow bool
	// Rule is what decided, as it was written; empty when nothing did.
	Rule string
	// From is where the rule stands.
	From string
	// Reason is a phrase for people, when it is refused.
	Reason string
	// Open says that an entry of its own would allow it.
	Open bool
	// Spent says that it was allowed so many times and is not any more.
	Spent bool
}

func allowed(r Rule) Decision { return Decision{Allow: true, Rule: r.String(), From: r.From} }

func denied(r Rule, reason string) Decision {
	return Decision{Rule: r.String(), From: r.From, Reason: reason}
}

// reasons, in the words that reach people and records
const (
	notListed   = "it is not in the allow-list"
	deniedBy    = "the deny-list names it"
	portClosed  = "that port is not allowed"
	notByNumber = "addresses that no allowed name led to are refused"
)

// NetworkOff is why a list that allows nothing refuses.
const NetworkOff = "the network is off"

// Empty reports whether the list allows nothing at all.
func (l *List) Empty() bool { return l == nil || len(l.Allow) == 0 }

// Resolve says whether n may be looked up: some port of it is allowed.
func (l *List) Resolve(n Name) Decision {
	switch {
	case l.Empty():
		return Decision{Reason: NetworkOff, Open: true}
	case n.IsZero():
		return Decision{Reason: notListed, Open: true}
	}
	for _, r := range l.Deny {
		if r.ports == everyPort && r.matchName(n) {
			return denied(r, deniedBy)
		}
	}
	for _, r := range l.Allow {
		if r.leads(n) {
			return allowed(r)
		}
	}
	return Decision{Reason: notListed, Open: true}
}

// Name says whether a connection to n at port may be made. The caller resolves
// n then and asks Address about each result.
func (l *List) Name(n Name, port uint16) Decision {
	if d := l.Resolve(n); !d.Allow {
		return d
	}
	for _, r := range l.Deny {
		if r.matchName(n) && r.ports.has(port) {
			return denied(r, deniedBy)
		}
	}
	for _, r := range l.Allow {
		if r.leads(n) && r.ports.has(port) {
			return allowed(r)
		}
	}
	return Decision{Reason: portClosed, Open: true}
}

// Denied says whether the deny-list names n at port, or requests to it are
// judged: for a name that only the bytes of a connection told, which was made by
// number. Allow is set when nothing is against it.
func (l *List) Denied(n Name, port uint16) Decision {
	if l == nil {
		return Decision{Reason: notListed, Open: true}
	}
	for _, r := range l.Deny {
		if r.ports.has(port) && r.matchName(n) {
			return denied(r, deniedBy)
		}
	}
	if l.Inspected(n, port) {
		return Decision{Reason: "requests to it are judged, which needs its name"}
	}
	return Decision{Allow: true}
}

// Address says whether the address that an allowed name led to may be dialled.
// own are the host's own addresses.
func (l *List) Address(a netip.AddrPort, own func(netip.Addr) bool) Decision {
	return l.address(a, own, true)
}

// Number says whether a connection to an address may be made that no name led
// to.
func (l *List) Number(a netip.AddrPort, own func(netip.Addr) bool) Decision {
	return l.address(a, own, false)
}

func (l *List) address(to netip.AddrPort, own func(netip.Addr) bool, named bool) Decision {
	a := to.Addr().Unmap()
	if l == nil || !named && len(l.Allow) == 0 {
		c := Classify(a)
		return Decision{Reason: NetworkOff, Open: c == Public || special(c).Open}
	}
	for _, r := range l.Deny {
		if r.ports.has(to.Port()) && (r.net.IsValid() && r.net.Contains(a) || r.all) {
			return denied(r, deniedBy)
		}
	}
	class := Classify(a)
	if class == Public && (own == nil || own(a)) {
		class = Own
	}
	for _, r := range l.Allow {
		switch {
		case !r.net.IsValid() && !r.all, !r.ports.has(to.Port()):
		case (r.all || r.public && r.net.Contains(a)) && class == Public:
			return allowed(r)
		case !r.public && r.net.IsValid() && opens(r.net, a):
			return allowed(r)
		}
	}
	switch {
	case class != Public:
		return special(class)
	case named:
		return Decision{Allow: true}
	}
	return Decision{Reason: notByNumber, Open: true}
}

func (r Rule) matchName(n Name) bool { return r.all || r.host.Match(n) }

// special refuses an address that is not public.
func special(c Class) Decision {
	switch c {
	case Unknown, Multicast, Embedded:
		return Decision{Reason: fmt.Sprintf("its address is %s, which nothing opens", c)}
	case Metadata: // a hint would tell how to reach it
		return Decision{Reason: "its address is metadata, a cloud's credentials, which only an entry for the address opens"}
	case Own:
		return Decision{Reason: "its address is this host's own, which only an entry for the address opens", Open: true}
	}
	return Decision{Reason: fmt.Sprintf("its address is %s, which only an entry for the address opens", c), Open: true}
}
