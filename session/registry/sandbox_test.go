// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Of a sandbox that has ended little is kept, and nothing that its owner said.
func TestEndedIsShort(t *testing.T) {
	db := openHere(t, t.TempDir())
	s := &Sandbox{ID: "i1", Owner: "k1", State: Running, Metadata: map[string]string{"x": strings.Repeat("y", 16<<10)}, Notes: map[string]string{"a": "b"}}
	if err := db.Put(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.State, s.Reason, s.EndedAt = Ended, "it was killed", time.UnixMilli(1).UTC()
	if err := db.Put(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := db.db.QueryRowContext(t.Context(), "SELECT length(body) FROM sandboxes").Scan(&n); err != nil || n > 256 {
		t.Errorf("%d bytes are kept of it, %v", n, err)
	}
	got, err := db.Get(t.Context(), "i1")
	if err != nil || got.ID != s.ID || got.Owner != s.Owner || got.State != Ended || got.Reason != s.Reason || !got.EndedAt.Equal(s.EndedAt) || got.Metadata != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// What ended too long ago is forgotten, and the first of what is too much; what has
// not ended never is.
func TestForget(t *testing.T) {
	const many, old, maximum = 2*forgetAtOnce + 7, forgetAtOnce + 3, 50
	db := openHere(t, t.TempDir())
	for i := range many {
		s := &Sandbox{ID: fmt.Sprintf("i%d", i), State: Ended, EndedAt: time.UnixMilli(int64(i))}
		if i == 0 {
			s.State, s.EndedAt = Running, time.Time{}
		}
		if err := db.Put(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ before, maximum, first int }{{old, many, old}, {0, maximum, many - maximum}, {0, maximum, many - maximum}, {many, 0, many}} {
		if err := db.Forget(t.Context(), time.UnixMilli(int64(tt.before)), tt.maximum); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := db.db.QueryRowContext(t.Context(), "SELECT count(*) FROM sandboxes").Scan(&n); err != nil || n != many-tt.first+1 {
			t.Errorf("before %d, at most %d: %d are left, %v; want %d", tt.before, tt.maximum, n, err, many-tt.first+1)
		}
		if _, err := db.Get(t.Context(), fmt.Sprintf("i%d", tt.first-1)); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("before %d, at most %d: it is still there: %v", tt.before, tt.maximum, err)
		}
	}
}

// A hidden header keeps its place and has no value, and copies that were made before do not
// change.
func TestHideHeaders(t *testing.T) {
	one := []wire.Header{{Host: "a.test", Name: "X-Name", Value: "SECRET"}}
	s := &Sandbox{ID: "i1", Headers: one, Reach: &Reach{Allow: []string{"a.test"}, Headers: one}}
	c := s.Clone()
	s.HideHeaders()
	b, err := json.Marshal(s)
	if err != nil || strings.Contains(string(b), "SECRET") || len(s.Headers) != 1 || len(s.Reach.Headers) != 1 || len(s.Reach.Allow) != 1 {
		t.Errorf("%s, %v", b, err)
	}
	if b, err = json.Marshal(c); err != nil || strings.Count(string(b), "SECRET") != 2 {
		t.Errorf("%s, %v", b, err)
	}
}
