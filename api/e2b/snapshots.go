// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/session/persistent"
)

// Snapshots and forks. A client takes a snapshot for a template: it creates
// sandboxes of it and deletes it like one.

// snapshotTag ends a snapshot's id on the wire, where templates have tags.
const snapshotTag = ":default"

// snapshotAnswer is a snapshot as a client knows it.
type snapshotAnswer struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func shownSnapshot(s *persistent.Snapshot) snapshotAnswer {
	a := snapshotAnswer{SnapshotID: s.ID + snapshotTag, Names: []string{}}
	if s.Name != "" {
		a.Names = append(a.Names, s.Name)
	}
	return a
}

// snapshotID is the snapshot that a template's id names, if it names one.
func snapshotID(template string) (string, bool) {
	id, ok := strings.CutSuffix(template, snapshotTag)
	return id, ok && wireID(id) == id && strings.HasPrefix(id, "s") && len(id) == 21
}

func (s *Server) snapshot(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q struct {
		Name string `json:"name"`
	}
	if err := readBody(w, r, &q, true); err != nil {
		return err
	}
	made, err := s.o.Sandboxes.Handle(k, pathID(r)).Snapshot(r.Context(), q.Name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, shownSnapshot(made))
	return nil
}

func (s *Server) listSnapshots(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	q := r.URL.Query()
	limit, from := 100, 0
	for name, to := range map[string]*int{"limit": &limit, "nextToken": &from} {
		if v := q.Get(name); v != "" {
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || name == "limit" && n > 100 {
				return &apiError{http.StatusBadRequest, name + " cannot be read"}
			}
			*to = n
		}
	}
	all, err := s.o.Sandboxes.Snapshots(r.Context(), k, q.Get("sandboxID"))
	if err != nil {
		return err
	}
	list := []snapshotAnswer{}
	for _, one := range all {
		if name := q.Get("name"); name == "" || name == one.Name {
			list = append(list, shownSnapshot(one))
		}
	}
	list = list[min(from, len(list)):]
	if len(list) > limit {
		list = list[:limit]
		w.Header().Set("X-Next-Token", strconv.Itoa(from+limit))
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// deleteTemplate deletes a snapshot, or a template of the key's own with all of its tags.
func (s *Server) deleteTemplate(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	id, ok := snapshotID(r.PathValue("id"))
	if !ok {
		return noContent(w, s.o.Sandboxes.TemplatesOf(k).Untag(r.PathValue("id"), nil))
	}
	return noContent(w, s.o.Sandboxes.DeleteSnapshot(r.Context(), k, id))
}

// forked is one copy, or why there is none.
type forked struct {
	Sandbox *sandboxAnswer `json:"sandbox,omitempty"`
	Error   *apiError      `json:"error,omitempty"`
}

func (s *Server) fork(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q struct {
		Count   *int   `json:"count"`
		Timeout *int64 `json:"timeout"`
	}
	if err := readBody(w, r, &q, true); err != nil {
		return err
	}
	count := 1
	if q.Count != nil {
		count = *q.Count
	}
	if count < 1 || count > 100 {
		return &apiError{http.StatusBadRequest, "count lies between 1 and 100"}
	}
	life, err := lifetime(q.Timeout, defaultTimeout)
	if err != nil {
		return err
	}
	all, err := s.o.Sandboxes.Handle(k, pathID(r)).Fork(r.Context(), count, life)
	if err != nil {
		return err
	}
	list := make([]forked, 0, len(all))
	var made []*persistent.Sandbox
	for _, one := range all {
		if one.Err != nil {
			list = append(list, forked{Error: asAPI(one.Err)})
			continue
		}
		a := s.answer(one.Sandbox)
		list = append(list, forked{Sandbox: &a})
		made = append(made, one.Sandbox)
	}
	return s.answerMade(w, r, list, made...)
}
