// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson/egress/ca"
	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// pipes is a listener whose connections are pipes, so that time in a test is virtual.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p <- theirs
	return ours
}

// answered is what a client has got of an answer at a time.
type answered struct {
	at   time.Duration
	text string
}

// recording is the sandbox's side of an answer.
type recording struct {
	start  time.Time
	header http.Header
	all    []answered
}

func (r *recording) Header() http.Header { return r.header }
func (r *recording) WriteHeader(int)     {}
func (r *recording) Flush()              {}

func (r *recording) Write(b []byte) (int, error) {
	now := answered{time.Since(r.start), string(b)}
	if last := len(r.all) - 1; last >= 0 && r.all[last].at == now.at {
		r.all[last].text += now.text
	} else {
		r.all = append(r.all, now)
	}
	return len(b), nil
}

// TestAnswersTellNoSecret holds, over each way to a host, that an answer without
// the whole secret comes in the same way whatever the secret is, and events in time.
func TestAnswersTellNoSecret(t *testing.T) {
	begun := realValue[:len(realValue)-1]
	var events []string
	for i := range begun {
		events = append(events, "data: "+begun[:i+1])
	}
	const every = 200 * time.Millisecond
	handler := func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "sk-") {
			t.Error("it has no secret:", r.Header)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Trailer", "X-After")
		for _, e := range events {
			fmt.Fprint(w, e)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(every)
		}
		w.Header().Set("X-After", begun)
	}
	for what, two := range map[string]bool{"plain": false, "TLS": false, "HTTP/2": true} {
		t.Run(what, func(t *testing.T) {
			var want []answered
			for _, value := range []string{realValue, "sk-12345678901234567890"} {
				synctest.Test(t, func(t *testing.T) {
					r := answerOf(t, what != "plain", two, value, handler)
					if got := r.header.Get(http.TrailerPrefix+"X-After") + r.header.Get("X-After"); got != begun {
						t.Errorf("after the answer comes %q", got)
					}
					if want == nil {
						want = r.all
					} else if !reflect.DeepEqual(r.all, want) {
						t.Errorf("with another secret it comes as\n%+v, not as\n%+v", r.all, want)
					}
					text, n := "", 0
					for _, a := range r.all {
						text += a.text
						for ; n < len(events) && len(text) >= len(strings.Join(events[:n+1], "")); n++ {
							if late := a.at - time.Duration(n)*every; late > 50*time.Millisecond {
								t.Errorf("event %d is %v late", n, late)
							}
						}
					}
					if text != strings.Join(events, "") {
						t.Errorf("%q", text)
					}
				})
			}
		})
	}
}

// TestFarHost holds that a secret is covered that a host sends in two parts with its way
// between them, where the answer says how long it is; and that one whose parts are
// watched as they come does not wait for that.
func TestFarHost(t *testing.T) {
	const way = 300 * time.Millisecond
	first, rest := realValue[:8], realValue[8:]
	for kind, covered := range map[string]bool{"application/json": true, "": true, "text/event-stream": false, " Text/Event-Stream; charset=utf-8": false} {
		handler := func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = []string{kind}
			w.Header().Set("Content-Length", fmt.Sprint(len(realValue)+2))
			fmt.Fprint(w, "<"+first)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(way)
			fmt.Fprint(w, rest+">")
		}
		synctest.Test(t, func(t *testing.T) {
			all := answerOf(t, true, false, realValue, handler).all
			if is := len(all) == 1 && all[0].text == "<"+strings.Repeat("*", len(realValue))+">"; is != covered {
				t.Errorf("%q: %+v", kind, all)
			}
			if !covered && (len(all) < 2 || all[0].at > holdTime || all[0].text != "<"+first) {
				t.Errorf("%q: it waits: %+v", kind, all)
			}
		})
	}
}

// answerOf has a host answer a request that a secret is put into. It must run in a
// bubble.
func answerOf(t *testing.T, ended, two bool, value string, handler http.HandlerFunc) *recording {
	t.Helper()
	internet := newAuthority(t)
	minter, err := ca.NewMinter(delegate(t, internet, "good.test"))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := minter.Leaf(parseName(t, "api.good.test"))
	if err != nil {
		t.Fatal(err)
	}
	in := make(pipes)
	host := &http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{*leaf}}, ErrorLog: log.New(t.Output(), "", 0)}
	if ended {
		go host.ServeTLS(in, "", "")
	} else {
		go host.Serve(in)
	}

	s, err := NewSecret(wire.Secret{Name: "KEY", Placeholder: placeholder, Value: wire.Value(value), Hosts: []string{"api.good.test:*"}, Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{r: &Router{web: &http.Server{}}, t: target{name: parseName(t, "api.good.test"), addr: netip.MustParseAddrPort("127.0.0.1:443")}}
	c.r.rules.Store(rules(t, []string{"api.good.test"}, nil))
	c.r.ends.Store(&Ends{Secrets: Secrets{s}})
	w := c.newWeb()
	w.way.DialContext = func(context.Context, string, string) (net.Conn, error) { return in.dial(), nil }
	if ended {
		w.tls = &tlsEnd{}
		w.way.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			config := trust(internet)
			config.ServerName, config.NextProtos = "api.good.test", []string{protoHTTP1}
			if two {
				config.NextProtos = []string{protoHTTP2}
			}
			up := tls.Client(in.dial(), config)
			return up, up.HandshakeContext(ctx)
		}
	}
	req := request(t, "GET", "https://api.good.test/", nil)
	req.Header.Set("Authorization", "Bearer "+placeholder)
	req, d := w.judge(req, &rule.Request{Method: "GET", Path: "/"})
	if !d.Allow {
		t.Fatal(d)
	}
	r := &recording{start: time.Now(), header: http.Header{}}
	w.proxy.ServeHTTP(r, req)
	w.way.CloseIdleConnections()
	close(in)
	host.Close()
	return r
}
