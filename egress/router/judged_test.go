// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// The matrix of ways to a judged host that are no judged requests.
func TestAroundJudgement(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"GET"}}})
	t.Run("no HTTP", func(t *testing.T) {
		port, _ := counted(t)
		c, err := s.guest.DialName("api.good.test", port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "EHLO a\r\n")
		if line, err := says(c); err == nil && !strings.Contains(line, "400") {
			t.Errorf("%q", line)
		}
		c.Close()
		e := s.house.seen("the end", func(e wire.Event) bool { return e.Kind == wire.Connection })
		if e.Record.Sent > 0 {
			t.Errorf("bytes left: %+v", e.Record)
		}
	})
	t.Run("another name inside", func(t *testing.T) {
		c, err := s.guest.DialName("plain.good.test", s.port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		config := trust(s.internet)
		config.ServerName = "api.good.test"
		if err := tls.Client(c, config).Handshake(); err == nil {
			t.Error("the host was reached")
		}
	})
	if s.count() != 0 {
		t.Errorf("the host got %d requests", s.count())
	}
}

// What is too long, or never ends, ends.
func TestJudgedBounds(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"GET"}}})
	for _, two := range []bool{false, true} {
		req := request(t, "GET", s.url("/"), nil)
		req.Header.Set("X-Long", strings.Repeat("a", 2*maxHead))
		status, body := ask(t, s.web(two), req)
		if status == 200 || s.count() != 0 {
			t.Errorf("two %v: %d %s", two, status, body)
		}
	}
}

// Other rules for a living sandbox: who was connected under the old ones is cut
// off, and the new ones hold.
func TestChangeJudgement(t *testing.T) {
	s := secured(t, secureOptions{})
	open, err := s.guest.DialName("api.good.test", s.port)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	config := trust(s.internet)
	config.ServerName = "api.good.test"
	conn := tls.Client(open, config)
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	l := *s.r.rules.Load()
	l.Web = s.layers(t, secureOptions{web: rule.Web{Methods: []string{"GET"}}})
	s.r.Change(&l, s.ends(t, nil))
	_ = open.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("it is open still: %v", err)
	}
	if status, body := ask(t, s.web(true), request(t, "POST", s.url("/"), nil)); status != 403 {
		t.Errorf("%d %s", status, body)
	}
	if status, body := ask(t, s.web(true), request(t, "GET", s.url("/"), nil)); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	s.r.Change(&l, nil) // nothing to end TLS with
	if status, body := ask(t, s.web(true), request(t, "GET", s.url("/"), nil)); status != 0 {
		t.Errorf("%d %s", status, body)
	}
	s.refused("nothing to do it with")
}

// Many at once, over connections of both versions: no more than shake hands within the
// router's ten seconds where a small part of one processor is left for this.
func TestJudgedAtOnce(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"POST"}}})
	var wg sync.WaitGroup
	for i := range 12 {
		client := s.web(i%2 == 0)
		wg.Go(func() {
			for range 5 {
				status, body := ask(t, client, request(t, "POST", s.url("/"), strings.NewReader(strings.Repeat("a", 100_000))))
				if status != 200 || !strings.HasSuffix(body, " 100000") {
					t.Errorf("%d %s", status, body)
				}
			}
		})
	}
	wg.Wait()
}

// What a host will choose is known: to a client of HTTP/1.1 always, to one that
// speaks HTTP/2, too, from the second connection on. Then neither handshake waits for
// the other: the host's ends here only when the client's has.
func TestHandshakesBeside(t *testing.T) {
	var wait atomic.Pointer[chan struct{}]
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"GET"}}, handshake: func() {
		if c := wait.Load(); c != nil {
			select {
			case <-*c:
			case <-time.After(dialTime):
				t.Error("the client waited for the host")
			}
		}
	}})
	for i, protos := range [][]string{nil, {protoHTTP1}, {protoHTTP2, protoHTTP1}, {protoHTTP2, protoHTTP1}} {
		if i == 2 {
			wait.Store(nil) // not known yet
		} else {
			c := make(chan struct{})
			wait.Store(&c)
		}
		c, err := s.guest.DialName("api.good.test", s.port)
		if err != nil {
			t.Fatal(err)
		}
		config := trust(s.ours)
		config.ServerName, config.NextProtos = "api.good.test", protos
		conn := tls.Client(c, config)
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w := wait.Load(); w != nil {
			close(*w)
		}
		if got := conn.ConnectionState().NegotiatedProtocol; i > 1 && got != protoHTTP2 || i == 1 && got != protoHTTP1 {
			t.Errorf("%q: it chose %q", protos, got)
		}
		if i < 2 {
			fmt.Fprintf(conn, "GET /%d HTTP/1.1\r\nHost: api.good.test:%d\r\n\r\n", i, s.port)
			if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("%v, %v", res, err)
			}
		}
		conn.Close()
	}
}

// A host that is known by its session need not show its certificate, and is not
// spoken with when a change of the rules trusts it no more.
func TestSessions(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"GET"}}, http1: true})
	get := func() (int, string) {
		c := s.web(false)
		defer c.CloseIdleConnections()
		return ask(t, c, request(t, "GET", s.url("/"), nil))
	}
	for range 3 {
		if code, text := get(); code != http.StatusOK {
			t.Fatal(code, text)
		}
	}
	if n := s.shaken.Load(); n != 1 {
		t.Errorf("the server showed its certificate %d times", n)
	}
	ends, err := NewEnds(&wire.TLS{Issuer: delegate(t, s.ours, "api.good.test"), Roots: newAuthority(t).PEM()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.r.Change(s.r.rules.Load(), ends)
	if code, text := get(); code != http.StatusBadGateway {
		t.Errorf("a host that is not trusted any more: %d %s", code, text)
	}
}
