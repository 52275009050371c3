// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/session/registry"
)

// Each sandbox is called something that no other is, made ahead or not, and that is known
// of it.
func TestNames(t *testing.T) {
	h := newHome(t, func(o *SandboxesOptions) { o.Ready = 1 })
	seen := map[string]bool{}
	for i := range 4 {
		if i%2 == 0 {
			h.awaitWarm(t, 1)
		}
		s := h.create(t, Create{})
		for _, name := range []string{s.Names.Host, s.Names.Machine} {
			if seen[name] {
				t.Errorf("%s is another's", name)
			}
			seen[name] = true
		}
		if got := strings.TrimSpace(h.sh(t, s.ID, "uname -n")); got != s.Names.Host {
			t.Errorf("it calls itself %q, want %q", got, s.Names.Host)
		}
		if !regexp.MustCompile(`^sandbox-[0-9a-z]{12}$`).MatchString(s.Names.Host) || !regexp.MustCompile(`^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$`).MatchString(s.Names.Machine) {
			t.Errorf("%+v", s.Names)
		}
		kept, err := h.reg.Get(t.Context(), s.ID)
		if err != nil || kept.Names != s.Names {
			t.Errorf("%+v is kept of %+v, %v", kept, s.Names, err)
		}
	}
	if h.WarmPool().Taken == 0 {
		t.Error("none was made ahead")
	}
}

// A sandbox of an earlier version has no name of its own, and goes on without.
func TestNoNames(t *testing.T) {
	h := newHome(t, nil)
	g, err := h.grants.of(h.key)
	if err != nil {
		t.Fatal(err)
	}
	rec := &registry.Sandbox{ID: registry.NewID("i", 20), Owner: h.key.ID, Actor: h.key.Actor(), Template: BaseTemplate}
	r := g.starting(rec, callFor(rec))
	l, err := h.reserve(g, rec, r)
	if err != nil {
		t.Fatal(err)
	}
	defer l.unlock()
	in, _, err := l.boot(t.Context(), g, r, keptState{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.inventory.remove(l.managed)
	defer in.close(context.Background())
	if s := in.env.Spec; s.Hostname != "" || s.MachineID != "" {
		t.Errorf("it is called %q, %q", s.Hostname, s.MachineID)
	}
}

// Nothing that a template's memory is known by tells a name, and what is remembered of it is
// no sandbox's.
func TestNamesInNoDigest(t *testing.T) {
	h := newHome(t, nil)
	h.aTemplate(t, h.key.ID, "mine", "1", image.Config{Start: "sleep 1000"})
	keys := map[string]bool{}
	for range 2 {
		s := h.create(t, Create{Template: "mine"})
		in := h.inventory.get(s.ID).in
		in.caps.Snapshot = true
		keys[h.memories.key(in, s)] = true
	}
	if len(keys) != 1 || keys[""] {
		t.Errorf("%v", keys)
	}
}
