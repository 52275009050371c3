// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
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

// metrics answers with what a sandbox used: what the level counts of it, on the
// host, and for what it does not count, what the kernel inside says now.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	start, end, err := span(r.URL.Query())
	if err != nil {
		return err
	}
	list, err := s.readings(r.Context(), k, pathID(r), start, end)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// span reads which time is asked for, in seconds since 1970.
func span(q url.Values) (start, end time.Time, err error) {
	for name, to := range map[string]*time.Time{"start": &start, "end": &end} {
		if v := q.Get(name); v != "" {
			n, err := strconv.ParseInt(v, 10, 40)
			if err != nil || n < 0 {
				return start, end, &apiError{http.StatusBadRequest, name + " is no number of seconds since 1970"}
			}
			*to = time.Unix(n, 0)
		}
	}
	return start, end, nil
}

// metricsOfMany answers for several sandboxes; one that does not run is left out.
func (s *Server) metricsOfMany(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	ids := strings.Split(r.URL.Query().Get("sandbox_ids"), ",")
	if len(ids) > 100 {
		return &apiError{http.StatusBadRequest, "sandbox_ids has more than 100"}
	}
	all := map[string]reading{}
	for _, id := range ids {
		if list, err := s.readings(r.Context(), k, wireID(id), time.Time{}, time.Time{}); err == nil && len(list) > 0 {
			all[wireID(id)] = list[len(list)-1]
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"sandboxes": all})
	return nil
}

func (s *Server) readings(ctx context.Context, k *persistent.Key, id string, start, end time.Time) ([]reading, error) {
	b, err := s.o.Sandboxes.Handle(k, id).Get(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.o.Sandboxes.Handle(k, id).Readings(ctx, start)
	if err != nil {
		return nil, err
	}
	inside := sandbox.Metrics{}
	if running(b) && b.Cold == "" { // one that has gone cold is not woken to be looked at
		if in, leave, err := s.o.Sandboxes.Handle(k, id).Enter(ctx); err == nil {
			inside, _ = in.Metrics(ctx) // none is no reason to tell nothing
			leave()
		}
	}
	list := make([]reading, 0, len(all))
	for _, u := range all {
		if !end.IsZero() && u.At.After(end) {
			continue
		}
		r := reading{
			Timestamp: u.At.UTC().Format(time.RFC3339), TimestampUnix: u.At.Unix(), CPUCount: cpuCount(b), CPUUsedPct: inside.CPUPercent,
			MemUsed: inside.MemUsed, MemTotal: uint64(b.Limits.Memory), MemCache: inside.MemCache, DiskUsed: inside.DiskUsed, DiskTotal: uint64(b.Limits.Disk),
		}
		if u.CPUPercent != nil {
			r.CPUUsedPct = *u.CPUPercent
		}
		if u.Memory != nil {
			r.MemUsed = uint64(max(*u.Memory, 0))
		}
		if u.Disk != nil {
			r.DiskUsed = uint64(max(*u.Disk, 0))
		}
		list = append(list, r)
	}
	return list, nil
}
