// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"slices"
	"strconv"
	"strings"
)

// mount is one mounted hierarchy.
type mount struct {
	root        string   // which of the hierarchy's groups is seen at point
	point       string   // where
	version     int      // 1 or 2
	controllers []string // version 1 only
}

// parseMounts picks the cgroup mounts out of a mountinfo file (proc(5)). Lines
// that do not have its shape are passed over.
func parseMounts(mountinfo string) []mount {
	var mounts []mount
	for line := range strings.Lines(mountinfo) {
		before, after, found := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !found || len(left) < 6 || len(right) < 3 {
			continue
		}
		m := mount{root: unescape(left[3]), point: unescape(left[4])}
		switch right[0] {
		case "cgroup2":
			m.version = 2
		case "cgroup":
			m.version = 1
			for opt := range strings.SplitSeq(right[2], ",") {
				if slices.Contains(v1Controllers, opt) {
					m.controllers = append(m.controllers, opt)
				}
			}
		default:
			continue
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// unescape undoes mountinfo's octal escapes of blanks and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parseOwn reads /proc/PID/cgroup: controller → group, with "" for version 2.
func parseOwn(proc string) map[string]string {
	own := make(map[string]string)
	for line := range strings.Lines(proc) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") {
			continue
		}
		if parts[0] == "0" {
			own[""] = parts[2]
			continue
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			if c != "" {
				own[c] = parts[2]
			}
		}
	}
	return own
}

// parseFlat reads a flat keyed file such as cpu.stat or memory.events. What is
// not "key number" is passed over.
func parseFlat(file string) map[string]uint64 {
	values := make(map[string]uint64)
	for line := range strings.Lines(file) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			values[key] = n
		}
	}
	return values
}

// parsePids reads cgroup.procs. Processes of another PID namespace show as 0
// there and are left out: nobody here can name them.
func parsePids(file string) []int {
	var pids []int
	for word := range strings.FieldsSeq(file) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}
