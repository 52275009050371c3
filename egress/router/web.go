// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/egress/name"
	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// HTTP that is not encrypted is read request by request: each names its host,
// and must name the one that was connected to. What a server gets is written
// anew, so that it cannot read other requests than were seen here.

const (
	mostHead = 64 << 10 // of a request, in bytes
	headTime = 30 * time.Second
	idleTime = 2 * time.Minute
)

// newWeb starts the server that reads HTTP.
func (r *Router) newWeb() {
	r.web = &http.Server{
		Handler:           http.HandlerFunc(serveRequest),
		MaxHeaderBytes:    mostHead,
		ReadHeaderTimeout: headTime,
		IdleTimeout:       idleTime,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
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

// serveWeb hands c to the server and waits for its end. up is the connection
// that was made already.
func (c *conn) serveWeb(up net.Conn) {
	w := &webConn{Conn: c.down, c: c, done: make(chan struct{})}
	first := make(chan net.Conn, 1)
	first <- up
	w.way = &http.Transport{
		DisableCompression: true, MaxIdleConns: 1, MaxConnsPerHost: 1, MaxResponseHeaderBytes: 1 << 20,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case up := <-first:
				return up, nil
			default:
				return c.dial() // the server has closed; decided anew
			}
		},
	}
	w.proxy = &httputil.ReverseProxy{
		Transport: w.way, FlushInterval: -1, ErrorLog: c.r.web.ErrorLog,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", p.In.Host
		},
		ErrorHandler: func(rw http.ResponseWriter, req *http.Request, err error) {
			var refused *refusal
			if errors.As(err, &refused) {
				refuseRequest(rw, req, c, refused.Decision, "")
				return
			}
			rw.WriteHeader(http.StatusBadGateway)
		},
	}
	select {
	case c.r.conns <- w:
		select {
		case <-w.done:
		case <-c.r.ctx.Done():
		}
	case <-c.r.ctx.Done():
	}
	w.way.CloseIdleConnections()
	c.finish("")
}

// serveRequest decides about one request.
func serveRequest(rw http.ResponseWriter, req *http.Request) {
	w := req.Context().Value(webKey{}).(*webConn)
	host, d := w.c.checkHost(req)
	if !d.Allow {
		refuseRequest(rw, req, w.c, d, host)
		return
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
	n, err := name.Parse(h)
	switch {
	case c.t.name.IsZero():
		if err != nil {
			return "", rule.Decision{Allow: true} // by address, as it was allowed
		}
		return n.String(), c.r.rules.Load().Denied(n, c.t.addr.Port())
	case err != nil || n != c.t.name:
		return no("a request that names " + strconv.QuoteToASCII(req.Host) + " instead")
	}
	return n.String(), rule.Decision{Allow: true}
}

// Refusal is the body of a 403: the same for people and agents.
type Refusal struct {
	Error  string `json:"error"` // "egress_denied"
	Host   string `json:"host"`
	Port   int    `json:"port"`
	Reason string `json:"reason"`
	Rule   string `json:"rule,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

func refuseRequest(rw http.ResponseWriter, req *http.Request, c *conn, d rule.Decision, other string) {
	port := int(c.t.addr.Port())
	rec := wire.Record{Protocol: wire.TCP, Host: c.t.name.String(), Port: port, Rule: d.Rule, From: d.From, Reason: d.Reason}
	if rec.Host == "" {
		rec.Address = c.t.addr.Addr().String()
	}
	c.r.record.refuse(rec)
	body, err := json.Marshal(Refusal{Error: "egress_denied", Host: other, Port: port, Reason: d.Reason, Rule: d.Rule})
	if err != nil {
		body = []byte(`{"error":"egress_denied"}`)
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Connection", "close")
	rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
	rw.WriteHeader(http.StatusForbidden)
	_, _ = rw.Write(body)
}

// webListener gives the server what serveWeb has for it.
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
