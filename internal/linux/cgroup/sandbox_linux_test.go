// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// A group holds what was asked for and the level's own share of it, and only what a
// controller is there for.
func TestLimitsOf(t *testing.T) {
	const own = "/user.slice/caisson-9.scope"
	share := Share{Memory: 1 << 20, Pids: 3}
	for name, c := range map[string]struct {
		controllers string
		ask         sandbox.Limits
		want        Limits
	}{
		"all":           {all, sandbox.Limits{Memory: 1 << 28, CPUs: 0.5, Processes: 64}, Limits{Memory: 1<<28 + 1<<20, CPUs: 0.5, Pids: 67}},
		"nothing":       {all, sandbox.Limits{}, Limits{}},
		"memory alone":  {"memory", sandbox.Limits{Memory: 1 << 28, CPUs: 0.5, Processes: 64, IO: 1}, Limits{Memory: 1<<28 + 1<<20}},
		"without pids":  {"cpu memory", sandbox.Limits{CPUs: 2, Processes: 64}, Limits{CPUs: 2}},
		"more than all": {all, sandbox.Limits{Processes: MaxPids}, Limits{Pids: MaxPids}},
	} {
		f := newFake(t, 1000, own, map[string]string{"/": c.controllers, own: c.controllers})
		f.group(own, c.controllers, "4242")
		got, err := detect(f.kernel).LimitsOf(&c.ask, share, t.TempDir())
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}

// What a dead owner's sandbox left goes; that there is nothing is no error.
func TestSweep(t *testing.T) {
	h := host(t)
	l := &Lookup{}
	l.once.Do(func() { l.host = h })
	const id = "sbx_sweep"
	dir, copied := filepath.Join(t.TempDir(), id), filepath.Join(t.TempDir(), id)
	if err := l.Sweep(t.Context(), id, dir); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	g, err := h.Create(NameOf(id, dir), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Kill(context.Background()); _ = g.Remove(context.Background()) })
	// A copy of the state directory has the same ID, and is not its owner's.
	if err := l.Sweep(t.Context(), id, copied); err != nil || !exists(g.Dirs()[0]) {
		t.Errorf("a copy's sweep: %v, and the group is there: %v", err, exists(g.Dirs()[0]))
	}
	// One of the same name that another owner made, in a group of theirs.
	if os.Geteuid() == 0 && h.Version == 1 {
		theirs := filepath.Join(filepath.Dir(g.Dirs()[0]), "caisson-test-"+rand.Text())
		forged := filepath.Join(theirs, filepath.Base(g.Dirs()[0]))
		if err := errors.Join(os.Mkdir(theirs, 0o755), os.Mkdir(forged, 0o755), os.Chown(theirs, 65534, 65534), os.Chown(forged, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(forged); os.Remove(theirs) })
		if found := h.Find(t.Context(), id, dir); slices.Contains(found, forged) {
			t.Errorf("another user's group is taken for ours: %v", found)
		}
	}
	p := start(t, g, "burn")
	if err := l.Sweep(t.Context(), id, dir); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // it would burn for minutes
	for _, dir := range g.Dirs() {
		if exists(dir) {
			t.Errorf("%s is left", dir)
		}
	}
	if err := (&Lookup{Off: true}).Sweep(t.Context(), id, dir); err != nil {
		t.Error(err)
	}
}

// Groups whose sandbox's directory is gone go where they are empty and of the same
// directory, wherever their owner was; everything else stays.
func TestSweepEmpty(t *testing.T) {
	h := host(t)
	l := &Lookup{}
	l.once.Do(func() { l.host = h })
	runs, others := t.TempDir(), t.TempDir()
	make := func(id, dir string) *Group {
		g, err := h.Create(NameOf(id, filepath.Join(dir, id)), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Kill(context.Background()); _ = g.Remove(context.Background()) })
		return g
	}
	left, owned, busy, foreign := make("sbx_left", runs), make("sbx_owned", runs), make("sbx_busy", runs), make("sbx_foreign", others)
	p := start(t, busy, "burn")
	// One that was made by a caisson that was in another group of its own.
	deep := ""
	if h.Version == 1 {
		above := filepath.Join(filepath.Dir(left.Dirs()[0]), "caisson-test-"+rand.Text())
		deep = filepath.Join(above, filepath.Base(left.Dirs()[0]))
		if err := errors.Join(os.Mkdir(above, 0o755), os.Mkdir(deep, 0o755)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(deep); os.Remove(above) })
	}
	if err := l.SweepEmpty(t.Context(), runs, func(id string) bool { return id == "sbx_owned" }); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		dirs []string
		want bool
	}{
		{"an empty one whose directory is gone", left.Dirs(), false}, {"one elsewhere", []string{deep}, false},
		{"one whose directory is there", owned.Dirs(), true}, {"one with a process in it", busy.Dirs(), true}, {"one of another directory", foreign.Dirs(), true},
	} {
		for _, dir := range c.dirs {
			if exists(dir) != c.want {
				t.Errorf("%s: %s is there: %v", c.what, dir, exists(dir))
			}
		}
	}
	if err := busy.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	// A directory of the same name is another one.
	if err := errors.Join(os.Remove(runs), os.Mkdir(runs, 0o700), l.SweepEmpty(t.Context(), runs, func(string) bool { return false })); err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(busy.Dirs(), owned.Dirs()...) {
		if !exists(dir) {
			t.Errorf("%s went for a directory that was made later", dir)
		}
	}
}
