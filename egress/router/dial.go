// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

const (
	dialTime   = 10 * time.Second // for a connection with its lookup
	maxTried   = 4                // addresses of one name
	oneAddress = 4 * time.Second  // for each but the last
)

// target is where a connection goes: a name and a port, or an address.
type target struct {
	name rule.Name
	addr netip.AddrPort // as the sandbox dialled it
}

// String is the host and the port.
func (t target) String() string {
	if t.name.IsZero() {
		return t.addr.String()
	}
	return net.JoinHostPort(t.name.String(), strconv.Itoa(int(t.addr.Port())))
}

// decide asks the rules whether the connection may be made at all. For a name
// the addresses are asked for again.
func (r *Router) decide(t target) rule.Decision {
	if !t.name.IsZero() {
		return r.rules.Load().Name(t.name, t.addr.Port())
	}
	return r.rules.Load().Number(t.addr, r.o.Own)
}

// reachable asks the rules about one address that t led to.
func (r *Router) reachable(t target, a netip.AddrPort) rule.Decision {
	switch {
	case t.name.IsZero():
		return r.rules.Load().Number(a, r.o.Own)
	case rule.IsThisHost(t.name):
		return r.rules.Load().Local(a)
	}
	return r.rules.Load().Address(a, r.o.Own)
}

// refusal is a decision of the rules as an error.
type refusal struct {
	rule.Decision
	addr netip.Addr // what was refused, when it was an address
}

func (e *refusal) Error() string { return e.Reason }

// dial makes the connection from this host. A *refusal says that a rule is
// against it.
func (r *Router) dial(ctx context.Context, t target) (net.Conn, error) {
	if d := r.decide(t); !d.Allow {
		return nil, &refusal{Decision: d}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	addrs := []netip.Addr{t.addr.Addr()}
	if rule.IsThisHost(t.name) {
		addrs = rule.Loopbacks() // whatever a resolver says of that name
	} else if !t.name.IsZero() {
		found, err := r.o.Lookup(ctx, t.name)
		if err != nil {
			return nil, err
		}
		addrs = found
	}
	return r.dialAny(ctx, t, addrs)
}

// dialAny tries addresses in turn, IPv4 first. One that is refused does not
// keep another from being tried: names lead to both, on purpose sometimes.
func (r *Router) dialAny(ctx context.Context, t target, addrs []netip.Addr) (net.Conn, error) {
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.Unmap().BitLen() - b.Unmap().BitLen() })
	var refused *refusal
	var failed error
	for i, a := range addrs[:min(len(addrs), maxTried)] {
		to := netip.AddrPortFrom(a.Unmap(), t.addr.Port())
		if d := r.reachable(t, to); !d.Allow {
			refused = &refusal{d, to.Addr()}
			continue
		}
		limit := oneAddress
		if i == len(addrs)-1 {
			limit = dialTime
		}
		c, err := r.dialOne(ctx, t, to, limit)
		if err == nil {
			return c, nil
		}
		failed = err
	}
	switch {
	case failed != nil:
		return nil, failed
	case refused != nil:
		return nil, refused
	}
	return nil, errors.New("the name has no address")
}

func (r *Router) dialOne(ctx context.Context, t target, to netip.AddrPort, limit time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: limit, Control: func(_, address string, _ syscall.RawConn) error {
		// The last word is on what the kernel is about to be asked for.
		a, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if d := r.reachable(t, a); !d.Allow {
			return &refusal{d, a.Addr()}
		}
		return nil
	}}
	return d.DialContext(ctx, "tcp", to.String())
}

// lookup asks the host's resolver. The dot at the end keeps search domains out;
// a name of one part (db, localhost) is meant as the host means it, and in
// /etc/hosts it stands without a dot.
func lookup(ctx context.Context, n rule.Name) ([]netip.Addr, error) {
	s := n.String()
	if strings.Contains(s, ".") {
		s = n.Absolute()
	}
	r := net.Resolver{PreferGo: true}
	return r.LookupNetIP(ctx, "ip", s)
}

// interfaces knows the host's own addresses.
type interfaces struct {
	mu    sync.Mutex
	known map[netip.Addr]bool
	read  time.Time
}

// staleAfter is how long the list of addresses is taken for true.
const staleAfter = 2 * time.Second

// own reports whether a is this host's; it is, as long as that cannot be read.
func (i *interfaces) own(a netip.Addr) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.known == nil || time.Since(i.read) > staleAfter {
		known, err := ownAddresses()
		if err != nil {
			return true
		}
		i.known, i.read = known, time.Now()
	}
	return i.known[a.Unmap().WithZone("")]
}

func ownAddresses() (map[netip.Addr]bool, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	known := map[netip.Addr]bool{}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			return nil, fmt.Errorf("interface address %s: %w", a, err)
		}
		known[p.Addr().Unmap().WithZone("")] = true
	}
	return known, nil
}

// recordRefused records what dial refused.
func (r *Router) recordRefused(t target, e *refusal) {
	rec := wire.Record{Protocol: wire.TCP, Host: t.name.String(), Port: int(t.addr.Port()), Rule: e.Rule, From: e.From, Reason: e.Reason, Open: e.Open}
	switch {
	case t.name.IsZero():
		rec.Address = t.addr.Addr().String()
	case e.addr.IsValid():
		rec.Address = e.addr.String()
	}
	r.record.refuse(rec)
}
