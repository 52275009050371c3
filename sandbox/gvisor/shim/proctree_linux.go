// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is USER_HZ: 100 on every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// treeCPU adds up the processor time of pid, its descendants, and those of
// them that have ended (proc_pid_stat(5): utime, stime, cutime, cstime).
func treeCPU(pid int) (time.Duration, bool) {
	if pid <= 0 {
		return 0, false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	total, ok := statCPU(string(stat))
	if !ok {
		return 0, false
	}
	for _, child := range children(pid) {
		if d, ok := treeCPU(child); ok {
			total += d
		}
	}
	return total, true
}

// statCPU takes the four times out of a stat line. The command name stands in
// parentheses and may hold anything, so fields are counted from the last one.
func statCPU(line string) (time.Duration, bool) {
	i := strings.LastIndexByte(line, ')')
	if i < 0 {
		return 0, false
	}
	f := strings.Fields(line[i+1:]) // f[0] is field 3, the state
	if len(f) < 15 {
		return 0, false
	}
	var ticks int64
	for _, s := range f[11:15] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, false
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, true
}

// children lists the children of all of pid's threads.
func children(pid int) []int {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, t := range tasks {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if err != nil {
			continue
		}
		for _, s := range strings.Fields(string(data)) {
			if n, err := strconv.Atoi(s); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}
