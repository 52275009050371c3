// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestBurst(t *testing.T) {
	// Ours waits until all are there, which never ends unless they run at once.
	s := actors(t, `echo x >> "$CAISSON_STATE/n"; until [ $(($(wc -l < "$CAISSON_STATE/n") % 20)) = 0 ]; do sleep 0.01; done`, "exit 1")
	r := s.burst(t.Context())
	if want := "0 of caisson's runs failed and 80 of runsc's; ratio of throughput"; r.notes[len(r.notes)-1] != want {
		t.Errorf("notes %q, want the last to be %q", r.notes, want)
	}
}

// More is better here: a side that needs twice the time has half the
// throughput, and the goal is a ratio above 1.
func TestThroughput(t *testing.T) {
	p := &pairs{ours: []took{{1000 * ms, 800 * ms}}, theirs: []took{{2000 * ms, 1600 * ms}}}
	var got row
	p.throughput(&got)
	if want := (row{ours: "20.0/s", theirs: "10.0/s", ratio: "2.00 (2.00)", cpu: "40 : 80 ms = 0.50"}); !cmp.Equal(got, want, cmp.AllowUnexported(row{})) {
		t.Error(cmp.Diff(want, got, cmp.AllowUnexported(row{})))
	}
	none := row{ours: "–"}
	if (&pairs{}).throughput(&none); none.ratio != "" || none.ours != "–" {
		t.Errorf("nothing ran, and yet %+v", none)
	}
}

func TestTogether(t *testing.T) {
	var n atomic.Int32
	// Every other one fails, each with two lines to say.
	cost, failures, first := together(t.Context(), func(ctx context.Context) *exec.Cmd {
		if n.Add(1)%2 == 0 {
			return exec.CommandContext(ctx, "sh", "-c", "echo no room >&2; echo really >&2; exit 3")
		}
		return exec.CommandContext(ctx, "sh", "-c", "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done")
	})
	if n.Load() != atOnce || failures != atOnce/2 {
		t.Errorf("%d started, %d failed, want %d and %d", n.Load(), failures, atOnce, atOnce/2)
	}
	if first == nil || first.Error() != "sh: exit status 3: no room" {
		t.Errorf("the first failure is told as %v", first)
	}
	if cost.wall <= 0 || cost.cpu <= 0 {
		t.Errorf("%+v: both clocks ran", cost)
	}
}

func TestTogetherCountsWhatCannotStart(t *testing.T) {
	_, failures, first := together(t.Context(), func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, "/nonexistent/program")
	})
	if failures != atOnce || first == nil {
		t.Errorf("%d failures (%v), want all", failures, first)
	}
}

func TestStartOnOneCore(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Log("one processor: every program runs on one")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("nproc")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := startOn(1, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got != "1" {
		t.Errorf("the program may use %s processors, want 1", got)
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
		t.Errorf("our own thread was bound too: %v, %v", after, err)
	}
}

func TestFirstOf(t *testing.T) {
	set := func(cpus ...int) (s unix.CPUSet) {
		for _, c := range cpus {
			s.Set(c)
		}
		return s
	}
	for _, tc := range []struct {
		n          int
		have, want unix.CPUSet
	}{
		{2, set(0, 1, 2, 3), set(0, 1)},
		{2, set(5, 9, 700), set(5, 9)}, // what a container is left with
		{2, set(7), set(7)},
		{2, set(), set()},
	} {
		if got := firstOf(tc.n, &tc.have); got != tc.want {
			t.Errorf("first %d of %v: %v, want %v", tc.n, tc.have, got, tc.want)
		}
	}
}
