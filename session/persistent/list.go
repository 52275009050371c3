// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// Filter says which of a key's sandboxes are wanted; a field that is empty
// wants all.
type Filter struct {
	// Metadata are entries that it must have.
	Metadata map[string]string
	// States are those that it may be in.
	States   []registry.State
	Template string
	// StartedAfter leaves out what was started at that time or before.
	StartedAfter time.Time
	// OldestFirst turns the order round, which is newest first.
	OldestFirst bool
	// Limit is how many are wanted, 1 to 100; 0 is 100. Cursor is where the page
	// before ended.
	Limit  int
	Cursor string
}

// Page is one part of a list.
type Page struct {
	Sandboxes []*Sandbox
	// Next is the Cursor of the page behind; empty at the end.
	Next string
	// Running is how many of all that the filter wants are running.
	Running int
}

// maxListed is the longest page.
const maxListed = 100

// List lists a key's sandboxes, running and paused, by when they were made.
// Pages hold together: a sandbox that is there from the first page to the last
// is on exactly one of them.
func (b *Sandboxes) List(_ context.Context, k *Key, f Filter) (*Page, error) {
	if f.Limit < 0 || f.Limit > maxListed {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "list", "a page has 1 to %d sandboxes", maxListed)
	}
	from, err := parseCursor(f.Cursor)
	if err != nil {
		return nil, err
	}
	var found []*Sandbox
	for _, l := range b.inventory.list() {
		if l.owner != k.ID {
			continue
		}
		if s := l.record(); f.wants(s) {
			found = append(found, s)
		}
	}
	order := func(x, y place) int {
		if f.OldestFirst {
			return x.compare(y)
		}
		return y.compare(x)
	}
	slices.SortFunc(found, func(x, y *Sandbox) int { return order(placeOf(x), placeOf(y)) })
	p := &Page{}
	for _, s := range found {
		if s.State == registry.Running {
			p.Running++
		}
	}
	if from != (place{}) {
		i, _ := slices.BinarySearchFunc(found, from, func(s *Sandbox, at place) int {
			if order(placeOf(s), at) <= 0 {
				return -1
			}
			return 1
		})
		found = found[i:]
	}
	limit := f.Limit
	if limit == 0 {
		limit = maxListed
	}
	if len(found) > limit {
		found = found[:limit]
		p.Next = placeOf(found[limit-1]).cursor()
	}
	p.Sandboxes = found
	return p, nil
}

func (f *Filter) wants(s *Sandbox) bool {
	switch {
	case s.State == "" || s.State == registry.Ended,
		len(f.States) > 0 && !slices.Contains(f.States, s.State),
		f.Template != "" && s.Template != f.Template,
		!f.StartedAfter.IsZero() && !s.Started.After(f.StartedAfter):
		return false
	}
	for name, want := range f.Metadata {
		if have, ok := s.Metadata[name]; !ok || have != want {
			return false
		}
	}
	return true
}

// place is where a sandbox is in the order. No two share one.
type place struct {
	at int64 // nanoseconds
	id string
}

func placeOf(s *Sandbox) place { return place{s.Created.UnixNano(), s.ID} }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.at, q.at), cmp.Compare(p.id, q.id))
}

func (p place) cursor() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.at, 10) + " " + p.id))
}

// parseCursor reads what cursor wrote; empty is the zero place.
func parseCursor(s string) (place, error) {
	if s == "" {
		return place{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(s[:min(len(s), 200)])
	at, id, ok := strings.Cut(string(text), " ")
	n, nerr := strconv.ParseInt(at, 10, 64)
	if err != nil || nerr != nil || !ok || id == "" {
		return place{}, sandbox.Errorf(sandbox.ErrInvalid, "list", "the cursor is not one of a page before")
	}
	return place{n, id}, nil
}
