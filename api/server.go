// SPDX-License-Identifier: Apache-2.0

// Package api serves HTTP: the listener and its bounds, what operators ask of a
// running server (/healthz, /metrics), and the order in which it ends. What is
// served beside that is a handler of another package, [e2b.Server].
//
// It also has what each of those handlers holds requests to: how many of one key's are
// under way, how much memory their messages take ([Memory]), and how long a transfer may
// stand still ([TransferTimeout]).
//
// [e2b.Server]: https://pkg.go.dev/github.com/caisson-run/caisson/api/e2b
package api

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds of one server. A client that keeps to them notices none.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeader      = 64 << 10 // bytes
	maxConnections = 4096
	maxRequests    = 4096 // under way at once, streams included
	maxStreams     = 250  // of one HTTP/2 connection

	// tailTimeout is how long what is left of a request may take to arrive, and
	// of its answer to leave, when its handler is done with it. Handlers see to
	// the time before that themselves. It is also how long a request may take that
	// net/http answers by itself ("OPTIONS *", an unknown expectation), whose body it
	// waits for all the same.
	tailTimeout = 30 * time.Second

	// tailGrace is how much of that it has even where others want the connection's
	// place: far more than a client needs that has sent its request, and reads.
	tailGrace = 100 * time.Millisecond
)

// Server serves one handler on one listener.
type Server struct {
	http  *http.Server
	stats *Stats
}

// New makes a Server for h, which may be a [Refuser]. stats counts what it
// serves, and log takes what goes wrong; neither may be nil.
func New(h http.Handler, stats *Stats, log *slog.Logger) *Server {
	return newServer(h, stats, log, tailTimeout)
}

func newServer(h http.Handler, stats *Stats, log *slog.Logger, tail time.Duration) *Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &Server{stats: stats, http: &http.Server{
		ConnState:         noteState,
		ConnContext:       withConn,
		Handler:           finished(bounded(counted(h, stats, log), h), tail),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       tail, // of what no handler sees: finished takes it off the rest
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		Protocols:         &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

// Serve serves until Shutdown; its error is nil then. certificate is nil for
// plain HTTP.
func (s *Server) Serve(ln net.Listener, certificate *tls.Certificate) error {
	ln = limited(ln, maxConnections, s.stats)
	if certificate != nil {
		ln = tls.NewListener(ln, &tls.Config{
			Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		})
	}
	if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown takes no more requests and waits for those under way until ctx ends,
// then breaks them off.
func (s *Server) Shutdown(ctx context.Context) {
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
}

// bounded refuses requests when too many are under way, in the words of frontend.
func bounded(h, frontend http.Handler) http.Handler {
	slots := make(chan struct{}, maxRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			h.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			const why = "the server has as many requests under way as it takes"
			if d, ok := frontend.(Refuser); !ok || !d.Refuse(w, r, http.StatusServiceUnavailable, why) {
				http.Error(w, why, http.StatusServiceUnavailable)
			}
		}
	})
}

// finished bounds the time of what net/http does behind a handler: it reads the
// rest of the request's body, and sends the rest of the answer, for as long as the
// other side likes. It notes, too, when a connection has handlers at work.
func finished(h http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := connOf(r.Context())
		conn.begins()
		control := http.NewResponseController(w)
		control.SetReadDeadline(time.Time{})  // of the whole request
		control.SetWriteDeadline(time.Time{}) // of the request before
		defer func() {
			control.SetReadDeadline(time.Now().Add(timeout))
			control.SetWriteDeadline(time.Now().Add(timeout))
			conn.ends()
		}()
		h.ServeHTTP(w, r)
	})
}
