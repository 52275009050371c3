// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// It is known for a day that a sandbox has ended, also of a daemon that runs for months.
func testForgets(t *testing.T, h *home) {
	s := h.create(t, Create{})
	if err := h.Handle(h.key, s.ID).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for hours := range 26 {
		_, err := h.Handle(h.key, s.ID).Get(t.Context())
		if want := hours <= 24; strings.Contains(err.Error(), "killed by its owner") != want {
			t.Fatalf("after %d hours: %v", hours, err)
		}
		if _, err := h.reg.Get(t.Context(), s.ID); hours > 24 && !errors.Is(err, sandbox.ErrNotFound) {
			t.Fatalf("after %d hours it is still kept: %v", hours, err)
		}
		h.clock.move(time.Hour)
	}
}
