// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// about says what was measured, on what, and how to read it.
func (s *stage) about(ctx context.Context) []string {
	version, err := s.caisson(ctx, s.users[0], "version").Output()
	ours, _, _ := strings.Cut(string(version), "\n")
	if err != nil || ours == "" {
		ours = "caisson of unknown version"
	}
	return []string{
		"date: " + time.Now().UTC().Format("2006-01-02 15:04 MST"),
		fmt.Sprintf("machine: %s, %d cores, Linux %s, cgroup %s", processor(), runtime.NumCPU(), kernel(), cgroups()),
		fmt.Sprintf("versions: %s (commit %s), gVisor %s, %s", ours, commit(ctx), gvisorVersion(), runtime.Version()),
		"caisson: `caisson run -- …` with every default, so with all its limits on; its audit record is written",
		"runsc: `runsc --network=none do --quiet …`, built from the same module with the same flags; without root also `--rootless`. " +
			"The module leaves out the filters that upstream's own build compiles ahead, so an upstream release starts faster than this runsc",
		"page cache: both programs as their first runs from the disk leave them, as after a reboot, but for the rows of programs that were just copied",
		"figures: medians (smallest–largest) of runs in turns; ratio caisson to runsc: of the medians (median of each pair's)",
		"processor time: medians of user and system time of one run, all its processes together; other load changes it little",
	}
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer f.Close()
	return modelName(f)
}

// modelName finds the processor's name in /proc/cpuinfo, which has it on some
// architectures only.
func modelName(cpuinfo io.Reader) string {
	for lines := bufio.NewScanner(cpuinfo); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH + " processor"
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

func cgroups() string {
	var st unix.Statfs_t
	switch err := unix.Statfs("/sys/fs/cgroup", &st); {
	case err != nil:
		return "none"
	case st.Type == unix.CGROUP2_SUPER_MAGIC:
		return "v2"
	}
	return "v1"
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// loadAverage is that of 1, 5 and 15 minutes.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}
