// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/caisson-run/caisson/egress/wire"
)

// counted is a host that should not be reached.
func counted(t *testing.T) (port int, reached *atomic.Int64) {
	reached = new(atomic.Int64)
	return raw(t, func(c net.Conn) { reached.Add(1); echo(c) }), reached
}

// The matrix of connections that must not be made. Each is tried against a
// server that would answer.
func TestRefusedConnections(t *testing.T) {
	port, reached := counted(t)
	at := func(host string) string { return fmt.Sprintf("%s:%d", host, port) }
	for name, c := range map[string]struct {
		allow, deny []string
		own         func(netip.Addr) bool
		host        string // looked up, or an address
		reason      string
	}{
		"nothing is allowed":              {nil, nil, nil, "good.test", "the network is off"},
		"another name":                    {[]string{at("good.test"), "127.0.0.1:*"}, nil, nil, "evil.test", "not in the allow-list"},
		"another port":                    {[]string{"good.test", "127.0.0.1:*"}, nil, nil, "good.test", "port"},
		"a name that leads to loopback":   {[]string{at("good.test")}, nil, nil, "good.test", "loopback"},
		"the internet that leads there":   {[]string{"internet"}, nil, nil, "good.test", "loopback"},
		"a name that is mapped":           {[]string{at("good.test")}, nil, nil, "mapped.test", "not in the allow-list"},
		"a mapped address":                {[]string{at("mapped.test")}, nil, nil, "mapped.test", "loopback"},
		"another port of the range":       {[]string{at("good.test"), "127.0.0.1:1"}, nil, nil, "good.test", "loopback"},
		"denied by name":                  {[]string{"*.test:*", "good.test:*", "127.0.0.1:*"}[1:], []string{"good.test"}, nil, "good.test", "deny-list"},
		"denied by address":               {[]string{at("good.test"), "127.0.0.1:*"}, []string{"127.0.0.0/8"}, nil, "good.test", "deny-list"},
		"by number":                       {[]string{at("good.test")}, nil, nil, "93.184.216.34", "no allowed name"},
		"by a number nobody was given":    {[]string{at("good.test")}, nil, nil, "198.18.77.1", "reserved"},
		"a private number":                {[]string{"internet"}, nil, nil, "10.0.0.1", "private"},
		"a number for credentials":        {[]string{"internet", "169.254.0.0/16:*"}, nil, nil, "169.254.169.254", "metadata"},
		"the router itself":               {[]string{"internet"}, nil, nil, "198.18.0.1", "reserved"},
		"a number of this host":           {[]string{"internet"}, nil, func(netip.Addr) bool { return true }, "93.184.216.34", "own"},
		"a name with a public and no way": {[]string{at("own.test")}, nil, func(netip.Addr) bool { return true }, "own.test", "own"},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, options{allow: c.allow, deny: c.deny, own: c.own, hosts: map[string]string{
				"good.test": "127.0.0.1", "evil.test": "127.0.0.1", "mapped.test": "::ffff:127.0.0.1", "own.test": "93.184.216.34"}})
			conn, err := h.guest.DialName(c.host, port)
			if err == nil {
				conn.Close()
				t.Error("connected")
			}
			h.refused(c.reason)
		})
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the server was reached %d times", n)
	}
}

// A name that leads elsewhere the second time is asked about the second time.
func TestRebinding(t *testing.T) {
	port, reached := counted(t)
	h := build(t, options{allow: []string{"good.test:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	for range 3 {
		if c, err := h.guest.DialName("good.test", port); err == nil {
			c.Close()
			t.Fatal("connected")
		}
	}
	if reached.Load() != 0 {
		t.Error("the server was reached")
	}
}

// The matrix of bytes that name another host than was connected to.
func TestRefusedBytes(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	t.Cleanup(cert.Close)
	port, reached := counted(t)
	for name, c := range map[string]struct {
		send   func(net.Conn)
		reason string
	}{
		"another SNI":             {func(c net.Conn) { shake(c, "evil.test") }, "evil.test instead"},
		"no SNI":                  {func(c net.Conn) { shake(c, "") }, "does not name"},
		"another name, encrypted": {func(c net.Conn) { _, _ = c.Write(hidden("good.test")) }, "encrypted ClientHello"},
		"a broken hello":          {func(c net.Conn) { fmt.Fprint(c, "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00") }, "malformed"},
		"another kind":            {func(c net.Conn) { fmt.Fprint(c, "\x16\x03\x01\x00\x04\x02\x00\x00\x00") }, "no ClientHello"},
		// In one write: a second one may be told of the reset, and the read is not then.
		"a warning first": {func(c net.Conn) {
			_, _ = c.Write(append([]byte("\x15\x03\x01\x00\x02\x01\x5a"), hidden("evil.test")...))
		}, "does not begin with a ClientHello"},
		"the form of SSL 2": {func(c net.Conn) { fmt.Fprint(c, "\x80\x2e\x01\x03\x03\x00\x15\x00\x00\x00\x10") }, "SSL 2"},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
			conn, err := h.guest.DialName("good.test", port)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			before := reached.Load()
			c.send(conn)
			_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
			if b, err := io.ReadAll(conn); len(b) > 0 || err == nil || isTimeout(err) {
				t.Errorf("%q, %v: it was not broken off", b, err)
			}
			h.refused(c.reason)
			h.seen("the end", func(e wire.Event) bool { return e.Kind == wire.Connection && e.Record.Sent == 0 })
			_ = before
		})
	}
}

