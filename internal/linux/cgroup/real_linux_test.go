// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

const mib = 1 << 20

func TestMemoryLimitKills(t *testing.T) {
	h := host(t)
	for _, tt := range []struct {
		name  string
		limit int64
		dies  bool
	}{{"over", 48 * mib, true}, {"under", 400 * mib, false}, {"no limit", 0, false}} {
		t.Run(tt.name, func(t *testing.T) {
			g := group(t, h, Limits{Memory: tt.limit})
			p := start(t, g, "alloc 120")
			err := p.Wait()
			if died := err != nil; died != tt.dies || g.OOMKilled() != tt.dies {
				t.Fatalf("died %v, OOMKilled %v, want %v; %s", died, g.OOMKilled(), tt.dies, &p.out)
			}
			if status := p.ProcessState.Sys().(syscall.WaitStatus); tt.dies && status.Signal() != syscall.SIGKILL {
				t.Errorf("ended with %v, want SIGKILL", status)
			}
			// The kernel charges some of its own pages past the limit; one was
			// seen on 6.1.
			const slack = 16 * 4096
			u := g.Usage()
			if u.MemoryPeak == nil || *u.MemoryPeak < 40*mib || (tt.limit > 0 && *u.MemoryPeak > tt.limit+slack) {
				t.Errorf("peak %v with limit %d", *u.MemoryPeak, tt.limit)
			}
			if u.CPU == nil || *u.CPU <= 0 || *u.CPU > time.Minute {
				t.Errorf("CPU %v", u.CPU)
			}
		})
	}
}

// What lies in the buffers of internet sockets is memory, too: version 1 counts
// it apart, and only where there is a limit of its own. Version 2 counts it with
// the rest, where it kills as the rest does.
func TestMemoryLimitHoldsSockets(t *testing.T) {
	h := host(t)
	const limit = 24 * mib
	g := group(t, h, Limits{Memory: limit})
	p := start(t, g, "datagrams")
	switch err := p.Wait(); {
	case err != nil && h.Version == 2 && g.OOMKilled():
		return
	case err != nil:
		t.Fatalf("%v: %s", err, &p.out)
	}
	held, err := strconv.ParseInt(strings.TrimSpace(p.out.String()), 10, 64)
	if maximum := socketShare(limit) + mib; err != nil || held == 0 || h.Version == 1 && held > maximum || held > limit {
		t.Errorf("sockets hold %d bytes in a group of %d, %v", held, limit, err)
	}
}

func TestPidsLimitRefusesForks(t *testing.T) {
	h := host(t)
	for _, tt := range []struct {
		name   string
		limit  int
		bitten bool
	}{{"bites", 24, true}, {"wide enough", 200, false}} {
		t.Run(tt.name, func(t *testing.T) {
			g := group(t, h, Limits{Pids: tt.limit})
			// All are there at once, however long it takes to start them.
			p := start(t, g, "exec", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do sleep 1000 >/dev/null 2>&1 & all=\"$all $!\"; done; kill $all; wait")
			err := p.Wait()
			if g.PidsMaxHit() != tt.bitten || (err != nil) != tt.bitten {
				t.Fatalf("PidsMaxHit %v, sh: %v %s; want bitten %v", g.PidsMaxHit(), err, &p.out, tt.bitten)
			}
		})
	}
}

func TestCPUQuotaThrottles(t *testing.T) {
	h := host(t)
	// A hundredth is less than what a busy machine gives a program at a time.
	g := group(t, h, Limits{CPUs: 0.01})
	start(t, g, "burn")
	until(t, "three throttled periods", func() bool { n, waited := g.Throttled(); return n >= 3 && waited > 0 })

	free := group(t, h, Limits{})
	start(t, free, "burn")
	until(t, "half a second of CPU", func() bool { u := free.Usage(); return u.CPU != nil && *u.CPU > 500*time.Millisecond })
	if n, _ := free.Throttled(); n != 0 {
		t.Errorf("throttled %d times without a limit", n)
	}
}

