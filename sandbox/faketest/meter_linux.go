// SPDX-License-Identifier: Apache-2.0

package faketest

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// meter samples the processes of one fake sandbox and kills at the memory
// limit.
type meter struct {
	pid   int
	spec  *sandbox.Spec
	ex    *sandbox.Exec
	mu    sync.Mutex
	cpu   time.Duration
	peak  int64
	limit sandbox.LimitName
}

func newMeter(pid int, spec *sandbox.Spec, ex *sandbox.Exec) *meter {
	return &meter{pid: pid, spec: spec, ex: ex}
}

func (m *meter) loop(ctx context.Context, done <-chan struct{}, kill func()) {
	every := m.ex.SampleEvery
	if every <= 0 {
		every = 50 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			kill()
			return
		case <-tick.C:
		}
		u := m.read()
		if m.ex.Sample != nil {
			m.ex.Sample(u)
		}
		if max := m.spec.Limits.Memory; max > 0 && *u.Memory > max {
			m.mu.Lock()
			m.limit = sandbox.LimitMemory
			m.mu.Unlock()
			kill()
			return
		}
	}
}

// read sums up the processes of the sandbox's PID namespace. The first process is not
// counted, nor is one that it has made and that has not become its program yet: its memory
// is the first one's.
func (m *meter) read() sandbox.Usage {
	var mem int64
	var cpu time.Duration
	n := 0
	entries, _ := os.ReadDir("/proc")
	ours, _ := os.Readlink("/proc/" + itoa(m.pid) + "/ns/pid")
	first, _ := os.Readlink("/proc/" + itoa(m.pid) + "/exe")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == m.pid {
			continue
		}
		if ns, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err != nil || ns != ours {
			continue
		}
		n++
		if exe, err := os.Readlink("/proc/" + e.Name() + "/exe"); err == nil && exe == first && first != "" {
			continue
		}
		if b, err := os.ReadFile("/proc/" + e.Name() + "/statm"); err == nil {
			if f := strings.Fields(string(b)); len(f) > 1 {
				pages, _ := strconv.ParseInt(f[1], 10, 64)
				mem += pages * int64(os.Getpagesize())
			}
		}
		if b, err := os.ReadFile("/proc/" + e.Name() + "/stat"); err == nil {
			if _, rest, ok := strings.Cut(string(b), ") "); ok {
				if f := strings.Fields(rest); len(f) > 12 {
					u, _ := strconv.Atoi(f[11])
					s, _ := strconv.Atoi(f[12])
					cpu += time.Duration(u+s) * 10 * time.Millisecond
				}
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peak = max(m.peak, mem)
	m.cpu = max(m.cpu, cpu)
	c, p := m.cpu, m.peak
	return sandbox.Usage{At: time.Now(), CPU: &c, Memory: &mem, MemoryPeak: &p, Processes: &n}
}

func (m *meter) result(wall time.Duration) *sandbox.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &sandbox.Result{WallMS: wall.Milliseconds()}
	if m.peak > 0 { // a program may end before the first sample
		cpu, peak := m.cpu.Milliseconds(), m.peak
		r.CPUMS, r.MemoryPeakBytes = &cpu, &peak
	}
	if m.limit != "" {
		r.Status, r.Resource = sandbox.StatusResourceExceeded, m.limit
	}
	return r
}

func signalName(s syscall.Signal) string { return unix.SignalName(s) }
