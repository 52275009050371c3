// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// The ports that programs inside open, as a reverse proxy. Each port has a host
// name of its own, so that a page from one sandbox is of another origin than
// this server and than every other sandbox.

const (
	headerTraffic = "E2b-Traffic-Access-Token"
	headerAccess  = "X-Access-Token"
	// proxyHeader bounds the header of what a program inside answers, in bytes.
	proxyHeader = 64 << 10
	// answerTimeout is how long a program may take to begin an answer.
	answerTimeout = 10 * time.Minute
)

// portKey is whose port a request goes to, in its context.
type portKey struct{}

type port struct {
	box    *persistent.Sandbox
	owner  *persistent.Key
	number int
	named  bool
	keys   *persistent.Keys
	http2  bool   // it is spoken to in HTTP/2, without TLS
	access string // the token that opens the sandbox's agent
}

// servePort hands a request to a port of a sandbox.
func (s *Server) servePort(w http.ResponseWriter, r *http.Request, t target) {
	b, owner, err := s.o.Sandboxes.Find(r.Context(), t.ID)
	if err != nil {
		writeGone(w, t.ID)
		return
	}
	if private(b) && !same(r.Header.Get(headerTraffic), s.o.Sandboxes.Token(b, trafficPurpose)) {
		writeAPIError(w, &apiError{http.StatusForbidden, "this port is not public; send the sandbox's traffic access token as " + headerTraffic})
		return
	}
	held, err := s.o.Memory.Visit(owner.ID)
	if err != nil {
		writeAPIError(w, err)
		return
	}
	defer held.Done()
	p := &port{box: b, owner: owner, number: t.Port, named: t.Named, keys: s.o.Keys, http2: wantsHTTP2(r), access: s.o.Sandboxes.Token(b, accessPurpose)}
	_, leave, err := s.o.Sandboxes.Handle(owner, b.ID).Enter(r.Context())
	if err != nil {
		writeGone(w, b.ID)
		return
	}
	defer leave()
	proxy := &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      s.portTransport(p),
		FlushInterval:  -1,
		ModifyResponse: p.modify,
		ErrorHandler:   func(w http.ResponseWriter, r *http.Request, err error) { s.portError(w, r, p, err) },
	}
	// What waits for a client that does not read is in the way of all else that the
	// agent sends.
	proxy.ServeHTTP(final{api.NewTransferWriter(w)}, r.WithContext(context.WithValue(r.Context(), portKey{}, p)))
}

// rewrite makes the request that the program inside gets.
func (p *port) rewrite(r *httputil.ProxyRequest) {
	// The address is a name that only our transport's dialler reads.
	r.Out.URL.Scheme, r.Out.URL.Host = "http", net.JoinHostPort(p.box.ID, strconv.Itoa(p.number))
	r.Out.Host = r.In.Host
	if mask := p.box.Notes[noteMask]; mask != "" {
		r.Out.Host = strings.ReplaceAll(mask, "${PORT}", strconv.Itoa(p.number))
	}
	r.SetXForwarded()
	// A key, or the sandbox's token, that is sent to a sandbox by mistake does not
	// reach the code there.
	for _, h := range []string{headerTraffic, headerSandbox, headerPort} {
		r.Out.Header.Del(h)
	}
	if slices.ContainsFunc(r.Out.Header.Values(headerAccess), func(v string) bool { return same(v, p.access) }) {
		r.Out.Header.Del(headerAccess) // of E2B's client, for instance: it sends it along with calls to a port
	}
	for _, h := range []string{"X-Api-Key", "Authorization"} {
		if slices.ContainsFunc(r.Out.Header.Values(h), p.hasKey) {
			r.Out.Header.Del(h)
		}
	}
}

// hasKey says whether a word of a header's value may be a key of this server's.
func (p *port) hasKey(value string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' }), p.keys.Resembles)
}

// final passes on no answers before the last one (103 Early Hints), whose headers
// were not looked at.
type final struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (f final) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (f final) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		f.ResponseWriter.WriteHeader(status)
	}
}