func TestIOLimitSlowsDirectWrites(t *testing.T) {
	h := host(t)
	dir := t.TempDir()
	device, err := BlockDevice(dir)
	if err != nil {
		if !errors.Is(err, sandbox.ErrUnsupported) || sandbox.Hint(err) == "" {
			t.Fatalf("%v: want an answer that says why", err)
		}
		t.Skip(err)
	}
	limits := Limits{IO: 4 * mib, Devices: []Device{device}}
	if ok, _ := h.Can(IO); !ok {
		if _, err := h.Create("caisson-test-io", limits); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Fatalf("Create with an I/O limit that cannot hold: %v", err)
		}
		return
	}
	for _, l := range []Limits{limits, {IOPS: 16, Devices: limits.Devices}} {
		g := group(t, h, l)
		began := time.Now()
		p := start(t, g, "write "+filepath.Join(dir, "f"))
		if err := p.Wait(); err != nil {
			t.Fatalf("%v: %s", err, &p.out)
		}
		// 4 MiB at 4 MiB/s, or 16 writes at 16/s; the kernel grants the first slice.
		if took := time.Since(began); took < 600*time.Millisecond {
			t.Errorf("%+v: took %v", l, took)
		}
	}
}

func TestKillReachesWhatForksAndHides(t *testing.T) {
	h := host(t)
	for _, tt := range []struct {
		name, script string
		grown        int
	}{
		{"tree with sessions", "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & setsid sleep 1000 & wait' & done; wait", 9},
		{"fork bomb", "while :; do (sleep 0.01; sleep 0.01) & (sleep 1000) & done", 9},
		// No process of these lives long enough to be read and then killed.
		{"hoppers", "hop() { hop & exit; }; for i in 1 2 3 4 5 6 7 8; do hop & done; wait", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := group(t, h, Limits{Pids: 2000})
			p := start(t, g, "exec", "sh", "-c", tt.script)
			until(t, "enough processes", func() bool { n := g.Usage().Processes; return n != nil && *n >= tt.grown })
			before, _ := g.Pids()
			if err := g.Kill(context.Background()); err != nil {
				t.Fatal(err)
			}
			if pids, err := g.Pids(); err != nil || len(pids) > 0 {
				t.Fatalf("left: %v, %v", pids, err)
			}
			_ = p.Wait()
			// Without the kernel's own cgroup.kill forks are stopped first: to
			// read and to kill is a race that forks may win.
			if max := read(filepath.Join(g.dir(Pids), "pids.max")); g.version == 1 && max != "0" {
				t.Errorf("pids.max is %s: what forks may outrun Kill", max)
			}
			for _, pid := range before {
				until(t, "the end of a process", func() bool {
					return !strings.Contains(read(fmt.Sprintf("/proc/%d/cgroup", pid)), g.Name())
				})
			}
		})
	}
}

func TestStartMovesTheChildAlone(t *testing.T) {
	h := host(t)
	g := group(t, h, Limits{Memory: 200 * mib, Pids: 100})
	p := startOutside(t, "roundtrip "+strings.Join(g.Dirs(), " "))
	if err := p.Wait(); err != nil || strings.TrimSpace(p.out.String()) != "ok" {
		t.Fatalf("%v: %s", err, &p.out)
	}
}

func TestRemoveWaitsAndIsIdempotent(t *testing.T) {
	h := host(t)
	g := group(t, h, Limits{})
	p := start(t, g, "exec", "sh", "-c", "sleep 1000")
	until(t, "a member", func() bool { pids, _ := g.Pids(); return len(pids) > 0 })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := g.Remove(ctx); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), fmt.Sprint(p.Process.Pid)) {
		t.Fatalf("Remove of a group with a member: %v, want an error that names %d", err, p.Process.Pid)
	}
	again, err := Open(g.Dirs())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := again.Remove(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if left := named(h, g.Name()); len(left) != 0 {
		t.Fatalf("after Remove there is %v", left)
	}
	if u := g.Usage(); u.Memory != nil || u.CPU != nil {
		t.Errorf("a removed group still counts: %+v", u)
	}
}

