// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"path/filepath"
	"strconv"
	"strings"
)

// OwnLeft is what is left to this process. In a container its groups are the container's.
func OwnLeft() Left { return realKernel().left() }

func (k *kernel) left() Left {
	t := k.table()
	var l Left
	t.upwards("", func(dir string) {
		l.memory(number(dir, "memory.max"), number(dir, "memory.current")-statOf(dir, "inactive_file"))
		l.tasks(number(dir, "pids.max"), number(dir, "pids.current"))
	})
	t.upwards(Memory, func(dir string) {
		l.memory(number(dir, "memory.limit_in_bytes"), number(dir, "memory.usage_in_bytes")-statOf(dir, "total_inactive_file"))
	})
	t.upwards(Pids, func(dir string) { l.tasks(number(dir, "pids.max"), number(dir, "pids.current")) })
	return l
}

// upwards looks at our own group of a controller and at those above it that can be seen.
func (t table) upwards(controller string, look func(dir string)) {
	dir, ok := t.current(controller)
	m, _ := t.mount(controller)
	for ok {
		look(dir)
		ok = dir != m.point && strings.HasPrefix(dir, m.point)
		dir = filepath.Dir(dir)
	}
}

// unlimited is from where on a limit of version 1, which always has a number, is none.
const unlimited = 1 << 60

// memory takes the limit and the use of one group into account; 0 is no limit.
func (l *Left) memory(limit, used int64) {
	if left := max(limit-used, 0); limit > 0 && limit < unlimited && (l.MemoryMax == 0 || left < l.Memory) {
		l.Memory, l.MemoryMax = left, limit
	}
}

func (l *Left) tasks(limit, used int64) {
	if left := max(limit-used, 0); limit > 0 && (l.TasksMax == 0 || left < l.Tasks) {
		l.Tasks, l.TasksMax = left, limit
	}
}

// number is what a control file holds; 0 where it is missing, or says "max".
func number(dir, file string) int64 {
	n, err := strconv.ParseInt(read(filepath.Join(dir, file)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// statOf is one line of a group's memory.stat.
func statOf(dir, name string) int64 {
	for line := range strings.Lines(read(filepath.Join(dir, "memory.stat"))) {
		if value, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), name+" "); ok {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}
