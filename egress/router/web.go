// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/egress/rule"
)

// HTTP is read request by request: each names its host, and must name the one
// that was connected to. What a server gets is written anew, so that it cannot
// read other requests than were seen here.

const (
	maxHead   = 64 << 10  // of a request, in bytes
	maxAnswer = 256 << 10 // the head of an answer, in bytes
	headTime  = 30 * time.Second
	idleTime  = 2 * time.Minute
	// expectTime is how long a client that waits for "100 Continue" is kept
	// waiting for a server that does not know of it.
	expectTime = time.Second
)

// What HTTP/2 keeps of one connection: streams, and bytes that were not read
// yet.
const (
	maxStreams = 100
	maxStream  = 256 << 10
	maxConn    = 1 << 20
)

func http2() *http.HTTP2Config {
	return &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: maxStream, MaxReceiveBufferPerConnection: maxConn}
}

// newWeb starts the server that reads HTTP.
func (r *Router) newWeb() {
	r.web = &http.Server{
		Handler:           http.HandlerFunc(serveRequest),
		MaxHeaderBytes:    maxHead,
		ReadHeaderTimeout: headTime,
		IdleTimeout:       idleTime,
		HTTP2:             http2(),
		// "OPTIONS *" is a request like others, and not answered here.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if inner, ok := c.(*tls.Conn); ok {
				c = inner.NetConn()
			}
			return context.WithValue(ctx, webKey{}, c)
		},
	}
	r.at.do(func() { _ = r.web.Serve(webListener{r}) })
}

type webKey struct{}

// webConn is a connection whose first bytes have been looked at.
type webConn struct {
	net.Conn
	c     *conn
	tls   *tlsEnd // nil when it is not encrypted
	proxy *httputil.ReverseProxy
	way   *http.Transport
	once  sync.Once
	done  chan struct{}
}

func (w *webConn) Read(b []byte) (int, error) { return w.c.in.Read(b) }

func (w *webConn) Close() error {
	err := w.Conn.Close()
	w.once.Do(func() { close(w.done) })
	return err
}

// newWeb makes what passes requests on.
func (c *conn) newWeb() *webConn {
	w := &webConn{Conn: c.down, c: c, done: make(chan struct{})}
	w.way = &http.Transport{
		DisableCompression: true, MaxIdleConns: 1, MaxConnsPerHost: 1, MaxResponseHeaderBytes: maxAnswer, ExpectContinueTimeout: expectTime,
		ForceAttemptHTTP2: true, HTTP2: http2(),
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return w.tls.dial(ctx) },
	}
	w.proxy = &httputil.ReverseProxy{
		Transport: careful{w.way}, FlushInterval: -1, ErrorLog: c.r.web.ErrorLog,
		Rewrite: func(p *httputil.ProxyRequest) {
			// One host, however requests spell it: it is what connections are kept by.
			p.Out.URL.Scheme, p.Out.URL.Host = "http", c.t.String()
			if w.tls != nil {
				p.Out.URL.Scheme = "https"
			}
			p.Out.URL.RawQuery = p.In.URL.RawQuery // as it came: nothing here reads it
			p.Out.Trailer = p.In.Trailer           // filled in when the body was read
		},
		ModifyResponse: hideSecrets,
		ErrorHandler:   w.failed,
	}
	return w
}

// serveWeb serves requests that are not encrypted. up is the connection that was
// made already.
func (c *conn) serveWeb(up net.Conn) {
	w := c.newWeb()
	first := make(chan net.Conn, 1)
	first <- up
	w.way.DialContext = func(context.Context, string, string) (net.Conn, error) {
		select {
		case up := <-first:
			return up, nil
		default:
			return c.dial() // the server has closed; decided anew
		}
	}
	c.serveHTTP(w, w)
}

// serveHTTP hands a connection to the server and waits for its end. w is what
// lies below it.
func (c *conn) serveHTTP(w *webConn, outer net.Conn) {
	select {
	case c.r.conns <- outer:
		select {
		case <-w.done:
		case <-c.r.ctx.Done():
		}
	case <-c.r.ctx.Done():
	}
	w.way.CloseIdleConnections()
	c.finish(w.fault())
}

