// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// traces are what a sandbox could leave on the host.
type traces struct {
	processes []string
	mounts    []string
	cgroups   []string
}

// Left tells what is on this host of sandboxes that have tag in their IDs and their files
// below dir, but for these files: processes of this program, mounts and control groups.
func Left(t *testing.T, tag, dir string) (found []string) {
	t.Helper()
	for kind, list := range map[string][]string{"process": strangers(t), "mount": mountsOf(t, tag, dir), "control group": cgroupsOf(t, tag)} {
		for _, what := range list {
			found = append(found, kind+" "+what)
		}
	}
	return found
}

// look takes stock before a test.
func (s *suite) look(t *testing.T) traces {
	t.Helper()
	return traces{strangers(t), mountsOf(t, s.tag, s.dir), cgroupsOf(t, s.tag)}
}

// nothingLeft demands that the host is as it was.
func (s *suite) nothingLeft(t *testing.T, before traces) {
	t.Helper()
	var now traces
	// A killed process may need a moment until its parent, who is not us any
	// more, has reaped it.
	until(t, "nothing is left behind", func() bool {
		now = s.look(t)
		return len(now.processes) <= len(before.processes) && len(now.mounts) <= len(before.mounts) && len(now.cgroups) <= len(before.cgroups)
	})
	for _, p := range now.processes {
		if !slices.Contains(before.processes, p) {
			t.Errorf("left behind: process %s", p)
		}
	}
	if len(now.mounts) > len(before.mounts) {
		t.Errorf("left behind: %d mounts of\n%s", len(now.mounts)-len(before.mounts), strings.Join(now.mounts, ""))
	}
	for _, g := range now.cgroups {
		if !slices.Contains(before.cgroups, g) {
			t.Errorf("left behind: control group %s", g)
		}
	}
}

// strangers are the processes that descend from us, or run our binary and do
// not lead to us: a level's gofer and sentry are the same binary.
func strangers(t *testing.T) []string {
	t.Helper()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	parents, states, same := map[int]int{}, map[int]string{}, map[int]bool{}
	for _, e := range entries {
		n := pid(e.Name())
		if n == 0 {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // gone meanwhile
		}
		// The name is in parentheses and may hold anything.
		stat := string(b)
		rest := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		if len(rest) < 2 || rest[0] == "Z" || rest[0] == "X" {
			continue
		}
		parents[n], states[n] = pid(rest[1]), rest[0]
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		same[n] = err == nil && strings.TrimSuffix(exe, " (deleted)") == self
	}
	ours := map[int]bool{} // us, and those we descend from
	for n := os.Getpid(); n > 0 && !ours[n]; n = parents[n] {
		ours[n] = true
	}
	var found []string
	for n := range parents {
		descends := false
		for p, i := parents[n], 0; p > 0 && i < 64; p, i = parents[p], i+1 {
			descends = descends || p == os.Getpid()
		}
		if !ours[n] && (descends || same[n]) {
			cmdline, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(n), "cmdline"))
			found = append(found, fmt.Sprintf("%d (%s) %s", n, states[n], strings.ReplaceAll(string(cmdline), "\x00", " ")))
		}
	}
	slices.Sort(found)
	return found
}

// mountsOf are those in our own namespace that have to do with a sandbox or a directory.
func mountsOf(t *testing.T, id, dir string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		if strings.Contains(line, id) || strings.Contains(line, dir) {
			lines = append(lines, line)
		}
	}
	return lines
}

// cgroupsOf lists control groups with a sandbox's name.
func cgroupsOf(t *testing.T, id string) []string {
	t.Helper()
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // what cannot be read is not ours
		}
		if strings.Contains(d.Name(), id) {
			found = append(found, path)
		}
		// A group without groups has two links. It has some fifty files, and to list
		// those of all groups before and after each test was a quarter of the suite.
		if info, err := d.Info(); err == nil && info.Sys().(*syscall.Stat_t).Nlink == 2 {
			return fs.SkipDir
		}
		return nil
	})
	return found
}
