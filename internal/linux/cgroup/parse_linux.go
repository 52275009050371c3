// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/internal/linux/mounts"
)

// mount is one mounted hierarchy.
type mount struct {
	root        string   // which of the hierarchy's groups is seen at point
	point       string   // where
	version     int      // 1 or 2
	controllers []string // version 1 only
}

// parseMounts picks the cgroup mounts out of a list of mounts. Lines that are
// none of the kernel's are passed over.
func parseMounts(list string) []mount {
	var found []mount
	for line := range strings.Lines(list) {
		listed, ok := mounts.Parse(line)
		if !ok {
			continue
		}
		m := mount{root: listed.Root, point: listed.Point}
		switch listed.Type {
		case "cgroup2":
			m.version = 2
		case "cgroup":
			m.version = 1
			for opt := range strings.SplitSeq(listed.Super, ",") {
				if slices.Contains(v1Controllers, opt) {
					m.controllers = append(m.controllers, opt)
				}
			}
		default:
			continue
		}
		found = append(found, m)
	}
	return found
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
// there and are left out: they cannot be named here.
func parsePids(file string) []int {
	var pids []int
	for word := range strings.FieldsSeq(file) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}
