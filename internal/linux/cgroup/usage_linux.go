// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Usage reads the group's counters. What the kernel does not count here stays
// nil. After Remove everything is nil.
func (g *Group) Usage() sandbox.Usage {
	u := sandbox.Usage{At: time.Now()}
	memory, peak := "memory.current", "memory.peak"
	if g.version == 1 {
		memory, peak = "memory.usage_in_bytes", "memory.max_usage_in_bytes"
	}
	u.CPU = g.CPU()
	u.Memory, u.MemoryPeak = g.number(Memory, memory), g.number(Memory, peak)
	if n := g.number(Pids, "pids.current"); n != nil {
		u.Processes = new(int)
		*u.Processes = int(*n)
	}
	return u
}

// CPU is the processor time that the group has used, all processors together;
// nil where it cannot be read. It costs one small file.
func (g *Group) CPU() *time.Duration {
	var d time.Duration
	if g.version == 1 {
		ns := g.number("cpuacct", "cpuacct.usage")
		if ns == nil {
			return nil
		}
		d = time.Duration(*ns)
	} else {
		us, ok := g.flat(CPU, "cpu.stat")["usage_usec"]
		if !ok {
			return nil
		}
		d = time.Duration(us) * time.Microsecond
	}
	return &d
}

// OOMKilled reports whether the group's own memory limit killed something in
// it. A process that the host killed for lack of its own memory does not
// count. Ask before Remove.
func (g *Group) OOMKilled() bool {
	if g.version == 1 {
		return g.flat(Memory, "memory.oom_control")["oom_kill"] > 0 && g.atLimit1()
	}
	// "oom" counts only what this limit caused, oom_kill every victim; one
	// death may count more than once with oom.group.
	events := g.flat(Memory, "memory.events")
	return events["oom"] > 0 && events["oom_kill"] > 0
}

// atLimit1 reports whether usage has reached the group's limit. The kernel
// charges 64 pages at a time, so that is how near the peak comes for certain;
// memory.failcnt, which would say it plainly, stays 0 on recent kernels.
func (g *Group) atLimit1() bool {
	limit, peak := g.number(Memory, "memory.limit_in_bytes"), g.number(Memory, "memory.max_usage_in_bytes")
	return limit != nil && peak != nil && *peak >= *limit-int64(64*os.Getpagesize())
}

// PidsMaxHit reports whether a fork failed for the group's limit of processes.
func (g *Group) PidsMaxHit() bool { return g.flat(Pids, "pids.events")["max"] > 0 }

// Throttled is how often and for how long the group waited for its share of
// processors.
func (g *Group) Throttled() (periods uint64, waited time.Duration) {
	stat := g.flat(CPU, "cpu.stat")
	if g.version == 1 {
		return stat["nr_throttled"], time.Duration(stat["throttled_time"])
	}
	return stat["nr_throttled"], time.Duration(stat["throttled_usec"]) * time.Microsecond
}

// number reads a file with one number, nil where there is none.
func (g *Group) number(controller, file string) *int64 {
	if g.dir(controller) == "" {
		return nil
	}
	n, err := strconv.ParseInt(g.kept.read(filepath.Join(g.dir(controller), file)), 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

func (g *Group) flat(controller, file string) map[string]uint64 {
	if g.dir(controller) == "" {
		return nil
	}
	return parseFlat(g.kept.read(filepath.Join(g.dir(controller), file)))
}
