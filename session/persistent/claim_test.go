// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// heldFor is a state directory whose sandboxes a dead owner holds until they were
// asked for a few times.
type heldFor struct {
	session.State
	times int
	by    *store.RunDir
}

func (h *heldFor) Run(name string) (session.RunDir, error) {
	if h.times--; h.times == 0 {
		h.by.Release()
	}
	return h.State.Run(name)
}

// An owner that was killed a moment ago is no other caisson that has the sandboxes; one
// that goes on is.
func TestClaim(t *testing.T) {
	dir, err := store.Open(store.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	held, err := dir.Run(claimName)
	if err != nil {
		t.Fatal(err)
	}
	o := &SandboxesOptions{State: &heldFor{State: session.DirState(dir), times: 3, by: held}, Notice: func(s string) { t.Log(s) }}
	claim, err := claimAll(t.Context(), o, claimName)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claimAll(t.Context(), o, claimName); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("a second one: %v", err)
	}
	if err := claim.Remove(); err != nil {
		t.Error(err)
	}
}
