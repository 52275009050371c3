// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"
)

// Stats count what a server does, since it began.
type Stats struct {
	began       time.Time
	connections atomic.Int64
	underWay    atomic.Int64
	answers     [6]atomic.Int64 // by the first digit of the status; 0 is a connection broken off
	// Sandboxes counts those that are there, by state; nil counts none.
	Sandboxes func() map[string]int
	// Ready counts the callers that got a sandbox that was kept ready, and those that found
	// none; nil counts none.
	Ready func() (taken, missed int64)
}

// NewStats begins to count.
func NewStats() *Stats { return &Stats{began: time.Now()} }

// WriteTo writes the counts in Prometheus' text format, version 0.0.4.
func (s *Stats) writeTo(w io.Writer) {
	metric := func(name, kind, help string) { fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	metric("caisson_http_requests_total", "counter", "Requests that were answered, by class of status; aborted were broken off.")
	for i := range s.answers {
		class := fmt.Sprintf("%dxx", i)
		if i == 0 {
			class = "aborted"
		}
		fmt.Fprintf(w, "caisson_http_requests_total{code=%q} %d\n", class, s.answers[i].Load())
	}
	metric("caisson_http_requests_in_flight", "gauge", "Requests under way, streams included.")
	fmt.Fprintf(w, "caisson_http_requests_in_flight %d\n", s.underWay.Load())
	metric("caisson_http_connections", "gauge", "Open connections.")
	fmt.Fprintf(w, "caisson_http_connections %d\n", s.connections.Load())
	if s.Sandboxes != nil {
		metric("caisson_sandboxes", "gauge", "Sandboxes, by state; ready are those that wait for who asks next, frozen and disk those of the running that have gone cold.")
		for _, state := range []string{"running", "frozen", "disk", "paused", "ready"} {
			fmt.Fprintf(w, "caisson_sandboxes{state=%q} %d\n", state, s.Sandboxes()[state])
		}
	}
	if s.Ready != nil {
		metric("caisson_ready_total", "counter", "Sandboxes that were asked for: taken are those that were kept ready, missed those that had to be made.")
		taken, missed := s.Ready()
		fmt.Fprintf(w, "caisson_ready_total{how=\"taken\"} %d\ncaisson_ready_total{how=\"missed\"} %d\n", taken, missed)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	metric("caisson_goroutines", "gauge", "Goroutines of the daemon.")
	fmt.Fprintf(w, "caisson_goroutines %d\n", runtime.NumGoroutine())
	metric("caisson_heap_bytes", "gauge", "Heap of the daemon that is in use.")
	fmt.Fprintf(w, "caisson_heap_bytes %d\n", m.HeapInuse)
	metric("caisson_start_time_seconds", "gauge", "When the daemon began, in seconds since 1970.")
	fmt.Fprintf(w, "caisson_start_time_seconds %d\n", s.began.Unix())
}

// counted counts requests and logs them: failures of this server as warnings,
// all others for who wants to see everything. Queries are in no log, since they
// carry signatures and metadata.
func counted(h http.Handler, s *Stats, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		s.underWay.Add(1)
		seen := &answer{ResponseWriter: w}
		whole := false
		defer func() {
			s.underWay.Add(-1)
			class := 0
			if whole {
				class = max(seen.status, http.StatusOK) / 100
			}
			s.answers[min(class, 5)].Add(1)
			level := slog.LevelDebug
			if seen.status >= 500 && seen.status != http.StatusBadGateway && seen.status != http.StatusNotImplemented {
				level = slog.LevelWarn
			}
			log.Log(r.Context(), level, "request", "proto", r.Proto, "method", r.Method, "host", r.Host, "path", r.URL.Path, "status", seen.status,
				"aborted", !whole, "ms", time.Since(began).Milliseconds(), "from", r.RemoteAddr)
		}()
		h.ServeHTTP(seen, r)
		whole = true
	})
}

// answer remembers its status.
type answer struct {
	http.ResponseWriter
	status int
}

// retryAfter is after how many seconds a client may ask again for what would work at another
// time.
const retryAfter = "5"

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 || status == http.StatusSwitchingProtocols {
		a.status = status
	}
	if h := a.Header(); (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) && h.Get("Retry-After") == "" {
		h.Set("Retry-After", retryAfter)
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach what is below.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