// hidden is a ClientHello that names host and has another one inside, which is
// encrypted (extension 0xfe0d).
func hidden(host string) []byte {
	vector := func(n int, b ...[]byte) []byte { // a length of n bytes and what it counts
		all := bytes.Join(b, nil)
		head := []byte{byte(len(all) >> 16), byte(len(all) >> 8), byte(len(all))}
		return append(head[3-n:], all...)
	}
	name := append([]byte{0, 0}, vector(2, vector(2, []byte{0}, vector(2, []byte(host))))...)
	inner := append([]byte{0xfe, 0x0d}, vector(2, []byte("sealed"))...)
	body := bytes.Join([][]byte{{3, 3}, make([]byte, 32), vector(1), vector(2, []byte{0x13, 1}), vector(1, []byte{0}), vector(2, name, inner)}, nil)
	return append([]byte{22, 3, 1}, vector(2, []byte{1}, vector(3, body))...)
}

func isTimeout(err error) bool {
	t, ok := err.(net.Error)
	return ok && t.Timeout()
}

// shake begins a handshake and leaves it.
func shake(c net.Conn, server string) {
	_ = c.SetWriteDeadline(time.Now().Add(2 * time.Minute))
	go func() {
		_ = tls.Client(writeOnly{c}, &tls.Config{ServerName: server, InsecureSkipVerify: true}).Handshake()
	}()
}

// writeOnly is a connection on which nothing is heard.
type writeOnly struct{ net.Conn }

func (writeOnly) Read([]byte) (int, error) { return 0, io.EOF }
func (writeOnly) Close() error             { return nil }

