// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"reflect"
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
		"more than all": {all, sandbox.Limits{Processes: MostPids}, Limits{Pids: MostPids}},
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
	if err := l.Sweep(t.Context(), id); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	g, err := h.Create(NameOf(id), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, g, "burn")
	if err := l.Sweep(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // it would burn for minutes
	for _, dir := range g.Dirs() {
		if exists(dir) {
			t.Errorf("%s is left", dir)
		}
	}
	if err := (&Lookup{Off: true}).Sweep(t.Context(), id); err != nil {
		t.Error(err)
	}
}
