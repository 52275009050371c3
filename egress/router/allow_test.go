// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/caisson-run/caisson/egress/wire"
)

func TestAllowedHTTP(t *testing.T) {
	_, port := server(t, "hello")
	h := build(t, options{allow: []string{fmt.Sprintf("good.test:%d", port), "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	c := h.client(nil)
	for i := range 3 { // on one connection
		resp, err := c.Post(fmt.Sprintf("http://good.test:%d/a?b=%d", port, i), "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := fmt.Sprintf("hello POST good.test:%d /a?b=%d 4", port, i); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	c.CloseIdleConnections()
	e := h.seen("the connection", func(e wire.Event) bool { return e.Kind == wire.Connection })
	if r := e.Record; r.Host != "good.test" || r.Address != "127.0.0.1" || r.Port != port || r.Sent == 0 || r.Received == 0 || !strings.HasPrefix(r.Rule, "good.test:") {
		t.Errorf("the record is %+v", r)
	}
}

// What a request asks for arrives as it was written, a query that Go could not read too.
func TestQueries(t *testing.T) {
	_, port := server(t, "reached")
	h := build(t, options{allow: []string{fmt.Sprintf("good.test:%d", port), "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	c, err := h.guest.DialName("good.test", port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for _, target := range []string{"/a%20b/;c?b=2&a=1", "/?a=1;b=2", "/?q=100%", "/?q=%zz&r=1", "/?", "/?a=%41&&=", "/?x=http://evil.test/"} {
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: good.test\r\n\r\n", target)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "reached GET good.test "+target+" 0" {
			t.Errorf("%q became %q, %v", target, body, err)
		}
	}
}

// This host's loopback by its own name, whatever a resolver says of that.
func TestAllowedLocal(t *testing.T) {
	port := raw(t, echo)
	h := build(t, options{allow: []string{fmt.Sprintf("host.caisson.internal:%d", port), "internet"}, hosts: map[string]string{"host.caisson.internal": "127.0.0.2"}})
	c, err := h.guest.DialName("host.caisson.internal", port)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(c, "hello")
	if line, err := bufio.NewReader(c).ReadString('\n'); line != "hello\n" {
		t.Errorf("%q, %v", line, err)
	}
	c.Close()
	e := h.seen("the connection", func(e wire.Event) bool { return e.Kind == wire.Connection })
	if r := e.Record; r.Host != "host.caisson.internal" || r.Address != "127.0.0.1" || len(h.lookups) > 0 {
		t.Errorf("the record is %+v; asked for %q", r, h.lookups)
	}
	if c, err := h.guest.DialName("host.caisson.internal", raw(t, echo)); err == nil {
		c.Close()
		t.Error("another port is open")
	}
}

func TestAllowedTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "secret ", r.Proto) }))
	t.Cleanup(s.Close)
	port := s.Listener.Addr().(*net.TCPAddr).Port
	h := build(t, options{allow: []string{fmt.Sprintf("*.example.com:%d", port), "127.0.0.0/8:*"}, hosts: map[string]string{"www.example.com": "127.0.0.1"}})
	c := h.client(s.Client().Transport.(*http.Transport).TLSClientConfig)
	resp, err := c.Get(fmt.Sprintf("https://www.example.com:%d/", port))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, _ := io.ReadAll(resp.Body); string(got) != "secret HTTP/1.1" {
		t.Errorf("%q", got)
	}
}

// A protocol that names no host, whichever side speaks first.
func TestAllowedOpaque(t *testing.T) {
	greets := raw(t, func(c net.Conn) {
		fmt.Fprintln(c, "SSH-2.0-test")
		echo(c)
	})
	echoes := raw(t, echo)
	h := build(t, options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	c, err := h.guest.DialName("good.test", greets)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if line, err := says(c); line != "SSH-2.0-test" {
		t.Fatalf("%q, %v", line, err)
	}
	fmt.Fprintln(c, "SSH-2.0-client")
	if line, err := says(c); line != "SSH-2.0-client" {
		t.Fatalf("%q, %v", line, err)
	}
	d, err := h.guest.DialName("good.test", echoes)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	want := bytes.Repeat([]byte("0123456789abcde\n"), 1<<18) // 4 MiB
	go func() {
		_, _ = d.Write(want)
		_ = d.(interface{ CloseWrite() error }).CloseWrite()
	}()
	_ = d.SetReadDeadline(time.Now().Add(time.Minute))
	if got, err := io.ReadAll(d); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes came back: %v", len(got), len(want), err)
	}
}

// A server that has closed its direction still hears.
func TestHalfClosed(t *testing.T) {
	heard := make(chan string, 1)
	port := raw(t, func(c net.Conn) {
		fmt.Fprintln(c, "bye")
		_ = c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		heard <- string(b)
	})
	h := build(t, options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	c, err := h.guest.DialName("good.test", port)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); string(b) != "bye\n" || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	fmt.Fprint(c, "still here")
	c.Close()
	select {
	case got := <-heard:
		if got != "still here" {
			t.Errorf("it heard %q", got)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it heard nothing")
	}
}

func TestResolverOnTheWire(t *testing.T) {
	h := build(t, options{allow: []string{"good.test", "*.good.test"}})
	for host, code := range map[string]dnsmessage.RCode{
		"good.test": dnsmessage.RCodeSuccess, "a.good.test": dnsmessage.RCodeSuccess,
		"evil.test": dnsmessage.RCodeNameError, "data.evil.test": dnsmessage.RCodeNameError, "notgood.test": dnsmessage.RCodeNameError,
	} {
		if m := h.guest.Query(host, dnsmessage.TypeA); m.RCode != code {
			t.Errorf("%s: %v", host, m.RCode)
		}
	}
	if r := h.refused("not in the allow-list"); r.Protocol != wire.DNS {
		t.Errorf("%+v", r)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.lookups) != 0 {
		t.Errorf("asking made the host ask for %q", h.lookups)
	}
}

// A server that cannot be reached is refused inside as it is outside.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	h := build(t, options{allow: []string{"good.test:*", "gone.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	for _, host := range []string{"good.test", "gone.test"} {
		if c, err := h.guest.DialName(host, port); err == nil {
			c.Close()
			t.Errorf("%s: connected", host)
		}
		h.seen(host, func(e wire.Event) bool {
			return e.Kind == wire.Connection && e.Record.Host == host && e.Record.Reason != ""
		})
	}
}