// modify keeps an answer within its origin.
func (p *port) modify(resp *http.Response) error {
	maps.DeleteFunc(resp.Header, func(name string, _ []string) bool { return forProxy(name) || !p.named && forOrigin(name) })
	if !p.named {
		// It is seen on this server's own origin, where no page of a sandbox's
		// is to run, no cookie to be set, and nothing to be kept for those who ask
		// at the same address for something else.
		resp.Header.Del("Set-Cookie")
		resp.Header.Set("Cache-Control", "no-store")
		resp.Header.Set("Content-Security-Policy", "sandbox")
		resp.Header.Set("X-Content-Type-Options", "nosniff")
		return nil
	}
	cookies := resp.Header.Values("Set-Cookie")
	resp.Header.Del("Set-Cookie")
	for _, c := range cookies {
		resp.Header.Add("Set-Cookie", ownCookie(c))
	}
	return nil
}

// forProxy says whether a header is an order to a proxy in front of this server: to
// answer with a file of its host's, or with what is at another address.
func forProxy(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "x-accel-") || strings.HasPrefix(name, "x-reproxy-") || slices.Contains([]string{"x-sendfile", "x-sendfile2", "x-lighttpd-send-file", "x-lighttpd-send-tempfile"}, name)
}

// forOrigin says whether a header speaks for more than its answer: for what is at this
// server's address, now or later, or for how caches keep it.
func forOrigin(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "clear-site-data", "strict-transport-security", "public-key-pins", "public-key-pins-report-only", "expect-ct", "alt-svc", "nel", "report-to", "reporting-endpoints",
		"accept-ch", "critical-ch", "service-worker-allowed", "origin-agent-cluster", "set-login", "expires", "pragma", "age", "surrogate-control", "surrogate-key":
		return true
	}
	return strings.HasSuffix(name, "-cache-control") // CDN-Cache-Control, and those of single ones
}

// ownCookie takes the domain off a cookie, which would give it to all other
// sandboxes, too.
func ownCookie(c string) string {
	parts := strings.Split(c, ";")
	kept := parts[:1]
	for _, p := range parts[1:] {
		name, _, _ := strings.Cut(p, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "domain") {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, ";")
}

// portError says why there is no answer from inside.
func (s *Server) portError(w http.ResponseWriter, r *http.Request, p *port, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	g := gone{SandboxID: p.box.ID, Port: p.number, Code: http.StatusBadGateway, Message: "The sandbox is running but port is not open"}
	var e *sandbox.Error
	if !errors.As(err, &e) || !errors.Is(err, sandbox.ErrNotFound) {
		g.Message = "The sandbox's port gave no answer"
		if p.http2 {
			g.Message += " in HTTP/2, which is how it was asked"
		}
	}
	writeJSON(w, http.StatusBadGateway, g)
}

// wantsHTTP2 says whether a request is of those that programs inside get as
// HTTP/2: gRPC, which cannot be anything else, and what came without TLS in HTTP/2,
// whose client knew before it asked. A client that agreed on HTTP/2 with us, by TLS,
// knows nothing of the program, and most speak HTTP/1.1 alone.
func wantsHTTP2(r *http.Request) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return r.ProtoMajor == 2 && (r.TLS == nil || kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+"))
}

// portTransport carries requests to a port.
func (s *Server) portTransport(p *port) http.RoundTripper {
	if !p.http2 {
		return s.proxies
	}
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		a, leave, err := s.o.Sandboxes.Handle(p.owner, p.box.ID).Enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		return a.RoundTripHTTP2(uint16(p.number), r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// transport dials into sandboxes. It never dials anything else: its addresses
// are ids, and connections come from the sandbox's agent.
func (s *Server) transport() *http.Transport {
	t := &http.Transport{
		DialContext:            s.dialPort,
		Proxy:                  func(*http.Request) (*url.URL, error) { return nil, nil },
		DisableCompression:     true,
		MaxIdleConnsPerHost:    4,
		MaxIdleConns:           256,
		IdleConnTimeout:        15 * time.Second,
		MaxResponseHeaderBytes: proxyHeader,
		ResponseHeaderTimeout:  answerTimeout,
	}
	return t
}

// dialPort opens a connection to a port inside. The sandbox is the one that the
// request was allowed to reach.
func (s *Server) dialPort(ctx context.Context, _, _ string) (net.Conn, error) {
	p, ok := ctx.Value(portKey{}).(*port)
	if !ok {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "connect", "no sandbox was named")
	}
	a, leave, err := s.o.Sandboxes.Handle(p.owner, p.box.ID).Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return a.Dial(ctx, uint16(p.number))
}

// validMask says whether a host that the caller wants its ports to see can be
// one.
func validMask(s string) bool {
	s = strings.ReplaceAll(s, "${PORT}", "1")
	if len(s) > 255 || s == "" {
		return false
	}
	return strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789.-:_[]") == ""
}
