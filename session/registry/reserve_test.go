// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// roomier is a reserve in the file itself: its pages are bounded but for what spends it.
type roomier struct{ db *DB }

func (r roomier) Spend(do func() error) error {
	r.bound(1 << 20)
	defer r.bound(1)
	return do()
}

// bound lets the file have so many pages, and no fewer than it has.
func (r roomier) bound(pages int) {
	if _, err := r.db.db.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
		panic(err)
	}
}

// TestEndsSpendTheReserve: on a full disk the end of a sandbox is written, and nothing
// else is.
func TestEndsSpendTheReserve(t *testing.T) {
	db := openHere(t, t.TempDir())
	running := &Sandbox{ID: "i1", State: Running, Metadata: map[string]string{"x": strings.Repeat("y", 32<<10)}}
	r := roomier{db}
	r.bound(1)
	if err := db.Put(t.Context(), running); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Fatalf("a full disk: %v, want ErrUnavailable", err)
	}
	db.SetReserve(r)
	if err := db.Put(t.Context(), running); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("what begins, with a reserve: %v, want ErrUnavailable", err)
	}
	running.State = Ended
	if err := db.Put(t.Context(), running); err != nil {
		t.Errorf("what ends: %v", err)
	}
}
