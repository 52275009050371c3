// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// A clock that is set back ends nothing, and what is used afterwards goes cold as ever.
func TestClockIsSetBack(t *testing.T) {
	h, _ := coolingHome(t, "{freeze: 1m}")
	s := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Hour}})
	h.pass(90 * time.Second)
	if c := h.coldness(t, s.ID); c != registry.Frozen {
		t.Fatalf("it is %q", c)
	}
	h.clock.jump(-24 * time.Hour)
	h.pass(2 * time.Hour) // its timer comes, and its time has not
	h.sh(t, s.ID, "true")
	h.pass(90 * time.Second)
	if c := h.coldness(t, s.ID); c != registry.Frozen {
		t.Errorf("after it was used it is %q", c)
	}
	h.pass(23 * time.Hour)
	if got, err := h.Handle(h.key, s.ID).Get(t.Context()); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("its time is over, and it is there: %+v, %v", got, err)
	}
}

// A clock that is set forward ends what has no time left, each once, frozen or not, and does
// not have what was just used go cold.
func TestClockIsSetForward(t *testing.T) {
	h, _ := coolingHome(t, "{freeze: 1m}")
	frozen := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Hour}})
	h.pass(90 * time.Second)
	warm := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Hour}})
	long := h.create(t, Create{Lifetime: Lifetime{Timeout: 12 * time.Hour}})
	h.clock.jump(2 * time.Hour)
	h.sh(t, long.ID, "true")
	h.pass(30 * time.Second)
	if c := h.coldness(t, long.ID); c != "" {
		t.Errorf("it was used 30 s ago and is %q", c)
	}
	h.pass(time.Hour)
	for _, s := range []*Sandbox{frozen, warm} {
		if got, err := h.Handle(h.key, s.ID).Get(t.Context()); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("its time is over, and it is there: %+v, %v", got, err)
		}
	}
	h.sh(t, long.ID, "true")
}