// fault is why no request went through; empty when that is not so.
func (w *webConn) fault() string {
	if w.tls == nil {
		return ""
	}
	w.tls.mu.Lock()
	defer w.tls.mu.Unlock()
	if w.tls.fault == nil {
		return ""
	}
	return reason(w.tls.fault)
}

// serveRequest decides about one request.
func serveRequest(rw http.ResponseWriter, req *http.Request) {
	w := req.Context().Value(webKey{}).(*webConn)
	host, d := w.c.checkHost(req)
	if !d.Allow {
		rw.Header().Set("Connection", "close")
		refuseRequest(rw, req, w.c, d, host)
		return
	}
	if w.c.judged {
		asked := &rule.Request{Method: req.Method, Path: wirePath(req), Length: req.ContentLength, Upgrade: req.Header.Get("Upgrade") != ""}
		defer w.c.asks(asked)()
		if req, d = w.judge(req, asked); !d.Allow {
			refuseRequest(rw, req, w.c, d, host)
			return
		}
	}
	w.proxy.ServeHTTP(rw, req)
}

// checkHost wants a request for the host that was connected to, in a form that
// no server reads as anything else.
func (c *conn) checkHost(req *http.Request) (host string, d rule.Decision) {
	no := func(reason string) (string, rule.Decision) { return req.Host, rule.Decision{Reason: reason} }
	if req.Method == http.MethodConnect || req.Host == "" {
		return no("a request that asks for a tunnel, or no host")
	}
	// "x:http://evil.test/" is one, whose end would be written as the target.
	if req.URL.Opaque != "" {
		return no("a request whose target is no path")
	}
	if up := req.Header.Get("Upgrade"); up != "" && !strings.EqualFold(up, "websocket") {
		return no("an upgrade to " + strconv.QuoteToASCII(up))
	}
	h := req.Host
	if host, port, err := net.SplitHostPort(h); err == nil {
		if port != strconv.Itoa(int(c.t.addr.Port())) {
			return no("a request that names another port")
		}
		h = host
	}
	if d := c.still(); !d.Allow { // the rules may have changed since
		return req.Host, d
	}
	n, err := rule.ParseName(h)
	switch {
	case c.t.name.IsZero():
		if err != nil {
			if a, err := netip.ParseAddr(h); err == nil && a == c.t.addr.Addr() {
				return "", rule.Decision{Allow: true} // by address, as it was allowed
			}
			return no("a request that names " + strconv.QuoteToASCII(req.Host) + " instead")
		}
		return n.String(), c.r.rules.Load().Denied(n, c.t.addr.Port())
	case err != nil || n != c.t.name:
		return no("a request that names " + strconv.QuoteToASCII(req.Host) + " instead")
	}
	return n.String(), rule.Decision{Allow: true}
}

// failed answers a request that the host did not answer.
func (w *webConn) failed(rw http.ResponseWriter, req *http.Request, err error) {
	var refused *refusal
	p := passageOf(req)
	if p != nil && p.body != nil && p.body.over.Load() {
		refused = &refusal{Decision: p.body.why}
	}
	if refused != nil || errors.As(err, &refused) {
		refuseRequest(rw, req, w.c, refused.Decision, w.c.t.name.String())
		return
	}
	why := reason(err)
	if p != nil {
		why = p.hidden.Text(why) // which may quote what came
	}
	answer(rw, http.StatusBadGateway, Refusal{Error: "egress_failed", Host: w.c.t.name.String(), Port: int(w.c.t.addr.Port()), Reason: why})
}

// webListener gives the server what serveHTTP has for it.
type webListener struct{ r *Router }

func (l webListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.r.conns:
		return c, nil
	case <-l.r.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l webListener) Close() error   { return nil }
func (l webListener) Addr() net.Addr { return &net.TCPAddr{} }