// The matrix of requests that must not reach the server, and those beside them
// that must.
func TestRequests(t *testing.T) {
	_, port := server(t, "reached")
	h := build(t, options{allow: []string{fmt.Sprintf("good.test:%d", port), "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	for name, c := range map[string]struct {
		request string
		code    int
	}{
		"plain":                   {"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n", 200},
		"with the port":           {fmt.Sprintf("GET / HTTP/1.1\r\nHost: good.test:%d\r\n\r\n", port), 200},
		"another spelling":        {"GET / HTTP/1.1\r\nHost: GOOD.test.\r\n\r\n", 200},
		"absolute":                {"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", 200},
		"after an empty line":     {"\r\nGET / HTTP/1.1\r\nHost: good.test\r\n\r\n", 400},
		"another host":            {"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", 403},
		"absolute elsewhere":      {"GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", 403},
		"absolute in disguise":    {"GET x:http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", 403},
		"without a slash":         {"GET x:evil.test HTTP/1.1\r\nHost: good.test\r\n\r\n", 403},
		"another port":            {"GET / HTTP/1.1\r\nHost: good.test:1\r\n\r\n", 403},
		"a NUL in the host":       {"GET / HTTP/1.1\r\nHost: evil.test\x00.good.test\r\n\r\n", 400},
		"a suffix":                {"GET / HTTP/1.1\r\nHost: good.test.evil.test\r\n\r\n", 403},
		"with a user":             {"GET / HTTP/1.1\r\nHost: good.test@evil.test\r\n\r\n", 400},
		"two hosts":               {"GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n", 400},
		"no host":                 {"GET / HTTP/1.1\r\n\r\n", 400},
		"an old request":          {"GET / HTTP/1.0\r\n\r\n", 403},
		"a tunnel":                {"CONNECT evil.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n", 403},
		"a tunnel to itself":      {"CONNECT good.test:22 HTTP/1.1\r\nHost: good.test:22\r\n\r\n", 403},
		"a tunnel to its port":    {fmt.Sprintf("CONNECT good.test:%d HTTP/1.1\r\nHost: good.test:%d\r\n\r\n", port, port), 403},
		"an upgrade":              {"GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 403},
		"two lengths":             {"POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
		"a smuggled length":       {"POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
		"HTTP/2 without asking":   {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403},
		"a blank before the name": {"GET / HTTP/1.1\r\n Host: good.test\r\n\r\n", 400},
		"a long head":             {"GET / HTTP/1.1\r\nHost: good.test\r\nX: " + strings.Repeat("a", 200<<10) + "\r\n\r\n", 431},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := h.guest.DialName("good.test", port)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go func() { _, _ = io.WriteString(conn, c.request) }()
			_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(io.LimitReader(resp.Body, resp.ContentLength))
			if resp.StatusCode != c.code || strings.HasPrefix(string(body), "reached") != (c.code == 200) {
				t.Errorf("%d %q, want %d", resp.StatusCode, body, c.code)
			}
			var refusal Refusal
			if c.code == 403 && (json.Unmarshal(body, &refusal) != nil || refusal.Error != "egress_denied" || refusal.Reason == "") {
				t.Errorf("the refusal is %q", body)
			}
		})
	}
}

// A second request on the same connection is decided, too.
func TestSecondRequest(t *testing.T) {
	_, port := server(t, "reached")
	h := build(t, options{allow: []string{fmt.Sprintf("good.test:%d", port), "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	conn, err := h.guest.DialName("good.test", port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	r := bufio.NewReader(conn)
	for _, code := range []int{200, 403} {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, resp.ContentLength))
		if resp.StatusCode != code {
			t.Errorf("%d, want %d", resp.StatusCode, code)
		}
	}
	h.refused("evil.test")
}

// To an address that was dialled by number, a request names that address, or a
// host that nothing is against, in a form that no server reads as another.
func TestRequestsByNumber(t *testing.T) {
	h := build(t, options{allow: []string{"10.1.0.0/16:*"}, deny: []string{"evil.test"}})
	c := &conn{r: h.r, t: target{addr: netip.MustParseAddrPort("10.1.2.3:80")}}
	for host, allow := range map[string]bool{
		"10.1.2.3":        true,
		"10.1.2.3:80":     true,
		"good.test":       true,
		"evil.test":       false,
		"EVIL.test.":      false,
		"evil.test:80":    false,
		"evil.test:80:80": false,
		"evil.test..":     false,
		"[evil.test]":     false,
		"evil.test:":      false,
		"10.1.2.4":        false,
		"0xa.1.2.3":       false,
	} {
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")))
		if err != nil {
			t.Fatal(err)
		}
		if _, d := c.checkHost(req); d.Allow != allow {
			t.Errorf("%q: %+v", host, d)
		}
	}
}

// The connections that requests make are counted, each of them, however the
// requests spell their host; and those that have ended are forgotten.
func TestRequestsSpendTheBudget(t *testing.T) {
	port := raw(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	o := options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}, budget: wire.Budget{Connections: 5}}
	h := build(t, o)
	conn, err := h.guest.DialName("good.test", port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	r, answers := bufio.NewReader(conn), 0
	for ; answers < 20; answers++ {
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != 200 {
			break
		}
		_, _ = io.ReadAll(resp.Body)
		for _, c := range h.r.list() {
			c.mu.Lock()
			if len(c.up) > 2 {
				t.Errorf("%d connections are kept after %d answers", len(c.up), answers+1)
			}
			c.mu.Unlock()
		}
	}
	if answers > 5 {
		t.Errorf("%d requests were answered over a connection each, where 5 connections are allowed", answers)
	}
	h.seen("connections", func(e wire.Event) bool { return e.Kind == wire.Exceeded && e.Budget == "connections" })
}

// A request that comes so slowly that its beginning was passed on as words gets
// no further.
func TestSlowRequest(t *testing.T) {
	heard := make(chan string, 1)
	port := raw(t, func(c net.Conn) {
		var all strings.Builder
		_, _ = io.Copy(io.MultiWriter(&all, c), c)
		heard <- all.String()
	})
	h := build(t, options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	c, err := h.guest.DialName("good.test", port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GE")
	b := make([]byte, 2)
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "T / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	if got := <-heard; got != "GE" {
		t.Errorf("the server heard %q", got)
	}
}

// What is no TCP leaves in no direction.
func TestOtherProtocols(t *testing.T) {
	h := build(t, options{allow: []string{"internet", "good.test", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	for _, to := range []string{"8.8.8.8:53", "93.184.216.34:443", "198.18.0.1:54"} {
		a := netip.MustParseAddrPort(to)
		c := h.guest.DialUDP(to)
		if _, err := c.Write([]byte("out")); err != nil {
			t.Fatal(err)
		}
		h.seen(to, func(e wire.Event) bool {
			return e.Kind == wire.Refused && e.Record.Protocol == wire.UDP && e.Record.Address == a.Addr().String() && e.Record.Port == int(a.Port())
		})
		c.Close()
	}
	if c, err := h.guest.Dial("198.18.0.1:53"); err == nil {
		c.Close()
		t.Error("the resolver speaks TCP")
	}
}

// Packets that a sandbox with raw sockets, or a kernel that was taken over, could
// write to the wire.
func TestOddPackets(t *testing.T) {
	h := build(t, options{allow: []string{"internet", "good.test:*"}})
	ping := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 198, 18, 0, 2, 8, 8, 8, 8, 8, 0, 0xf7, 0xff, 0, 0, 0, 0}
	gre := []byte{0x45, 0, 0, 20, 0, 0, 0, 0, 64, 47, 0, 0, 198, 18, 0, 2, 8, 8, 8, 8}
	for want, packet := range map[wire.Protocol][]byte{"icmp": ping, "ip 47": gre} {
		if _, err := h.wire.Write(packet); err != nil {
			t.Fatal(err)
		}
		h.seen(string(want), func(e wire.Event) bool { return e.Kind == wire.Refused && e.Record.Protocol == want })
	}
}

// The link lets nothing through but whole packets of the sandbox's own.
func TestLinkFilter(t *testing.T) {
	good := []byte{0x45, 0, 0, 24, 0, 0, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 2, 1, 2, 3, 4, 0, 0, 0, 0}
	l := &link{guest: guestAddr}
	if !l.passes(good) {
		t.Fatal("a whole packet is not let through")
	}
	for name, change := range map[string]func(b []byte) []byte{
		"ICMP":            func(b []byte) []byte { b[9] = 1; return b },
		"GRE":             func(b []byte) []byte { b[9] = 47; return b },
		"IPv6":            func(b []byte) []byte { b[0] = 0x65; return b },
		"an option":       func(b []byte) []byte { b[0] = 0x46; return b },
		"another sender":  func(b []byte) []byte { b[15] = 3; return b },
		"the gateway":     func(b []byte) []byte { b[15] = 1; return b },
		"a fragment":      func(b []byte) []byte { b[6] = 0x20; return b },
		"a last fragment": func(b []byte) []byte { b[7] = 1; return b },
		"too short":       func(b []byte) []byte { return b[:19] },
		"a longer length": func(b []byte) []byte { b[3]++; return b },
		"trailing bytes":  func(b []byte) []byte { return append(b, 0) },
		"nothing":         func([]byte) []byte { return nil },
	} {
		if l.passes(change(append([]byte(nil), good...))) {
			t.Errorf("%s is let through", name)
		}
	}
}

func TestChange(t *testing.T) {
	port := raw(t, echo)
	h := build(t, options{allow: []string{"good.test:*", "other.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1", "other.test": "127.0.0.1"}})
	open := map[string]net.Conn{}
	for _, host := range []string{"good.test", "other.test"} {
		c, err := h.guest.DialName(host, port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintln(c, "hello")
		if s, err := says(c); s != "hello" {
			t.Fatalf("%q, %v", s, err)
		}
		open[host] = c
	}
	h.r.Change(rules(t, []string{"other.test:*", "127.0.0.1:*"}, nil), nil)
	if s, err := says(open["good.test"]); err == nil || isTimeout(err) {
		t.Errorf("what is not allowed any more stays open: %q, %v", s, err)
	}
	fmt.Fprintln(open["other.test"], "again")
	if s, err := says(open["other.test"]); s != "again" {
		t.Errorf("what is still allowed was closed: %q, %v", s, err)
	}
	if m := h.guest.Query("good.test", dnsmessage.TypeA); m.RCode != dnsmessage.RCodeNameError {
		t.Errorf("the name is still answered: %v", m.RCode)
	}
	h.r.Change(nil, nil)
	if s, err := says(open["other.test"]); err == nil || isTimeout(err) {
		t.Errorf("without rules something stays open: %q, %v", s, err)
	}
}

// On a connection by number TLS names a host, which a change may deny.
func TestChangeByNumber(t *testing.T) {
	h := build(t, options{allow: []string{"10.1.0.0/16:*"}, deny: []string{"evil.test"}})
	c := &conn{r: h.r, t: target{addr: netip.MustParseAddrPort("10.1.2.3:443")}}
	if err := c.checkHello(Hello{Server: parseName(t, "www.good.test")}); err != nil {
		t.Fatal(err)
	}
	for denied, allow := range map[string]bool{"other.test": true, "www.good.test": false, "*.good.test": false} {
		h.r.Change(rules(t, []string{"10.1.0.0/16:*"}, []string{denied}), nil)
		if d := c.still(); d.Allow != allow {
			t.Errorf("without %s: %+v", denied, d)
		}
	}
}

func TestBudgets(t *testing.T) {
	port := raw(t, echo)
	allow := []string{"good.test:*", "127.0.0.1:*"}
	hosts := map[string]string{"good.test": "127.0.0.1"}
	exceeded := func(h *house, which string) {
		t.Helper()
		h.seen(which, func(e wire.Event) bool { return e.Kind == wire.Exceeded && e.Budget == which })
	}
	t.Run("egress", func(t *testing.T) {
		h := build(t, options{allow: allow, hosts: hosts, budget: wire.Budget{Egress: 1 << 20}})
		c, err := h.guest.DialName("good.test", port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() { _, _ = io.Copy(io.Discard, c) }()
		_, _ = c.Write(make([]byte, 4<<20))
		exceeded(h, "egress")
		if n := h.r.sent.Load(); n > 1<<20 {
			t.Errorf("%d bytes left", n)
		}
		if c, err := h.guest.Dial("198.18.1.0:" + fmt.Sprint(port)); err == nil {
			c.Close()
			t.Error("the network is still open")
		}
	})
	t.Run("connections", func(t *testing.T) {
		h := build(t, options{allow: allow, hosts: hosts, budget: wire.Budget{Connections: 2}})
		for i := range 3 {
			c, err := h.guest.DialName("good.test", port)
			if (err == nil) != (i < 2) {
				t.Errorf("connection %d: %v", i, err)
			}
			if err == nil {
				defer c.Close()
			}
		}
		exceeded(h, "connections")
	})
	t.Run("dns_queries", func(t *testing.T) {
		h := build(t, options{allow: allow, budget: wire.Budget{Queries: 2}})
		h.guest.Query("good.test", dnsmessage.TypeA)
		h.guest.Query("evil.test", dnsmessage.TypeA)
		c := h.guest.DialUDP(gatewayAddr.String() + ":53")
		defer c.Close()
		_, _ = c.Write([]byte("anything"))
		exceeded(h, "dns_queries")
	})
}

// Records are bounded, whatever code inside tries.
func TestRecordsAreBounded(t *testing.T) {
	var events int
	r := newRecorder(func(wire.Event) { events++ })
	for i := range 2 * maxRefused {
		r.refuse(wire.Record{Port: i})
		r.refuse(wire.Record{Port: 0})
	}
	if events != maxRefused {
		t.Errorf("%d events for %d sorts", events, 2*maxRefused)
	}
	var done wire.Event
	r.emit = func(e wire.Event) { done = e }
	r.finish(wire.Totals{})
	if done.Totals.Refused != 4*maxRefused || len(done.Repeats) != 1 || done.Repeats[0].Count != 2*maxRefused+1 {
		t.Errorf("%+v", done)
	}
}

// Closing leaves nothing, whatever is under way: goleak looks after the tests.
func TestCloseUnderWay(t *testing.T) {
	port := raw(t, echo)
	h := build(t, options{allow: []string{"good.test:*", "slow.test:*", "127.0.0.1:*"}, close: true, hosts: map[string]string{"good.test": "127.0.0.1"}})
	var open []net.Conn
	for range 5 {
		c, err := h.guest.DialName("good.test", port)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "x")
		open = append(open, c)
	}
	h.r.Close()
	for _, c := range open {
		c.Close()
	}
	h.guest.Close()
	e := h.seen("the totals", func(e wire.Event) bool { return e.Kind == wire.Done })
	if e.Totals.Connections != 5 {
		t.Errorf("%+v", e.Totals)
	}
}
