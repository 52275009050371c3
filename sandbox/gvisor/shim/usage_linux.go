// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	gvisor "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// How often the kernel inside is asked for the memory that programs hold: a
// control group holds the limit to within what gVisor itself does not use of
// its share, and without one nothing else holds it.
const (
	watchEvery      = 100 * time.Millisecond
	watchEveryAlone = 50 * time.Millisecond
	// watchEveryIdle is how often a sandbox is looked at after idleLooks looks
	// at which it had not run, and watchEveryAsleep after asleepLooks, half a minute.
	// They bound how long a program that wakes up may hold what lies between its
	// limit and the control group's, which is some 45 MiB.
	watchEveryIdle   = 500 * time.Millisecond
	idleLooks        = 10
	watchEveryAsleep = 5 * time.Second
	asleepLooks      = idleLooks + 60
	// unasked is the processor time that a sandbox may use in steps too small to
	// count before it is asked all the same: a program that does nothing but
	// touch new memory gets some 10 MiB in that time.
	unasked = 5 * time.Millisecond
)

// counters reads what the sandbox has used since its first process started:
// the share of gVisor itself until then is not the program's.
func (w *instance) counters() protocol.Counters {
	w.mu.Lock()
	base := w.base
	w.mu.Unlock()
	if base == nil {
		return protocol.Counters{} // no program has used anything yet
	}
	n := w.read()
	n.CPU = since(n.CPU, base.CPU)
	if w.group == nil && n.CPU != nil && *n.CPU < clockTick {
		n.CPU = nil // shorter than the clock behind it ticks: not measured
	}
	n.Memory = w.ofPrograms(since(n.Memory, base.Memory))
	n.MemoryPeak = w.ofPrograms(since(n.MemoryPeak, base.Memory))
	w.mu.Lock()
	if peak := w.peak; peak > 0 && (n.MemoryPeak == nil || *n.MemoryPeak < peak) {
		n.MemoryPeak = &peak
	}
	w.mu.Unlock()
	n.Processes = w.processes()
	n.Hit = w.hitLimits()
	return n
}

// ofPrograms is what of a control group's memory may be programs': what is beyond their
// limit is gVisor's share, and pages of scratch files that the host's kernel keeps while
// there is room.
func (w *instance) ofPrograms(n *int64) *int64 {
	if n == nil || w.order.Memory <= 0 {
		return n
	}
	return new(min(*n, w.order.Memory))
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
func (w *instance) read() protocol.Counters {
	var n protocol.Counters
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
func (w *instance) guestMemory() (int64, bool) {
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
func (w *instance) processes() *int {
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
func (w *instance) runningKernel() *gvisor.Sandbox {
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
// programs leave out. It goes on until looks is stopped, which is its own from then on.
func (w *instance) watchMemory(looks *beat) {
	defer looks.close()
	every := watchEveryAlone
	if w.group != nil {
		w.group.Keep()
		every = watchEvery
	}
	var watch sleeper
	looks.every(every)
	for looks.wait() {
		if w.group == nil {
			w.read() // what ends between two looks is lost, so look often
		} else {
			ask := watch.look(w.others(), every)
			if next := watch.next(); next != every {
				every = next
				looks.every(every)
			}
			if !ask {
				continue
			}
		}
		m, ok := w.guestMemory()
		if w.group != nil {
			watch.took(w.others())
		}
		if !ok {
			continue
		}
		heap := w.kernelHeap()
		w.mu.Lock()
		w.peak, w.heap = max(w.peak, m), heap
		w.mu.Unlock()
		if w.order.Memory > 0 && (m > w.order.Memory || w.order.KernelShare > 0 && m+heap > w.order.Memory+w.order.KernelShare) {
			w.kill("memory")
			return
		}
	}
}

// others is the processor time of the control group without this process's own,
// which is in the group: to look costs more than an idle sandbox uses, and would be
// a reason to ask. nil where it cannot be read.
func (w *instance) others() *time.Duration {
	all := w.group.CPU()
	if all == nil {
		return nil
	}
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
		return all
	}
	d := *all - time.Duration(own.Utime.Nano()+own.Stime.Nano())
	return &d
}

// sleeper tells whether a sandbox has used the processor since the kernel inside
// was last asked. Who has not run holds no more memory than before: the question,
// which costs both processes a millisecond, is left out, and two hundred
// sandboxes that wait for work cost next to nothing.
type sleeper struct {
	known    bool
	seen     time.Duration // processor time at the last look
	answered time.Duration // processor time after the last answer
	idle     int           // looks in a row at which it had used less than 1 % of a processor
}

// look reports whether the kernel is to be asked, after the time between two
// looks; cpu is nil where it cannot be read.
func (s *sleeper) look(cpu *time.Duration, between time.Duration) (ask bool) {
	if cpu == nil || !s.known {
		s.known, s.idle = cpu != nil, 0
		return true
	}
	if used := *cpu - s.seen; used >= between/100 {
		s.idle = 0
	} else {
		s.idle++
	}
	s.seen = *cpu
	return s.idle == 0 || *cpu-s.answered >= unasked
}

// next is how long to wait for the next look.
func (s *sleeper) next() time.Duration {
	switch {
	case s.idle >= asleepLooks:
		return watchEveryAsleep
	case s.idle >= idleLooks:
		return watchEveryIdle
	}
	return watchEvery
}

// took leaves out what the answer itself cost: it would be a reason to ask
// again. What a program took meanwhile is asked about with its next step.
func (s *sleeper) took(cpu *time.Duration) {
	if cpu != nil {
		s.seen, s.answered = *cpu, *cpu
	}
}

// kernelHeap is the kernel process's anonymous memory, in bytes; programs'
// memory lies in files of its own. It is 0 when the process is gone.
func (w *instance) kernelHeap() int64 {
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
