// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/egress/guesttest"
	"github.com/caisson-run/caisson/egress/rule"
)

// A client that connects and takes its time is not told that the host did not wait:
// its first request, which may be one that must not be sent twice, arrives.
func TestHostThatDidNotWait(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		s := secured(t, secureOptions{web: rule.Web{Methods: []string{"POST"}}, http1: http1})
		c, err := s.guest.DialName("api.good.test", s.port)
		if err != nil {
			t.Fatal(err)
		}
		config := trust(s.ours)
		config.ServerName, config.NextProtos = "api.good.test", []string{protoHTTP2, protoHTTP1}
		conn := tls.Client(c, config)
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.server.CloseClientConnections()
		closed := func() bool {
			c := s.r.list()[0]
			c.mu.Lock()
			defer c.mu.Unlock()
			return over(c.up[0])
		}
		for late := time.After(guesttest.Wait); !closed(); {
			select {
			case <-late:
				t.Fatal("the host did not close")
			case <-time.After(time.Millisecond):
			}
		}
		way := &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
		t.Cleanup(way.CloseIdleConnections)
		code, text := ask(t, &http.Client{Transport: way}, request(t, "POST", s.url("/"), strings.NewReader("once")))
		if code != http.StatusOK || !strings.HasSuffix(text, " 4") {
			t.Errorf("http1 %v: %d %s", http1, code, text)
		}
	}
}

// A connection that has waited for its request for long is not used: the host may be
// about to close it.
func TestUnusedForLong(t *testing.T) {
	h := build(t, options{}) // nothing is allowed: another one is refused
	for age, want := range map[time.Duration]bool{0: true, maxUnused: false} {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		first := tls.Client(ours, &tls.Config{ServerName: "good.test"})
		e := &tlsEnd{c: &conn{r: h.r, t: target{addr: netip.MustParseAddrPort("10.1.2.3:443")}}, met: make(chan struct{}), first: first, since: time.Now().Add(-age)}
		close(e.met)
		if got, err := e.dial(t.Context()); (got == first) != want || (err == nil) != want {
			t.Errorf("after %v: %v, %v", age, got, err)
		}
	}
}
