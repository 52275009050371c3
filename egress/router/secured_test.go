// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/egress/ca"
	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// secure is a house whose router ends TLS, with hosts that are trusted by it.
type secure struct {
	*house
	ours, internet *ca.Authority // whom the sandbox trusts, and whom the router
	port           int
	server         *httptest.Server

	shaken atomic.Int64 // handshakes in which the server showed its certificate

	mu   sync.Mutex
	seen []*http.Request // what the server got
}

const (
	placeholder = "caisson-secret-aaaaaaaaaaaaaaaa"
	realValue   = "sk-the-real-value"
)

type secureOptions struct {
	web     rule.Web // of api.good.test
	secrets []wire.Secret
	headers []wire.Header
	handler http.HandlerFunc
	http1   bool   // the server speaks no HTTP/2
	cert    string // the name in its certificate
	wrongCA bool   // which is not trusted
	// handshake is called by the server in the middle of each.
	handshake func()
	stale     func(h *house, e wire.Event)
}

func newAuthority(t testing.TB) *ca.Authority {
	t.Helper()
	a, err := ca.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func parseName(t testing.TB, s string) rule.Name {
	t.Helper()
	n, err := rule.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func delegate(t testing.TB, a *ca.Authority, hosts ...string) *wire.Issuer {
	t.Helper()
	var names []rule.Name
	for _, h := range hosts {
		names = append(names, parseName(t, h))
	}
	i, err := a.Delegate(names, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// secured starts a server, api.good.test, of which web speaks, and a sandbox. It
// has plain.good.test, too, about which no entry says anything.
func secured(t testing.TB, o secureOptions) *secure {
	t.Helper()
	s := &secure{ours: newAuthority(t), internet: newAuthority(t)}
	signer := s.internet
	if o.wrongCA {
		signer = newAuthority(t)
	}
	m, err := ca.NewMinter(delegate(t, signer, "good.test"))
	if err != nil {
		t.Fatal(err)
	}
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Clone(context.Background()))
		s.mu.Unlock()
		if o.handler != nil {
			o.handler(w, r)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %s %s %s %d", r.Proto, r.Method, r.Host, r.URL, n)
	}))
	s.server.EnableHTTP2 = !o.http1
	s.server.TLS = &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		s.shaken.Add(1)
		n := h.ServerName
		if o.cert != "" {
			n = o.cert
		}
		return m.Leaf(parseName(t, n))
	}}
	s.server.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if o.handshake != nil {
			o.handshake()
		}
		return nil, nil
	}
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	s.port = s.server.Listener.Addr().(*net.TCPAddr).Port
	s.house = build(t, options{
		allow: []string{"*.good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"api.good.test": "127.0.0.1", "plain.good.test": "127.0.0.1"},
		ends: s.ends(t, o.secrets, o.headers...), web: s.layers(t, o), stale: o.stale,
	})
	return s
}

func (s *secure) ends(t testing.TB, secrets []wire.Secret, headers ...wire.Header) *Ends {
	t.Helper()
	e, err := NewEnds(&wire.TLS{Issuer: delegate(t, s.ours, "api.good.test"), Roots: s.internet.PEM()}, secrets)
	if err == nil {
		e.Headers, err = NewHeaders(headers)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (s *secure) layers(t testing.TB, o secureOptions) [][]rule.Rule {
	t.Helper()
	if o.web.IsZero() {
		return nil
	}
	r, err := rule.AllowWeb("api.good.test:*", "policy.yaml:3", o.web)
	if err != nil {
		t.Fatal(err)
	}
	return [][]rule.Rule{{r}}
}

// trust is a client's configuration that trusts one authority.
func trust(a *ca.Authority) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.PEM())
	return &tls.Config{RootCAs: pool}
}

// web is a client inside, which speaks one version of HTTP.
func (s *secure) web(two bool) *http.Client {
	c := s.client(trust(s.ours))
	way := c.Transport.(*http.Transport)
	way.ForceAttemptHTTP2 = two
	if !two {
		way.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return c
}

func (s *secure) url(path string) string {
	return fmt.Sprintf("https://api.good.test:%d%s", s.port, path)
}

// got is the last request that the server got.
func (s *secure) got() *http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) == 0 {
		return nil
	}
	return s.seen[len(s.seen)-1]
}

// reached says whether the server got the request of a case. To count is not enough:
// one that is cut in the middle may arrive while the next is made.
func (s *secure) reached(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.seen, func(r *http.Request) bool { return r.Header.Get("X-Case") == what })
}

func (s *secure) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// ask sends a request and gives the status and what came.
func ask(t testing.TB, c *http.Client, req *http.Request) (int, string) {
	t.Helper()
	res, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(b)
}

func request(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
