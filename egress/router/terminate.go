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

	"github.com/caisson-run/caisson/egress/authority"
	"github.com/caisson-run/caisson/egress/credential"
	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// Ends are what a router ends TLS with, and the secrets that it puts into
// requests then.
type Ends struct {
	Secrets credential.Set

	minter *authority.Minter
	roots  func() *x509.CertPool
}

// NewEnds reads what the owner sent. Without TLS no connection is ended: those
// that would be are refused.
func NewEnds(t *wire.TLS, secrets []wire.Secret) (*Ends, error) {
	e := &Ends{}
	for _, s := range secrets {
		c, err := credential.New(s)
		if err != nil {
			return nil, err
		}
		e.Secrets = append(e.Secrets, c)
	}
	if t == nil {
		return e, nil
	}
	var err error
	if e.minter, err = authority.NewMinter(t.Issuer); err != nil {
		return nil, err
	}
	// Reading 150 certificates takes milliseconds, which a sandbox that ends no
	// connection should not wait for.
	e.roots = sync.OnceValue(func() *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(t.Roots) // an empty pool trusts nobody
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

// serveTLS ends the TLS of c, and serves the requests inside of it. The handshake
// with the host comes first: its choice of a protocol becomes ours, so that both
// sides speak the same version of HTTP.
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
	w.tls = &tlsEnd{c: c, roots: ends.roots}
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
	c     *conn
	roots func() *x509.CertPool
	proto string // what the host chose

	mu    sync.Mutex
	first *tls.Conn // made with the client's handshake, for the first request
	fault error     // why there is none
}

// meet shakes hands with the host and says how to go on with the client. A host
// that cannot be trusted is no reason to break off: the client would not learn
// why. Its requests are answered with that.
func (t *tlsEnd) meet(hello *tls.ClientHelloInfo, leaf *tls.Certificate, up net.Conn) *tls.Config {
	config := &tls.Config{Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true, NextProtos: []string{protoHTTP1}}
	offered := []string{protoHTTP1}
	if slices.Contains(hello.SupportedProtos, protoHTTP2) {
		offered = []string{protoHTTP2, protoHTTP1}
	}
	first, err := t.shake(hello.Context(), up, offered)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first, t.fault = first, err; err == nil {
		t.proto = first.ConnectionState().NegotiatedProtocol
	}
	// A client that speaks HTTP/2 alone does so with us, whatever the host speaks.
	if t.proto == protoHTTP2 || !slices.Contains(hello.SupportedProtos, protoHTTP1) && len(offered) > 1 {
		config.NextProtos = []string{protoHTTP2}
	}
	return config
}

// shake makes a connection to the host an encrypted one, to the very host that
// was decided about.
func (t *tlsEnd) shake(ctx context.Context, up net.Conn, offered []string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn := tls.Client(up, &tls.Config{ServerName: t.c.t.name.String(), RootCAs: t.roots(), NextProtos: offered, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(ctx); err != nil {
		up.Close()
		return nil, err
	}
	return conn, nil
}

// dial gives the connection that was made already, then others to the same host,
// decided about anew.
func (t *tlsEnd) dial(ctx context.Context) (net.Conn, error) {
	t.mu.Lock()
	first, fault, proto := t.first, t.fault, t.proto
	t.first = nil
	t.mu.Unlock()
	switch {
	case fault != nil:
		return nil, fault
	case first != nil:
		return first, nil
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
