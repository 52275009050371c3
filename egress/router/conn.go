// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// copySize is how much is moved at once, in bytes.
const copySize = 64 << 10

// conn is one connection: the sandbox's side, which the stack holds, and ours.
type conn struct {
	r       *Router
	t       target
	rule    rule.Decision
	judged  bool // requests are judged one by one
	started time.Time

	endpoint tcpip.Endpoint
	down     *gonet.TCPConn
	in       *bufio.Reader // reads down

	sent, received atomic.Int64

	unresolved bool // its name has no address

	placed bool // it has taken one of the router's places

	mu   sync.Mutex
	up   []*metered // those that are open; HTTP may need one after the other
	to   netip.Addr // where the first went
	gone bool
	// asked are the judged requests that are under way: a stream that one was upgraded
	// to has no end of its own. claimed is whom TLS names on a connection by number.
	asked   map[*rule.Request]struct{}
	claimed rule.Name
}

// accept takes the beginning of a connection. It is not answered before the
// connection on our side stands, so that the sandbox sees what became of it.
func (r *Router) accept(req *tcp.ForwarderRequest) {
	if !r.at.do(func() { r.connect(req) }) {
		r.link.refuse(req)
	}
}

func (r *Router) connect(req *tcp.ForwarderRequest) {
	id := req.ID()
	to := netip.AddrPortFrom(netip.AddrFrom4(id.LocalAddress.As4()), id.LocalPort)
	c := &conn{r: r, t: target{name: r.zone.Name(to.Addr()), addr: to}, started: time.Now()}
	c.rule, c.judged = r.decide(c.t), r.judged(c.t)
	up, err := r.begin(c)
	if err != nil {
		r.link.refuse(req)
		c.failed(err)
		return
	}
	queue := new(waiter.Queue)
	ep, terr := req.CreateEndpoint(queue)
	if terr != nil {
		r.link.refuse(req)
		up.Close()
		c.finish("the sandbox gave up")
		return
	}
	req.Complete(false)
	c.down = gonet.NewTCPConn(queue, ep)
	c.in = bufio.NewReaderSize(c.down, BufferSize)
	c.mu.Lock()
	c.endpoint = ep
	gone := c.gone
	c.mu.Unlock()
	if gone { // aborted while the handshake was under way
		c.abort()
	}
	c.serve(up)
}

var (
	errShut    = errors.New("the network is closed")
	errCrowded = &refusal{Decision: rule.Decision{Reason: "too many connections at once"}}
)

// begin dials and puts c into the table of what is open, where a change of the
// rules finds it.
func (r *Router) begin(c *conn) (net.Conn, error) {
	if d := r.decide(c.t); !d.Allow {
		return nil, &refusal{Decision: d}
	}
	if err := r.place(c); err != nil {
		return nil, err
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, errShut
	}
	r.open[c] = struct{}{}
	r.mu.Unlock()
	return c.dial()
}

// place takes one of the router's places. One who has closed as many as there
// are and opens others at once is ahead of us: for that we wait.
func (r *Router) place(c *conn) error {
	late := time.NewTimer(time.Duration(r.wait.Load()))
	defer late.Stop()
	select {
	case r.places <- struct{}{}:
		c.placed = true
		return nil
	case <-r.ctx.Done():
		return errShut
	case <-late.C:
		return errCrowded
	}
}

// spend counts a connection of ours against the budget.
func (r *Router) spend() error {
	if maximum := r.o.Budget.Connections; r.connections.Add(1) > maximum && maximum > 0 {
		r.connections.Add(-1)
		r.exceed("connections")
		return errShut
	}
	return nil
}

// dial makes a connection on our side, which ends with c.
func (c *conn) dial() (net.Conn, error) {
	if err := c.r.spend(); err != nil {
		return nil, err
	}
	up, err := c.r.dial(c.r.ctx, c.t)
	if err != nil {
		return nil, err
	}
	c.r.made.Add(1)
	m := &metered{Conn: up, c: c}
	c.mu.Lock()
	if c.gone {
		c.mu.Unlock()
		up.Close()
		return nil, errShut
	}
	c.up = append(c.up, m)
	if a, err := netip.ParseAddrPort(up.RemoteAddr().String()); err == nil && !c.to.IsValid() {
		c.to = a.Addr()
	}
	c.mu.Unlock()
	// The rules may have changed while this was being made.
	if d := c.still(); !d.Allow {
		m.Close()
		return nil, &refusal{Decision: d}
	}
	if c.r.judged(c.t) != c.judged {
		m.Close()
		return nil, errShut
	}
	return m, nil
}

// still asks the rules again, about everything that is known by now.
func (c *conn) still() rule.Decision {
	d := c.r.decide(c.t)
	if !d.Allow {
		return d
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, up := range c.up {
		a, err := netip.ParseAddrPort(up.RemoteAddr().String())
		if err != nil {
			return rule.Decision{Reason: "its address cannot be read"}
		}
		if d := c.r.reachable(c.t, a); !d.Allow {
			return d
		}
	}
	if !c.claimed.IsZero() {
		return c.r.rules.Load().Denied(c.claimed, c.t.addr.Port())
	}
	return d
}

// asks takes note of a request before the rules are asked about it, so that a change
// of them either is what it is judged by or finds it here; it returns what forgets it.
func (c *conn) asks(q *rule.Request) (forget func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil {
		c.asked = map[*rule.Request]struct{}{}
	}
	c.asked[q] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.asked, q)
	}
}

// stillAsked reports whether the rules allow what is under way.
func (c *conn) stillAsked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range c.asked {
		if d, _ := c.r.rules.Load().Request(c.t.name, c.t.addr.Port(), *q); !d.Allow {
			return false
		}
	}
	return true
}

