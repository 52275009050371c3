// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"strings"

	"github.com/caisson-run/caisson/session"
)

// reading is what a sandbox uses at one moment, in bytes.
type reading struct {
	Timestamp     string  `json:"timestamp"`
	TimestampUnix int64   `json:"timestampUnix"`
	CPUCount      int     `json:"cpuCount"`
	CPUUsedPct    float64 `json:"cpuUsedPct"`
	MemUsed       uint64  `json:"memUsed"`
	MemTotal      uint64  `json:"memTotal"`
	MemCache      uint64  `json:"memCache"`
	DiskUsed      uint64  `json:"diskUsed"`
	DiskTotal     uint64  `json:"diskTotal"`
}

// metrics answers with what a sandbox uses now: one reading, of the kernel
// inside.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request, k *session.Key) error {
	m, err := s.reading(r, k, pathID(r))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, []reading{m})
	return nil
}

// metricsOfMany answers for several sandboxes; one that does not run is left out.
func (s *Server) metricsOfMany(w http.ResponseWriter, r *http.Request, k *session.Key) error {
	ids := strings.Split(r.URL.Query().Get("sandbox_ids"), ",")
	if len(ids) > 100 {
		return &apiError{http.StatusBadRequest, "sandbox_ids has more than 100"}
	}
	all := map[string]reading{}
	for _, id := range ids {
		if m, err := s.reading(r, k, wireID(id)); err == nil {
			all[wireID(id)] = m
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"sandboxes": all})
	return nil
}

func (s *Server) reading(r *http.Request, k *session.Key, id string) (reading, error) {
	b, err := s.o.Sandboxes.Get(r.Context(), k, id)
	if err != nil {
		return reading{}, err
	}
	in, leave, err := s.o.Sandboxes.Agent(r.Context(), k, id)
	if err != nil {
		return reading{}, err
	}
	defer leave()
	m, err := in.Agent.Metrics(r.Context())
	if err != nil {
		return reading{}, err
	}
	return reading{
		Timestamp: m.Time.UTC().Format("2006-01-02T15:04:05Z07:00"), TimestampUnix: m.Time.Unix(), CPUCount: cpuCount(b), CPUUsedPct: m.CPUPercent,
		MemUsed: m.MemUsed, MemTotal: m.MemTotal, MemCache: m.MemCache, DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	}, nil
}

// logs answers that there are none: what programs write goes to who listens,
// and to the audit record.
func (s *Server) logs(w http.ResponseWriter, r *http.Request, k *session.Key) error {
	if _, err := s.o.Sandboxes.Get(r.Context(), k, pathID(r)); err != nil {
		return err
	}
	none := []struct{}{}
	writeJSON(w, http.StatusOK, map[string]any{"logs": none, "logEntries": none})
	return nil
}

func (s *Server) noSnapshots(w http.ResponseWriter, _ *http.Request, _ *session.Key) error {
	writeJSON(w, http.StatusOK, []struct{}{})
	return nil
}
