// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/egress/ca"
	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// Ends are what a router ends TLS with, and the secrets that it puts into
// requests then.
type Ends struct {
	Secrets Secrets
	Headers Headers

	minter *ca.Minter
	roots  func() *x509.CertPool
	// sessions are those with hosts: one that is known shows no certificate, which
	// is most of what a handshake costs. Go holds what it showed before to its name
	// and to roots anew.
	sessions tls.ClientSessionCache

	mu     sync.Mutex
	spoken map[string]string // what a host chose last, by host and port
}

// hosts are those whose TLS is ended for what goes into their requests.
func (e *Ends) hosts() []rule.Rule { return slices.Concat(e.Secrets.Hosts(), e.Headers.hosts()) }

// maxSpoken bounds the hosts of which that is known, and maxSessions those whose
// sessions are.
const (
	maxSpoken   = 256
	maxSessions = 64
)

// speaks is what a host chose last; empty when it was not asked yet.
func (e *Ends) speaks(host string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.spoken[host]
}

// heard keeps what a host chose; empty forgets it.
func (e *Ends) heard(host, proto string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if proto == "" {
		delete(e.spoken, host)
		return
	}
	if len(e.spoken) >= maxSpoken {
		clear(e.spoken)
	}
	e.spoken[host] = proto
}

// NewEnds reads what the owner sent. Without TLS no connection is ended: those
// that would be are refused.
func NewEnds(t *wire.TLS, secrets []wire.Secret) (*Ends, error) {
	e := &Ends{sessions: tls.NewLRUClientSessionCache(maxSessions), spoken: map[string]string{}}
	for _, s := range secrets {
		c, err := NewSecret(s)
		if err != nil {
			return nil, err
		}
		e.Secrets = append(e.Secrets, c)
	}
	if t == nil {
		return e, nil
	}
	var err error
	if e.minter, err = ca.NewMinter(t.Issuer); err != nil {
		return nil, err
	}
	// Reading 150 certificates takes milliseconds, which a sandbox that ends no
	// connection should not wait for.
	e.roots = sync.OnceValue(func() *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(t.Roots) // an empty pool trusts no authority
		return pool
	})
	return e, nil
}

// The protocols inside of TLS that are spoken here (RFC 7301).
const (
	protoHTTP1 = "http/1.1"
	protoHTTP2 = "h2"
)

var errNoEnds = &refusal{Decision: rule.Decision{Reason: "its TLS would be ended here, and there is nothing to do it with"}}

// serveTLS ends the TLS of c, and serves the requests inside of it. The host's choice
// of a protocol becomes ours, so that both sides speak the same version of HTTP:
// where it is not known yet the handshake with the host comes first, else the two go
// on beside each other.
func (c *conn) serveTLS(up net.Conn) {
	ends := c.r.ends.Load()
	if ends == nil || ends.minter == nil {
		c.r.recordRefused(c.t, errNoEnds)
		c.finish(errNoEnds.Reason)
		return
	}
	leaf, err := ends.minter.Leaf(c.t.name)
	if err != nil {
		c.finish("no certificate can be made for it: " + err.Error())
		return
	}
	w := c.newWeb()
	w.tls = &tlsEnd{c: c, ends: ends, met: make(chan struct{})}
	w.Conn = c.down
	c.serveHTTP(w, tls.Server(w, &tls.Config{
		Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return w.tls.meet(hello, leaf, up), nil
		},
	}))
}

// tlsEnd is the host's side of a connection whose TLS is ended.
type tlsEnd struct {
	c    *conn
	ends *Ends
	met  chan struct{} // closed when the first handshake with the host is over

	mu    sync.Mutex
	first *tls.Conn // made with the client's handshake, for the first request
	since time.Time // when it was
	fault error     // why there is none
	proto string    // what the host chose
}

// meet shakes hands with the host and says how to go on with the client. A host
// that cannot be trusted is no reason to break off: the client would not learn
// why. Its requests are answered with that.
func (t *tlsEnd) meet(hello *tls.ClientHelloInfo, leaf *tls.Certificate, up net.Conn) *tls.Config {
	config := &tls.Config{Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true, NextProtos: []string{protoHTTP1}}
	host, two, one := t.c.t.String(), slices.Contains(hello.SupportedProtos, protoHTTP2), slices.Contains(hello.SupportedProtos, protoHTTP1)
	proto := protoHTTP1
	if two {
		proto = t.ends.speaks(host)
	}
	if proto != "" {
		// What it will choose is known, or does not matter to this client.
		beside := t.c.r.at.do(func() {
			if t.shakeFirst(t.c.r.ctx, up, []string{proto}) != nil && two {
				t.ends.heard(host, "")
			}
		})
		if !beside {
			t.settle(nil, errShut)
		}
	} else if t.shakeFirst(hello.Context(), up, []string{protoHTTP2, protoHTTP1}) == nil {
		if proto = protoHTTP1; t.first.ConnectionState().NegotiatedProtocol == protoHTTP2 {
			proto = protoHTTP2
		}
		t.ends.heard(host, proto)
	}
	// A client that speaks HTTP/2 alone does so with us, whatever the host speaks.
	if proto == protoHTTP2 || two && !one {
		config.NextProtos = []string{protoHTTP2}
	}
	return config
}

// shakeFirst makes the connection that the client's first request takes.
func (t *tlsEnd) shakeFirst(ctx context.Context, up net.Conn, offered []string) error {
	first, err := t.shake(ctx, up, offered)
	t.settle(first, err)
	return err
}

// settle is the end of the first handshake with the host.
func (t *tlsEnd) settle(first *tls.Conn, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first, t.since, t.fault = first, time.Now(), err
	if err == nil {
		t.proto = first.ConnectionState().NegotiatedProtocol
	}
	close(t.met)
}

// shake makes a connection to the host an encrypted one, to the very host that
// was decided about.
func (t *tlsEnd) shake(ctx context.Context, up net.Conn, offered []string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn := tls.Client(up, &tls.Config{
		ServerName: t.c.t.name.String(), RootCAs: t.ends.roots(), NextProtos: offered, MinVersion: tls.VersionTLS12, ClientSessionCache: t.ends.sessions,
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		up.Close()
		return nil, err
	}
	return conn, nil
}

// maxUnused is how long the connection that was made already may have waited for the
// first request. A host that hears none closes, one of HTTP/2 that heard no preface, too
// (Go's after ten seconds), and may do so while the request is on its way.
const maxUnused = 5 * time.Second

// dial gives the connection that was made already, then others to the same host,
// decided about anew. Where the host did not wait, or may not wait any longer, for a
// client that has connected and takes its time, who is not told of that, the first
// request goes over another one, too.
func (t *tlsEnd) dial(ctx context.Context) (net.Conn, error) {
	select {
	case <-t.met:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	t.mu.Lock()
	first, since, fault, proto := t.first, t.since, t.fault, t.proto
	t.first = nil
	t.mu.Unlock()
	switch {
	case fault != nil:
		return nil, fault
	case first != nil && time.Since(since) < maxUnused && !over(first.NetConn()):
		return first, nil
	case first != nil:
		first.NetConn().Close()
	}
	up, err := t.c.dial()
	if err != nil {
		return nil, err
	}
	if proto == "" {
		proto = protoHTTP1
	}
	return t.shake(ctx, up, []string{proto})
}

// reason is why the host could not be spoken with, without what is ours alone.
func reason(err error) string {
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return "its certificate is not trusted: " + untrusted.Err.Error()
	}
	var alert tls.AlertError
	if errors.As(err, &alert) {
		return "it breaks TLS off: " + alert.Error()
	}
	return plain(err)
}
