// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/egress/guesttest"
	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

func TestMain(m *testing.M) {
	if os.Args[0] == wire.Argv0 {
		Main()
	}
	if os.Getenv(inside) != "" {
		try(os.Getenv(inside))
		os.Exit(0)
	}
	// net/http waits half a second before it closes what it has answered with
	// an error, and can be told nothing about it.
	// The guest's link does not end some of its own; nothing else uses it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"),
		goleak.IgnoreAnyFunction("gvisor.dev/gvisor/pkg/tcpip/link/fdbased.(*processor).start"))
}

var (
	guestAddr   = netip.MustParseAddr("198.18.0.2")
	gatewayAddr = netip.MustParseAddr("198.18.0.1")
)

// house is a router with a sandbox's stack on its wire, and hosts on this
// machine's loopback that stand for the internet: each name of hosts leads to
// an address of 127.0.0.0/8, which the rules have to open.
type house struct {
	t     testing.TB
	r     *Router
	guest *guesttest.Guest
	wire  *os.File // the guest's end

	mu      sync.Mutex
	hosts   map[string][]netip.Addr
	events  []wire.Event
	more    chan struct{} // closed when the next event comes
	lookups []string
}

type options struct {
	allow, deny []string
	budget      wire.Budget
	hosts       map[string]string
	own         func(netip.Addr) bool
	stale       func(h *house, e wire.Event) // is told which secret is to be renewed
	web         [][]rule.Rule
	ends        *Ends
	close       bool // the test closes the router itself
}

func rules(t testing.TB, allow, deny []string) *rule.List {
	t.Helper()
	l := &rule.List{}
	for _, s := range allow {
		rs, err := rule.Allow(s, "test")
		if err != nil {
			t.Fatal(err)
		}
		l.Allow = append(l.Allow, rs...)
	}
	for _, s := range deny {
		r, err := rule.Deny(s, "test")
		if err != nil {
			t.Fatal(err)
		}
		l.Deny = append(l.Deny, r)
	}
	return l
}

func build(t testing.TB, o options) *house {
	t.Helper()
	h := &house{t: t, hosts: map[string][]netip.Addr{}, more: make(chan struct{})}
	for n, a := range o.hosts {
		for _, s := range strings.Fields(a) {
			h.hosts[n] = append(h.hosts[n], netip.MustParseAddr(s))
		}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "router"), os.NewFile(uintptr(fds[1]), "guest")
	if o.own == nil {
		o.own = func(netip.Addr) bool { return false }
	}
	l := rules(t, o.allow, o.deny)
	l.Web = o.web
	if o.ends != nil {
		l.Ended = o.ends.hosts()
	}
	h.r, err = New(Options{
		Wire: ours, MTU: 32768, Guest: guestAddr, Gateway: gatewayAddr,
		Rules: l, Ends: o.ends, Budget: o.budget, Own: o.own,
		Event: func(e wire.Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, e)
			if e.Kind == wire.Stale {
				go o.stale(h, e)
			}
			close(h.more)
			h.more = make(chan struct{})
		},
		Lookup: func(_ context.Context, n rule.Name) ([]netip.Addr, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.lookups = append(h.lookups, n.String())
			if a := h.hosts[n.String()]; a != nil {
				return a, nil
			}
			return nil, &net.DNSError{Err: "no such host", Name: n.String(), IsNotFound: true}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.r.Begin()
	far, err := unix.Dup(fds[0]) // who reads a wire without another end never waits
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(far) })
	h.guest = guesttest.New(t, theirs, 32768, guestAddr, gatewayAddr)
	h.wire = theirs
	t.Cleanup(func() { theirs.Close() })
	if !o.close {
		t.Cleanup(h.close)
	}
	return h
}

// close ends the house.
func (h *house) close() {
	h.guest.Close()
	h.r.Close()
}

// client speaks HTTP from inside.
func (h *house) client(c *tls.Config) *http.Client {
	t := &http.Transport{TLSClientConfig: c, DialContext: func(_ context.Context, _, to string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(to)
		if err != nil {
			return nil, err
		}
		if a, err := netip.ParseAddr(host); err == nil {
			host = a.String()
		}
		return h.guest.DialName(host, int(parsePort(port)))
	}}
	h.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

func parsePort(s string) uint16 {
	var p uint16
	_, _ = fmt.Sscan(s, &p)
	return p
}

// seen waits for an event that is wanted.
func (h *house) seen(what string, want func(wire.Event) bool) wire.Event {
	h.t.Helper()
	late := time.After(guesttest.Wait)
	for {
		h.mu.Lock()
		known, more := h.events, h.more
		h.mu.Unlock()
		for _, e := range known {
			if want(e) {
				return e
			}
		}
		select {
		case <-more:
		case <-late:
			h.t.Fatalf("no event for %s in %s", what, h.told())
		}
	}
}

func (h *house) told() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, _ := json.Marshal(h.events)
	return string(b)
}

func (h *house) refused(reason string) wire.Record {
	h.t.Helper()
	e := h.seen("refused: "+reason, func(e wire.Event) bool {
		return e.Kind == wire.Refused && strings.Contains(e.Record.Reason, reason)
	})
	return *e.Record
}

// server is a host of the test's internet, with HTTP.
func server(t testing.TB, answer string) (host string, port int) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s %d", answer, r.Method, r.Host, r.URL, len(body))
	}))
	t.Cleanup(s.Close)
	a := netip.MustParseAddrPort(s.Listener.Addr().String())
	return a.Addr().String(), int(a.Port())
}

// raw is a host that hands each connection to serve.
func raw(t testing.TB, serve func(net.Conn)) (port int) {
	t.Helper()
	port, _ = rawUntil(t, serve)
	return port
}

// rawUntil is raw, until it is stopped: every connection has ended then.
func rawUntil(t testing.TB, serve func(net.Conn)) (port int, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	stop = sync.OnceFunc(func() { l.Close(); wg.Wait() })
	t.Cleanup(stop)
	return l.Addr().(*net.TCPAddr).Port, stop
}

// echo moves bytes by itself: the pipes that the library would move them with
// stay open for others.
func echo(c net.Conn) { _, _ = io.Copy(onlyWriter{c}, onlyReader{c}) }

// says reads one line.
func says(c net.Conn) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(guesttest.Wait))
	s, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(s), err
}