func TestManyAtOnceLeaveNothing(t *testing.T) {
	h := host(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 5 {
				// A Host of its own for each: nothing but the kernel is shared,
				// as between processes.
				g, err := Detect().Create(fmt.Sprintf("caisson-test-%d-%d", os.Getpid(), serial.Add(1)), Limits{Memory: 64 * mib, CPUs: 1, Pids: 10})
				if err != nil {
					t.Error(err)
					return
				}
				if err := g.Remove(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, c := range []string{Memory, CPU, Pids} {
		left, _ := filepath.Glob(h.place(h.Base(c), fmt.Sprintf("caisson-test-%d-*", os.Getpid())))
		if len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	h := host(t)
	g := group(t, h, Limits{})
	for _, tt := range []struct {
		name   string
		limits Limits
		kind   error
	}{
		{g.Name(), Limits{}, sandbox.ErrConflict},
		{"other", Limits{}, sandbox.ErrInvalid},
		{"caisson/../x", Limits{}, sandbox.ErrInvalid},
		{"caisson-x", Limits{Memory: -1}, sandbox.ErrInvalid},
		{"caisson-x", Limits{CPUs: 0.0001}, sandbox.ErrInvalid},
		{"caisson-x", Limits{Pids: 1 << 40}, sandbox.ErrUnsupported},
		{"caisson-x", Limits{IO: 1}, sandbox.ErrUnsupported},
	} {
		_, err := h.Create(tt.name, tt.limits)
		if !errors.Is(err, tt.kind) {
			t.Errorf("Create(%q, %+v): %v, want %v", tt.name, tt.limits, err, tt.kind)
		}
	}
	if left := named(h, "caisson-x"); len(left) != 0 {
		t.Errorf("a refused group is left: %v", left)
	}
}

func TestOpenTakesOnlyOurs(t *testing.T) {
	tmp := t.TempDir()
	fake := filepath.Join(tmp, "caisson", "caisson-x")
	for _, dir := range []string{fake, filepath.Join(tmp, "caisson+caisson-x")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{
		"/sys/fs/cgroup", "/sys/fs/cgroup/caisson", "/sys/fs/cgroup/caisson/other", "caisson/caisson-x",
		"/sys/fs/cgroup/caisson/../caisson/caisson-x", "/", fake,
		"/sys/fs/cgroup/caisson-x", "/sys/fs/cgroup/pids/caisson-x", "/sys/fs/cgroup/pids/caisson+other", filepath.Join(tmp, "caisson+caisson-x"),
	} {
		if _, err := Open([]string{dir}); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("Open(%q): %v, want ErrInvalid", dir, err)
		}
	}
}

func BenchmarkCreateRemove(b *testing.B) {
	h := Detect()
	if h.Why != "" {
		b.Skip(h.Why)
	}
	for b.Loop() {
		g, err := h.Create("caisson-bench", Limits{Memory: 64 * mib, CPUs: 1, Pids: 10})
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Remove(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDetect(b *testing.B) {
	for b.Loop() {
		Detect()
	}
}

// Counters that are kept open say what those say that are opened each time, and
// are closed with the group.
func TestKeepReadsTheSame(t *testing.T) {
	h := host(t)
	g := group(t, h, Limits{Memory: 48 * mib, Pids: 24})
	again, err := Open(g.Dirs())
	if err != nil {
		t.Fatal(err)
	}
	g.Keep()
	if len(g.kept.files) < 5 {
		t.Fatalf("it keeps %v", g.kept.files)
	}
	if err := start(t, g, "alloc 120").Wait(); err == nil {
		t.Fatal("it lived")
	}
	if !g.OOMKilled() || !again.OOMKilled() {
		t.Errorf("OOMKilled: %v kept, %v opened", g.OOMKilled(), again.OOMKilled())
	}
	mine, theirs := g.Usage(), again.Usage()
	if mine.CPU == nil || *mine.CPU == 0 || *mine.CPU != *theirs.CPU || *mine.MemoryPeak != *theirs.MemoryPeak || *mine.Processes != *theirs.Processes {
		t.Errorf("usage: %+v kept, %+v opened", mine, theirs)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if u := g.Usage(); len(g.kept.files) != 0 || u.CPU != nil || u.Memory != nil {
		t.Errorf("after its end %v are open and it uses %+v", g.kept.files, u)
	}
}

// Current is what was found last for as long as this process is where it was then.
func TestCurrent(t *testing.T) {
	h := Detect()
	if got := Current(); got != h {
		t.Errorf("Current looked again: %p, then %p", h, got)
	}
	latest.Store(&Host{Version: h.Version, where: h.where + "0::/elsewhere\n"})
	if got := Current(); got.where != h.where || got.Why != h.Why || got.Version != h.Version {
		t.Errorf("Current is what was found elsewhere: %+v", got)
	}
}

// named are the directories of the group of a name.
func named(h *Host, name string) []string {
	return h.find(context.Background(), func(n string) bool { return n == name })
}
