// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// listed is a sandbox in a list.
type listed struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskSizeMB  int64             `json:"diskSizeMB"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	State       string            `json:"state"`
	EnvdVersion string            `json:"envdVersion"`
}

// detail is one sandbox as its owner may see it.
type detail struct {
	listed
	EnvdAccessToken string    `json:"envdAccessToken"`
	Domain          string    `json:"domain"`
	Internet        bool      `json:"allowInternetAccess"`
	Lifecycle       lifecycle `json:"lifecycle"`
}

type lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

func (s *Server) listed(b *persistent.Sandbox) listed {
	l := listed{
		SandboxID: b.ID, TemplateID: b.Template, ClientID: clientID, StartedAt: b.Started.UTC(), EndAt: b.Ends.UTC(),
		CPUCount: cpuCount(b), MemoryMB: b.Limits.Memory >> 20, DiskSizeMB: b.Limits.Disk >> 20,
		Metadata: b.Metadata, State: "running", EnvdVersion: envdVersion,
	}
	if b.State == registry.Paused || b.State == registry.Pausing {
		l.State = "paused"
	}
	return l
}

// cpuCount is a share of processors as the whole number that clients expect.
func cpuCount(b *persistent.Sandbox) int { return max(int(math.Ceil(b.Limits.CPUs)), 1) }

func (s *Server) get(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	b, err := s.o.Sandboxes.Handle(k, pathID(r)).Get(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, detail{
		listed: s.listed(b), EnvdAccessToken: s.o.Sandboxes.Token(b, accessPurpose), Domain: s.o.Domain,
		Internet:  len(b.Network) > 0,
		Lifecycle: lifecycle{AutoResume: b.AutoResume, OnTimeout: onTimeout(b.OnTimeout)},
	})
	return nil
}

// listV1 lists what runs, without pages.
func (s *Server) listV1(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	f := persistent.Filter{States: []registry.State{registry.Running}}
	var err error
	if f.Metadata, err = metadataQuery(r.URL.Query().Get("metadata")); err != nil {
		return err
	}
	all := []listed{}
	for {
		p, err := s.o.Sandboxes.List(r.Context(), k, f)
		if err != nil {
			return err
		}
		for _, b := range p.Sandboxes {
			all = append(all, s.listed(b))
		}
		if f.Cursor = p.Next; p.Next == "" {
			break
		}
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

// listV2 lists a page of what runs and what is paused.
func (s *Server) listV2(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	f, err := filter(r.URL.Query())
	if err != nil {
		return err
	}
	p, err := s.o.Sandboxes.List(r.Context(), k, f)
	if err != nil {
		return err
	}
	all := make([]listed, 0, len(p.Sandboxes))
	for _, b := range p.Sandboxes {
		all = append(all, s.listed(b))
	}
	if p.Next != "" {
		w.Header().Set("X-Next-Token", p.Next)
	}
	w.Header().Set("X-Total-Running", strconv.Itoa(p.Running))
	writeJSON(w, http.StatusOK, all)
	return nil
}

// filter reads which sandboxes a list is to have.
func filter(q url.Values) (f persistent.Filter, err error) {
	bad := func(what string) (persistent.Filter, error) {
		return persistent.Filter{}, &apiError{http.StatusBadRequest, what}
	}
	if f.Metadata, err = metadataQuery(q.Get("metadata")); err != nil {
		return f, err
	}
	for _, list := range q["state"] {
		for _, state := range strings.Split(list, ",") {
			switch state {
			case "running", "paused":
				f.States = append(f.States, registry.State(state))
			default:
				return bad("state is running, paused, or both")
			}
		}
	}
	if after := q.Get("startedAfter"); after != "" {
		if f.StartedAfter, err = time.Parse(time.RFC3339Nano, after); err != nil {
			return bad("startedAfter is no time like 2026-01-02T15:04:05Z")
		}
	}
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		f.OldestFirst = true
	default:
		return bad("order is asc or desc")
	}
	f.Template, f.Cursor = q.Get("template"), q.Get("nextToken")
	if limit := q.Get("limit"); limit != "" {
		if f.Limit, err = strconv.Atoi(limit); err != nil || f.Limit < 1 || f.Limit > 100 {
			return bad("limit lies between 1 and 100")
		}
	}
	return f, nil
}

// onTimeout is what happens when its time is over, in E2B's words, which do not say
// whether a pause keeps the memory.
func onTimeout(a registry.Action) string {
	if a == registry.PauseFiles {
		a = registry.Pause
	}
	return string(a)
}