// abort ends c from either side at once.
func (c *conn) abort() {
	c.closeUp()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endpoint != nil {
		c.endpoint.Abort()
	}
}

// closeUp closes our side, for good.
func (c *conn) closeUp() {
	c.mu.Lock()
	c.gone = true
	open := c.up
	c.up = nil
	c.mu.Unlock()
	for _, up := range open {
		up.Conn.Close()
	}
}

// serve moves bytes once it is known what they are.
func (c *conn) serve(up net.Conn) {
	early := c.listen(up)
	kind, hello, err := c.peek()
	spoke := early.stop()
	var late net.Error
	if errors.As(err, &late) && late.Timeout() { // words without an end
		c.end(c.relay(up, &Guard{R: c.in}, up))
		return
	}
	switch {
	case kind == TLS:
		if err == nil {
			err = c.checkHello(hello)
		}
		if err == nil && c.judged {
			c.serveTLS(up)
			return
		}
		if err == nil {
			from := NewAnswer(up)
			c.end(c.relay(up, &Rest{R: c.in, Hello: hello, Answer: from, Check: c.checkAgain}, from))
			return
		}
	case c.speaksWeb() || kind == HTTP && !spoke: // no server of HTTP speaks first
		if err == nil {
			c.serveWeb(up)
			return
		}
	}
	var refused *refusal
	var broken *net.OpError
	switch {
	case errors.As(err, &refused):
		c.end(err)
	case errors.As(err, &broken):
		c.finish("the sandbox broke it off")
	case err != nil && (err != io.EOF || kind != Opaque):
		c.end(&refusal{Decision: rule.Decision{Reason: err.Error()}})
	default:
		c.end(c.relay(up, c.in, up))
	}
}

// end is that of a connection whose bytes were passed on, or refused.
func (c *conn) end(err error) {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
	case errors.Is(err, ErrLate):
		refused = &refusal{Decision: rule.Decision{Reason: err.Error()}}
	default:
		c.finish("")
		return
	}
	c.r.recordRefused(c.t, refused)
	c.finish(refused.Reason)
}

// speaksWeb says that nothing but HTTP is taken, inside of TLS or not.
func (c *conn) speaksWeb() bool { return c.judged || c.t.addr.Port() == 80 }

// unsureTime is how long a client may take from its first byte to what tells an
// HTTP request from other words; longer, and the words are passed on.
const unsureTime = time.Second

// peek looks at the client's first bytes.
func (c *conn) peek() (Kind, Hello, error) {
	b, err := c.in.Peek(1)
	if err != nil {
		return Opaque, Hello{}, err
	}
	if b[0] != FirstOfTLS && !c.speaksWeb() {
		_ = c.down.SetReadDeadline(time.Now().Add(unsureTime))
		defer c.down.SetReadDeadline(time.Time{})
	}
	return Peek(c.in)
}

// checkHello wants the name that led here in the ClientHello too.
func (c *conn) checkHello(h Hello) error {
	switch {
	case h.Encrypted:
		return &refusal{Decision: rule.Decision{Reason: "an encrypted ClientHello hides whom it names"}}
	case c.t.name.IsZero():
		c.mu.Lock()
		c.claimed = h.Server // before it is decided: a change of the rules finds it
		c.mu.Unlock()
		if d := c.r.rules.Load().Denied(h.Server, c.t.addr.Port()); !d.Allow {
			return &refusal{Decision: d}
		}
	case h.Server.IsZero():
		return &refusal{Decision: rule.Decision{Reason: "TLS that does not name the server"}}
	case h.Server != c.t.name:
		return &refusal{Decision: rule.Decision{Reason: "TLS that names " + h.Server.String() + " instead"}}
	}
	return nil
}

// checkAgain wants it in a second ClientHello, too, of which err says what is wrong.
func (c *conn) checkAgain(h Hello, err error) error {
	if err != nil {
		return &refusal{Decision: rule.Decision{Reason: err.Error()}}
	}
	return c.checkHello(h)
}

// failed ends a connection that never stood.
func (c *conn) failed(err error) {
	var refused *refusal
	if errors.As(err, &refused) {
		c.r.recordRefused(c.t, refused)
		c.forget()
		return
	}
	if errors.Is(err, errShut) {
		c.forget()
		return
	}
	var dns *net.DNSError
	c.unresolved = errors.As(err, &dns)
	c.finish(plain(err))
}

// plain is what went wrong without the addresses of this host.
func plain(err error) string {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return "the name cannot be resolved: " + dns.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return "it cannot be reached: " + op.Err.Error()
	}
	return "it cannot be reached: " + err.Error()
}

// finish ends c and records it.
func (c *conn) finish(reason string) {
	rec := wire.Record{
		Protocol: wire.TCP, Host: c.t.name.String(), Port: int(c.t.addr.Port()), Rule: c.rule.Rule, From: c.rule.From, Reason: reason, Unresolved: c.unresolved,
		Sent: c.sent.Load(), Received: c.received.Load(), Started: c.started, Duration: time.Since(c.started),
	}
	if c.t.name.IsZero() {
		rec.Address = c.t.addr.Addr().String()
	}
	c.mu.Lock()
	if c.to.IsValid() {
		rec.Address = c.to.String()
	}
	c.mu.Unlock()
	if reason != "" {
		c.abort()
	}
	c.forget()
	c.r.record.connection(rec)
}

// forget closes what is open and takes c out of the table.
func (c *conn) forget() {
	c.closeUp()
	if c.down != nil {
		c.down.Close()
		_ = c.down.SetDeadline(time.Time{}) // its timers would stay until they are due
	}
	c.r.mu.Lock()
	delete(c.r.open, c)
	c.r.mu.Unlock()
	if c.placed {
		c.placed = false
		<-c.r.places
	}
}
