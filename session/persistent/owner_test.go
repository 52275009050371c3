// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
)

// The owner of the host may ask for what no key may, has it also after a pause, is bounded as
// in a run of its own, and is called by its name in every record.
func TestOwner(t *testing.T) {
	toolsAlone, err := policy.Parse("tools.yaml", []byte("version: 1\ntools: [{name: run_code}]\nfiles: {deny: ['**/secret'], mounts: []}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var level *faketest.Driver
	var mounts int
	h := newHome(t, func(o *SandboxesOptions) {
		level = o.Drivers["gvisor"].(*faketest.Driver)
		level.Begun = func(s *sandbox.Spec, _ *sandbox.Exec) { mounts = len(s.Mounts) }
		o.Policies = map[string]*policy.File{"": nil, "tools": toolsAlone}
	})
	given := filepath.Join(t.TempDir(), "given")
	if err := os.WriteFile(given, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	want := Create{Wishes: &policy.Call{Mounts: []policy.MountWish{{Source: given, Target: "/given"}}}}
	if _, err := h.Create(t.Context(), h.key, want); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("a key that asks for a file of the host: %v", err)
	}
	h.create(t, Create{})
	without := mounts
	owner := &Key{ID: "one", Name: "one", Owner: "alice"}
	s, err := h.Create(t.Context(), owner, want)
	if err != nil {
		t.Fatal(err)
	}
	if mounts != without+1 {
		t.Errorf("%d mounts, and %d without one", mounts, without)
	}
	if want, mine := callFor(s), s.Wishes; !want.Operator || len(want.Mounts) != 1 || mine == nil {
		t.Errorf("it would be resumed as %+v", want)
	}
	if res, err := h.Handle(owner, s.ID).Exec(t.Context(), &session.Call{Call: policy.Call{Argv: []string{"true"}}}, session.IO{}); err != nil || res.Status != sandbox.StatusSuccess {
		t.Errorf("%+v, %v", res, err)
	}
	for r, err := range h.log.Query(t.Context(), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Call.Sandbox == s.ID && r.Call.Actor != "alice" {
			t.Errorf("%+v", r.Call)
		}
	}

	// A key starts programs by tools where a policy lists those; its owner by itself.
	key, owner := *h.key, &Key{ID: "one", Name: "one", Owner: "alice", Policy: "tools"}
	key.Policy = "tools"
	for who, k := range map[error]*Key{sandbox.ErrDenied: &key, nil: owner} {
		s, err := h.Create(t.Context(), k, Create{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Handle(k, s.ID).Exec(t.Context(), &session.Call{Call: policy.Call{Argv: []string{"true"}}}, session.IO{}); !errors.Is(err, who) {
			t.Errorf("%s: %v, want %v", k.Actor(), err, who)
		}
		if err := h.Handle(k, s.ID).Files("", "").Remove(t.Context(), "secret"); !errors.Is(err, sandbox.ErrDenied) {
			t.Errorf("%s removes what is denied: %v", k.Actor(), err)
		}
	}
}
