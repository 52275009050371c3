// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// minCPUs is the least share the kernel takes: 1 ms of a period of 1 s.
const minCPUs = 0.001

// defaultPeriod is what every new group has, microseconds (kernel/sched/fair.c).
const defaultPeriod = 100_000

// quota turns a share of processors into microseconds of a period. A period
// of 100 ms is the kernel's default; very small shares need a longer one,
// because a quota is 1 ms at least.
func quota(cpus float64) (quota, period int64) {
	period = defaultPeriod
	if cpus < 0.01 {
		period = 1_000_000
	}
	return max(int64(math.Round(cpus*float64(period))), 1000), period
}

// limit sets every limit that was asked for and fails on the first that the
// kernel does not take. refused is what it said when the controllers were
// handed down: the true cause of a control file that is not there.
func (g *Group) limit(l Limits, refused error) error {
	type setting struct{ controller, what string }
	set := g.limit2
	if g.version == 1 {
		set = g.limit1
	}
	for _, s := range []struct {
		asked bool
		setting
	}{
		{l.Memory > 0, setting{Memory, fmt.Sprintf("memory to %d bytes", l.Memory)}},
		{l.CPUs > 0, setting{CPU, fmt.Sprintf("cpus to %g", l.CPUs)}},
		{l.Pids > 0, setting{Pids, fmt.Sprintf("processes to %d", l.Pids)}},
		{l.IO > 0 || l.IOPS > 0, setting{IO, "block I/O"}},
	} {
		if !s.asked {
			continue
		}
		if err := set(s.controller, l); err != nil {
			if errors.Is(err, fs.ErrNotExist) && refused != nil {
				err = refused
			}
			return &sandbox.Error{Op: "limit " + s.what, Kind: sandbox.ErrUnsupported, Problem: "the kernel refused it",
				Hint: "drop the limit, or see caisson doctor for what this host's cgroups can do", Cause: err}
		}
	}
	return nil
}

// MaxPids is the largest number that the kernel takes for a limit of processes, as no
// machine has more: PID_MAX_LIMIT of 64 bits (include/linux/threads.h).
const MaxPids = 4 << 20

// Tighten sets the limits of l anew. Each is as tight as the one that is in force,
// or tighter; 0 leaves one as it is. One that the kernel does not take is an error
// (sandbox.ErrUnsupported), and those before it are set.
func (g *Group) Tighten(l Limits) error { return g.limit(l, nil) }

// put writes one control file of the group.
func (g *Group) put(controller, file, value string) error {
	return g.k.write(filepath.Join(g.dir(controller), file), value)
}

func (g *Group) limit2(controller string, l Limits) error {
	switch controller {
	case Memory:
		err := g.put(Memory, "memory.max", strconv.FormatInt(l.Memory, 10))
		if err == nil && exists(filepath.Join(g.dir(Memory), "memory.swap.max")) { // absent without swap in the kernel
			err = g.put(Memory, "memory.swap.max", "0")
		}
		if err == nil {
			// A sandbox that lost one process at random is of no use.
			err = g.put(Memory, "memory.oom.group", "1")
		}
		return err
	case CPU:
		q, p := quota(l.CPUs)
		return g.put(CPU, "cpu.max", fmt.Sprintf("%d %d", q, p))
	case Pids:
		return g.put(Pids, "pids.max", strconv.Itoa(l.Pids))
	}
	for _, d := range l.Devices {
		line := d.String()
		if l.IO > 0 {
			line += fmt.Sprintf(" rbps=%d wbps=%d", l.IO, l.IO)
		}
		if l.IOPS > 0 {
			line += fmt.Sprintf(" riops=%d wiops=%d", l.IOPS, l.IOPS)
		}
		if err := g.put(IO, "io.max", line); err != nil {
			return err
		}
	}
	return nil
}

func (g *Group) limit1(controller string, l Limits) error {
	switch controller {
	case Memory:
		if err := g.limitSockets1(l.Memory); err != nil {
			return err
		}
		return g.limitMemory1(strconv.FormatInt(l.Memory, 10))
	case CPU:
		return g.limitCPU1(l.CPUs)
	case Pids:
		return g.put(Pids, "pids.max", strconv.Itoa(l.Pids))
	}
	for _, d := range l.Devices {
		for _, direction := range []string{"read", "write"} {
			for unit, value := range map[string]int64{"bps": l.IO, "iops": l.IOPS} {
				if value == 0 {
					continue
				}
				file := fmt.Sprintf("blkio.throttle.%s_%s_device", direction, unit)
				if err := g.put(IO, file, fmt.Sprintf("%s %d", d, value)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// limitMemory1 bounds memory, and memory and swap together by the same figure.
// A kernel that does not account swap lacks the second file; the group is then
// told not to swap at all.
func (g *Group) limitMemory1(bytes string) error {
	if err := g.put(Memory, "memory.limit_in_bytes", bytes); err != nil {
		return err
	}
	err := g.put(Memory, "memory.memsw.limit_in_bytes", bytes)
	if errors.Is(err, fs.ErrNotExist) {
		return g.put(Memory, "memory.swappiness", "0")
	}
	return err
}

// limitSockets1 bounds what lies in the buffers of internet sockets. Version 1
// counts it for itself, and not at all until it has a limit: a program that
// talks to itself over its loopback would take what all sockets of the machine
// share (net.ipv4.udp_mem, net.ipv4.tcp_mem). It comes on top of the memory
// limit. Kernels without it (CONFIG_INET, CONFIG_MEMCG_V1) lack the file.
func (g *Group) limitSockets1(memory int64) error {
	err := g.put(Memory, "memory.kmem.tcp.limit_in_bytes", strconv.FormatInt(socketShare(memory), 10))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// leastSockets is enough for a few connections at full speed; the kernel gives
// each up to 4 to 6 MiB, and less when there is no more.
const leastSockets = 4 << 20

// socketShare is how many bytes the buffers of internet sockets may take beside
// a memory limit on version 1.
func socketShare(memory int64) int64 { return max(memory/8, leastSockets) }

// limitCPU1 sets the quota. Version 1 refuses one that is larger than an
// ancestor's (EINVAL), as in a container with less; the ancestor's holds then.
func (g *Group) limitCPU1(cpus float64) error {
	q, p := quota(cpus)
	var err error
	if p != g.period { // to set it costs as much as the quota
		if err = g.put(CPU, "cpu.cfs_period_us", strconv.FormatInt(p, 10)); err == nil {
			g.period = p
		}
	}
	if err == nil {
		err = g.put(CPU, "cpu.cfs_quota_us", strconv.FormatInt(q, 10))
	}
	if errors.Is(err, unix.EINVAL) && g.boundAbove(cpus) {
		return nil
	}
	return err
}

// boundAbove reports whether an ancestor gives no more than cpus processors.
func (g *Group) boundAbove(cpus float64) bool {
	for dir := filepath.Dir(g.dir(CPU)); ; dir = filepath.Dir(dir) {
		quota, errQ := strconv.ParseFloat(strings.TrimSpace(read(filepath.Join(dir, "cpu.cfs_quota_us"))), 64)
		period, errP := strconv.ParseFloat(strings.TrimSpace(read(filepath.Join(dir, "cpu.cfs_period_us"))), 64)
		if errQ != nil || errP != nil {
			return false // above the mount
		}
		if quota > 0 && quota/period <= cpus {
			return true
		}
	}
}
