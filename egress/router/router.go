// SPDX-License-Identifier: Apache-2.0

// Package router is the other end of a sandbox's only wire: a TCP/IP stack in
// user space that decides about every connection and makes the allowed ones
// itself.
//
// There is no way around it, because there is no other wire: no route of the
// host, no proxy that a program may leave unset. Packets are read by gVisor's
// stack; TCP to an address that an allowed name led to, or that a range was
// written for, is dialled from here, everything else is reset. UDP is for the
// resolver alone; ICMP, IPv6, fragments and other senders end at the link.
//
// A decision is made three times: when a name is asked for, when a connection
// begins, and on the very address that is dialled. Where the bytes name a host
// (TLS, HTTP) that must be the same one. Where an entry says something of requests,
// or a secret goes there, TLS is ended here and each request is a decision, too.
package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// Options say what a router does.
type Options struct {
	// Wire reads and writes one packet at a time; an empty packet or an error
	// is its end. The router closes it.
	Wire io.ReadWriteCloser
	// MTU is how long a packet may be, in bytes; at least 576.
	MTU int
	// Guest and Gateway are the IPv4 addresses of the wire's ends.
	Guest, Gateway netip.Addr
	// Headers says that struct virtio_net_hdr is before each packet, as on a TUN
	// device with IFF_VNET_HDR. Checksums are not written, and not looked at, in
	// either case: nothing between the two ends can change a packet.
	Headers bool

	// Rules decide. nil allows nothing.
	Rules  *rule.List
	Ends   *Ends // nil ends no TLS and has no secrets
	Budget wire.Budget

	// Closed says that nothing is ever let through. Datagrams are answered with ICMP then, so
	// that who sent them need not wait.
	Closed bool

	// Event is told what happened, from many goroutines. It must not be nil.
	Event func(wire.Event)

	// Lookup resolves a name when it is dialled; nil asks the host's resolver.
	Lookup func(context.Context, rule.Name) ([]netip.Addr, error)
	// Own says which addresses are this host's; nil looks at its interfaces.
	Own func(netip.Addr) bool
}

// Router serves one wire.
type Router struct {
	o     Options
	stack *stack.Stack
	link  *link
	zone  Zone
	dns   *gonet.UDPConn
	web   *http.Server
	conns chan net.Conn // what web serves

	rules  atomic.Pointer[rule.List]
	ends   atomic.Pointer[Ends]
	ctx    context.Context
	end    context.CancelFunc
	at     work
	record *recorder
	pace   [2]*rate.Limiter // sent, received; nil without a bound

	queries, connections atomic.Int64 // against the budget; also those that were not made
	made                 atomic.Int64 // connections
	requests             requests
	sent, received       atomic.Int64

	places chan struct{} // has an element for each connection
	wait   atomic.Int64  // for a place: placeTime, unless a test needs another

	mu     sync.Mutex
	open   map[*conn]struct{}
	closed bool // nothing goes through any more
}

// work counts goroutines, and takes no new ones once it is waited for.
type work struct {
	mu   sync.Mutex
	wg   sync.WaitGroup
	over bool
}

func (w *work) do(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return false
	}
	w.wg.Go(f)
	return true
}

func (w *work) wait() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.wg.Wait()
}

// New makes a router of o.Wire, which reads nothing before Begin.
func New(o Options) (*Router, error) {
	switch {
	case !o.Guest.Is4() || !o.Gateway.Is4() || o.Guest == o.Gateway:
		return nil, fmt.Errorf("router: %v and %v are not the two ends of a wire", o.Guest, o.Gateway)
	case o.MTU < 576 || o.MTU > 65535:
		return nil, fmt.Errorf("router: an MTU of %d", o.MTU)
	case o.Event == nil || o.Wire == nil:
		return nil, errors.New("router: no receiver of events, or no wire to read")
	}
	if o.Lookup == nil {
		o.Lookup = lookup
	}
	if o.Own == nil {
		o.Own = (&interfaces{}).own
	}
	r := &Router{o: o, record: newRecorder(o.Event), open: map[*conn]struct{}{}, conns: make(chan net.Conn), places: make(chan struct{}, maxOpen)}
	r.ctx, r.end = context.WithCancel(context.Background())
	r.rules.Store(o.Rules)
	r.ends.Store(o.Ends)
	r.wait.Store(int64(placeTime))
	if b := o.Budget.Bandwidth; b > 0 {
		for i := range r.pace {
			r.pace[i] = rate.NewLimiter(rate.Limit(b), int(max(b/10, copySize)))
		}
	}
	if err := r.newStack(); err != nil {
		r.end()
		o.Wire.Close()
		return nil, err
	}
	r.newWeb()
	r.at.do(r.serveDNS)
	return r, nil
}

// Begin has the router read what the sandbox sends, and what has waited on the wire. It
// is called once, and not after Close.
func (r *Router) Begin() { r.link.begin() }

// Change puts other rules in force and closes the connections that they do not
// allow, those with a request under way that they do not, and those whose requests
// are judged now and were not, or the other way round.
func (r *Router) Change(rules *rule.List, ends *Ends) {
	if before := r.ends.Swap(ends); before != nil {
		for _, s := range before.Secrets {
			if s.renews != nil { // a waiter for it waits no longer
				s.renews.take(wire.Renewal{Problem: "the rules have changed meanwhile"})
			}
		}
	}
	r.rules.Store(rules)
	for _, c := range r.list() {
		if d := c.still(); !d.Allow || r.judged(c.t) != c.judged || !c.stillAsked() {
			c.abort()
		}
	}
}

// judged reports whether requests to t are judged one by one.
func (r *Router) judged(t target) bool { return r.rules.Load().Inspected(t.name, t.addr.Port()) }

func (r *Router) list() []*conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*conn, 0, len(r.open))
	for c := range r.open {
		all = append(all, c)
	}
	return all
}

// Live is how many connections there are now, those that are being made included.
func (r *Router) Live() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// Gone is closed when the wire has ended.
func (r *Router) Gone() <-chan struct{} { return r.link.gone }

// shut lets nothing through any more.
func (r *Router) shut() {
	r.bar()
	r.end()
	for _, c := range r.list() {
		c.abort()
	}
}

// exceed ends everything because a budget is used up.
func (r *Router) exceed(budget string) {
	if r.bar() {
		r.ended(budget)
	}
	r.shut()
}

// bar lets nothing begin any more; true for the first who asks.
func (r *Router) bar() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.closed
	r.closed = true
	return first
}

// ended tells that a budget is used up.
func (r *Router) ended(budget string) { r.o.Event(wire.Event{Kind: wire.Exceeded, Budget: budget}) }

// Close reads what is on the wire, ends every connection, tells Done, and waits until
// nothing of the router is left. Closing a device takes the kernel a while, which the owner need
// not wait for.
func (r *Router) Close() {
	r.link.finish()
	r.link.hasten()
	r.shut()
	r.dns.Close()
	r.web.Close()
	r.at.wait()
	r.record.finish(wire.Totals{
		Connections: r.made.Load(), Queries: r.queries.Load(), Sent: r.sent.Load(), Received: r.received.Load(),
	})
	r.link.wire.Close()
	// Before the stack waits for it: the stack holds its lock while it does, and
	// a packet that is being delivered wants that lock.
	r.link.Wait()
	r.stack.Close()
	r.stack.Wait()
}

// addr is an address as the stack has it.
func addr(a netip.Addr) tcpip.Address { return tcpip.AddrFrom4(a.As4()) }
