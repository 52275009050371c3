// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// measure reads what the sandbox has used since its program began: from the
// control group, or without one from the /proc inside.
func (b *box) measure() sandbox.Usage {
	if b.group == nil {
		return b.sample()
	}
	u := b.group.Usage()
	if u.CPU != nil && b.base.CPU != nil {
		d := max(*u.CPU-*b.base.CPU, 0)
		u.CPU = &d
	}
	if u.Processes != nil {
		*u.Processes = max(*u.Processes-1, 0) // init is ours
	}
	return u
}

// watch ends the sandbox when a limit is passed that the kernel does not end it
// for: the memory limit kills one process of a group on cgroup v1, and nothing
// where there is no group.
func (b *box) watch() {
	limit := b.spec.Limits.Memory
	switch {
	case limit <= 0:
		if b.group == nil {
			b.sample()
		}
		return
	case b.group != nil && !b.group.OOMKilled():
		return
	case b.group == nil:
		if u := b.sample(); u.Memory == nil || *u.Memory <= limit {
			return
		}
	}
	b.exceeded(sandbox.LimitMemory)
	b.kill()
}

// overLimit reports whether a limit ends the sandbox, and sees to that where the
// kernel has killed something for the memory limit and that was not noticed yet.
func (b *box) overLimit() bool {
	if b.group != nil {
		b.watch()
	}
	return b.endedBy() != ""
}

// sampler sums up what processes use where no control group does.
type sampler struct {
	proc *os.File // the sandbox's own /proc; nil before
	root string   // the sandbox's root, seen from here
	cpu  time.Duration
	peak int64
}

func (s *sampler) close() {
	if s.proc != nil {
		s.proc.Close()
	}
}

// clockTick is the unit of times in /proc: USER_HZ is 100 on all of Linux's
// architectures that we run on (time(7)).
const clockTick = time.Second / 100

// sample looks at all processes inside. What ends between two looks is lost
// where it was not waited for.
func (b *box) sample() (u sandbox.Usage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.sampler
	u.At = time.Now()
	defer func() {
		if s.cpu >= clockTick {
			cpu := s.cpu
			u.CPU = &cpu
		}
		if s.peak > 0 {
			peak := s.peak
			u.MemoryPeak = &peak
		}
	}()
	if b.program == 0 || !s.open(b.program) {
		return u
	}
	if _, err := s.proc.Seek(0, 0); err != nil {
		return u
	}
	names, err := s.proc.Readdirnames(-1)
	if err != nil {
		return u
	}
	var memory int64
	var cpu time.Duration
	n := 0
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' || name == "1" {
			continue
		}
		m, c := s.process(name)
		memory, cpu, n = memory+m, cpu+c, n+1
	}
	for _, sc := range b.spec.Scratch {
		var st unix.Statfs_t
		if unix.Statfs(path.Join(s.root, sc.Target), &st) == nil {
			memory += int64(st.Blocks-st.Bfree) * st.Bsize
		}
	}
	s.cpu, s.peak = max(s.cpu, cpu), max(s.peak, memory)
	u.Memory, u.Processes = &memory, &n
	return u
}

// open opens the sandbox's own /proc through its program, once.
func (s *sampler) open(program int) bool {
	if s.proc != nil {
		return true
	}
	s.root = fmt.Sprintf("/proc/%d/root", program)
	f, err := os.Open(s.root + "/proc")
	if err != nil {
		return false
	}
	s.proc = f
	return true
}

// process is what one process has in memory that is its own, and its CPU time
// with that of the children it has waited for.
func (s *sampler) process(pid string) (memory int64, cpu time.Duration) {
	fields := bytes.Fields(s.read(pid + "/statm"))
	if len(fields) > 2 {
		memory = (number(fields[1]) - number(fields[2])) * int64(os.Getpagesize())
	}
	stat := s.read(pid + "/stat")
	// The name is in parentheses and may hold anything.
	fields = bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const utime, cstime = 14 - 3, 17 - 3 // proc_pid_stat(5), from the state on
	if len(fields) > cstime {
		for _, f := range fields[utime : cstime+1] {
			cpu += time.Duration(number(f)) * clockTick
		}
	}
	return memory, cpu
}

func (s *sampler) read(name string) []byte {
	fd, err := unix.Openat(int(s.proc.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	if err != nil {
		return nil
	}
	return b[:n]
}

func number(b []byte) int64 {
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return n
}
