// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	gvisor "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/caisson-run/caisson/sandbox/gvisor/wire"
)

// How often the kernel inside is asked for the memory that programs hold: a
// control group holds the limit to within what gVisor itself does not use of
// its share, and without one nothing else holds it.
const (
	watchEvery      = 100 * time.Millisecond
	watchEveryAlone = 50 * time.Millisecond
)

// counters reads what the sandbox has used since its first process started:
// the share of gVisor itself until then is not the program's.
func (w *world) counters() wire.Counters {
	w.mu.Lock()
	base := w.base
	w.mu.Unlock()
	if base == nil {
		return wire.Counters{} // no program has used anything yet
	}
	n := w.read()
	n.CPU = since(n.CPU, base.CPU)
	if w.group == nil && n.CPU != nil && *n.CPU < clockTick {
		n.CPU = nil // shorter than the clock behind it ticks: not measured
	}
	n.Memory = since(n.Memory, base.Memory)
	n.MemoryPeak = since(n.MemoryPeak, base.Memory)
	w.mu.Lock()
	if peak := w.peak; peak > 0 && (n.MemoryPeak == nil || *n.MemoryPeak < peak) {
		n.MemoryPeak = &peak
	}
	w.mu.Unlock()
	n.Processes = w.processes()
	if w.group != nil {
		n.PidsHit = w.group.PidsMaxHit()
	}
	return n
}

// since is now less base, never below 0; nil when now was not measured.
func since[T int64 | time.Duration](now, base *T) *T {
	if now == nil {
		return nil
	}
	d := *now
	if base != nil {
		d = max(d-*base, 0)
	}
	return &d
}

// read takes the raw figures: from the control group, or without one from the
// kernel inside and its processes.
func (w *world) read() wire.Counters {
	var n wire.Counters
	if w.group != nil {
		u := w.group.Usage()
		n.CPU, n.Memory, n.MemoryPeak = u.CPU, u.Memory, u.MemoryPeak
		return n
	}
	w.mu.Lock()
	pid := w.pid
	w.mu.Unlock()
	d, ok := treeCPU(pid)
	w.mu.Lock()
	w.cpu = max(w.cpu, d)
	d = w.cpu
	w.mu.Unlock()
	if ok || d > 0 {
		n.CPU = &d
	}
	if m, ok := w.guestMemory(); ok {
		n.Memory = &m
	}
	return n
}

// guestMemory asks the kernel inside how much memory programs hold.
func (w *world) guestMemory() (int64, bool) {
	k := w.runningKernel()
	if k == nil {
		return 0, false
	}
	u, err := k.Usage(false)
	if err != nil {
		return 0, false
	}
	return int64(u.Anonymous + u.Unknown + u.Ramdiskfs), true
}

// processes counts the processes inside; nil when the kernel is gone.
func (w *world) processes() *int {
	k := w.runningKernel()
	if k == nil {
		return nil
	}
	ps, err := k.Processes(w.order.ID)
	if err != nil {
		return nil
	}
	n := len(ps)
	return &n
}

// runningKernel is the kernel inside while programs run, else nil. One that
// ends meanwhile answers with an error.
func (w *world) runningKernel() *gvisor.Sandbox {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return nil
	}
	return w.kernel
}

// watchMemory sees the most that programs hold, and ends them when it is too
// much. Without a memory cgroup it counts, as one would, what the kernel inside
// holds on their behalf beyond the share that it has for itself: full sockets
// and pipes, names of files. That is gVisor's own heap, which its figures for
// programs leave out.
func (w *world) watchMemory(stop <-chan struct{}) {
	every := watchEvery
	if w.group == nil {
		every = watchEveryAlone
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if w.group == nil {
			w.read() // what ends between two looks is lost, so look often
		}
		m, ok := w.guestMemory()
		if !ok {
			continue
		}
		w.mu.Lock()
		w.peak = max(w.peak, m)
		w.mu.Unlock()
		if w.order.Memory > 0 && (m > w.order.Memory || w.order.KernelShare > 0 && m+w.kernelHeap() > w.order.Memory+w.order.KernelShare) {
			w.kill("memory")
			return
		}
	}
}

// kernelHeap is the kernel process's anonymous memory, in bytes; programs'
// memory lies in files of its own. It is 0 when the process is gone.
func (w *world) kernelHeap() int64 {
	w.mu.Lock()
	pid := w.pid
	w.mu.Unlock()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	return anonymous(string(status))
}

// anonymous takes the line "RssAnon: 1234 kB" out of proc_pid_status(5).
func anonymous(status string) int64 {
	_, rest, _ := strings.Cut(status, "\nRssAnon:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
