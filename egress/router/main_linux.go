// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// The router's process reads packets that hostile code sends, and it has the host's
// network. So it has no rights on the host (a private uid where caisson is root). It
// is started without a descriptor but the wire and the socket to its owner. It can
// start no process, write no file and signal no process, and reads names of hosts
// only (/etc). When the socket to its owner closes, it ends. When it ends, the
// sandbox's wire is not read any more.

// Main runs the router in such a process and does not return. It is called first
// thing in main.
func Main() {
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	// A terminal's signals are for the owner.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	debug.SetMemoryLimit(softMemory)
	owner, err := takeOwner()
	if err != nil {
		fmt.Fprintln(os.Stderr, wire.Argv0+" is started by caisson, not by hand:", err)
		os.Exit(125)
	}
	p := &process{owner: owner, in: newLines(owner), out: json.NewEncoder(owner)}
	if err := p.run(); err != nil {
		p.send(wire.Event{Kind: wire.Failed, Error: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

// takeOwner takes over the socket to the owner.
func takeOwner() (net.Conn, error) {
	_ = unix.Close(wire.Program)
	syscall.CloseOnExec(wire.FD)
	f := os.NewFile(wire.FD, "owner")
	defer f.Close()
	return net.FileConn(f)
}

// newLines reads lines of a bounded length.
func newLines(r io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(nil, wire.MaxOrder)
	return s
}

// process is the router's process.
type process struct {
	owner net.Conn
	in    *bufio.Scanner

	mu  sync.Mutex
	out *json.Encoder // guarded by mu
}

func (p *process) send(e wire.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(e) // an owner that is gone is noticed by reading
}

// ready says so in words of its own: encoding/json learns what events look like beside
// what the first packet wants, not before.
func (p *process) ready() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(p.owner, `{"kind":"`+string(wire.Ready)+"\"}\n")
}

// read takes the next line from the owner.
func (p *process) read(v any) error {
	if !p.in.Scan() {
		if err := p.in.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	return json.Unmarshal(p.in.Bytes(), v)
}

// run does everything between the order and the end.
func (p *process) run() error {
	var order wire.Order
	if err := p.read(&order); err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}
	o, err := optionsOf(&order)
	if err != nil {
		return err
	}
	f, err := takeWire()
	if err != nil {
		return err
	}
	o.Wire = f
	look := func() error { return nil }
	if order.Device {
		d, err := NewDevice(f)
		if err != nil {
			return fmt.Errorf("the wire: %w", err)
		}
		o.Wire, o.Headers, look = d, true, d.Look
	}
	o.Event = p.send
	if err := confine(order.UID, order.Closed); err != nil {
		return err
	}
	p.ready()
	r, err := New(o)
	if err != nil {
		return err
	}
	if begin, err := p.told(); err != nil || !begin {
		return err
	}
	if err := look(); err != nil {
		return fmt.Errorf("the wire: %w", err)
	}
	r.Begin()
	return p.serve(r, order.Closed)
}

// told waits for the owner's word that packets are to be read.
func (p *process) told() (begin bool, err error) {
	var c wire.Command
	if err := p.read(&c); errors.Is(err, io.EOF) {
		return false, nil // the owner is gone
	} else if err != nil {
		return false, fmt.Errorf("reading the first command: %w", err)
	}
	switch c.Kind {
	case wire.Begin:
		return true, nil
	case wire.End:
		return false, nil
	}
	return false, fmt.Errorf("the first command is %q", c.Kind)
}

// serve carries out the owner's commands until it hangs up.
func (p *process) serve(r *Router, closed bool) error {
	for {
		var c wire.Command
		if err := p.read(&c); errors.Is(err, io.EOF) {
			return nil // the owner is gone, and with this process the network
		} else if err != nil {
			return fmt.Errorf("reading a command: %w", err)
		}
		switch {
		case c.Kind == wire.Change && !closed:
			// What cannot be read allows nothing.
			l, ends, err := rulesOf(c.Rules)
			r.Change(l, ends)
			if err != nil {
				return err
			}
			p.send(wire.Event{Kind: wire.Changed})
		case c.Kind == wire.Count:
			p.send(wire.Event{Kind: wire.Live, Live: r.Live()})
		case c.Kind == wire.Renewed:
			if c.Renewal != nil {
				r.Renewed(*c.Renewal)
			}
		case c.Kind == wire.End:
			r.Close()
			return nil
		default:
			return fmt.Errorf("the command %q is not known", c.Kind)
		}
	}
}

// takeWire takes over the sandbox's wire. It is not blocking, so that the
// runtime waits for it and a close wakes who reads.
func takeWire() (*os.File, error) {
	syscall.CloseOnExec(wire.NIC)
	if err := unix.SetNonblock(wire.NIC, true); err != nil {
		return nil, fmt.Errorf("the wire: %w", err)
	}
	return os.NewFile(wire.NIC, "wire"), nil
}

// optionsOf turns an order into a router's options.
func optionsOf(o *wire.Order) (Options, error) {
	guest, err := netip.ParseAddr(o.Guest)
	if err != nil {
		return Options{}, err
	}
	gateway, err := netip.ParseAddr(o.Gateway)
	if err != nil {
		return Options{}, err
	}
	l, ends, err := rulesOf(&o.Rules)
	if err != nil {
		return Options{}, err
	}
	if o.Closed && !l.Empty() {
		return Options{}, errors.New("a network that is closed has an allow-list")
	}
	return Options{MTU: o.MTU, Guest: guest, Gateway: gateway, Rules: l, Ends: ends, Budget: o.Budget, Closed: o.Closed}, nil
}

// rulesOf reads what an order or a change says. A fault anywhere gives nothing,
// which allows nothing.
func rulesOf(r *wire.Rules) (*rule.List, *Ends, error) {
	if r == nil {
		return nil, nil, errors.New("there are no rules")
	}
	l, err := list(r)
	if err != nil {
		return nil, nil, err
	}
	ends, err := NewEnds(r.TLS, r.Secrets)
	if err != nil {
		return nil, nil, err
	}
	if ends.Headers, err = NewHeaders(r.Headers); err != nil {
		return nil, nil, err
	}
	l.Ended = ends.hosts()
	return l, ends, nil
}

// list reads the lists as they were written.
func list(r *wire.Rules) (*rule.List, error) {
	l := &rule.List{}
	for _, e := range r.Allow {
		rules, err := rule.Allow(e.Text, e.From)
		if err != nil {
			return nil, fmt.Errorf("allow %q: %w", e.Text, err)
		}
		l.Allow = append(l.Allow, rules...)
	}
	for _, e := range r.Deny {
		d, err := rule.Deny(e.Text, e.From)
		if err != nil {
			return nil, fmt.Errorf("deny %q: %w", e.Text, err)
		}
		l.Deny = append(l.Deny, d)
	}
	for _, layer := range r.Web {
		var rules []rule.Rule
		for _, e := range layer {
			w, err := rule.AllowWeb(e.Text, e.From, rule.Web{Methods: e.Methods, Paths: e.Paths, MaxBody: e.MaxBody, MaxRequests: e.MaxRequests, Closed: e.Closed})
			if err != nil {
				return nil, fmt.Errorf("allow %q: %w", e.Text, err)
			}
			rules = append(rules, w)
		}
		l.Web = append(l.Web, rules)
	}
	return l, nil
}
