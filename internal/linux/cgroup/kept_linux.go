// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// kept are counters of a group that stay open: to open and close one costs
// several times what reading it does.
type kept struct {
	mu    sync.Mutex
	files map[string]int // path → descriptor
}

// Keep opens what Usage, OOMKilled and PidsMaxHit read and keeps it open until
// Remove, five or six descriptors. It is for groups whose end is waited for; a
// counter that cannot be opened is opened when it is asked for, as without
// Keep.
func (g *Group) Keep() {
	counters := [][2]string{
		{CPU, "cpu.stat"}, {Memory, "memory.current"}, {Memory, "memory.peak"}, {Memory, "memory.events"},
		{Pids, "pids.current"}, {Pids, "pids.events"},
	}
	if g.version == 1 {
		counters = [][2]string{
			{"cpuacct", "cpuacct.usage"}, {Memory, "memory.usage_in_bytes"}, {Memory, "memory.max_usage_in_bytes"},
			{Memory, "memory.oom_control"}, {Pids, "pids.current"}, {Pids, "pids.events"},
		}
	}
	g.kept.mu.Lock()
	defer g.kept.mu.Unlock()
	if g.kept.files != nil {
		return
	}
	g.kept.files = make(map[string]int, len(counters))
	for _, c := range counters {
		if g.dir(c[0]) == "" {
			continue
		}
		name := filepath.Join(g.dir(c[0]), c[1])
		if fd, err := open(name, unix.O_RDONLY); err == nil {
			g.kept.files[name] = fd
		}
	}
}

// read returns a control file's text, from the open file where it is kept.
func (k *kept) read(file string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	fd, ok := k.files[file]
	if !ok {
		return read(file)
	}
	var buf [1024]byte // no counter is longer; cpu.stat has about 300 bytes
	for {
		n, err := unix.Pread(fd, buf[:], 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n == len(buf):
			return read(file)
		}
		return strings.TrimSuffix(string(buf[:n]), "\n")
	}
}

func (k *kept) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, fd := range k.files {
		_ = unix.Close(fd)
	}
	clear(k.files)
}
