// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// golden is what a level's processes are, seen from the host. The zero value is
// the strictest.
type golden struct {
	shares []string // namespaces that are the host's
	// caps are the capabilities that a process of this name holds, in a user
	// namespace that is not the host's.
	caps map[string]uint64
}

// goldens by level; a level that is not here has the strictest.
func goldenOf(level string) golden {
	switch level {
	case "gvisor":
		return golden{shares: []string{"cgroup"}, caps: map[string]uint64{
			"runsc-gofer": 0x4001f, "runsc-sandbox": 0x8001f, // posture_test.go of sandbox/gvisor says which
			"exe": 0x8001f, // the processes that run code inside, which it has forked
		}}
	case "process":
		return golden{shares: []string{"cgroup"}}
	case "docker":
		// The first process waits in the host's user namespace, without a
		// capability; the agent beside the code is root of another
		// (posture_test.go of sandbox/docker says which).
		return golden{shares: []string{"user"}, caps: map[string]uint64{"caisson-guest": 0x1ff}}
	}
	return golden{}
}

// privileged finds capabilities and missing no_new_privs.
func (e *evidence) privileged() string {
	want := goldenOf(e.posture.Isolation)
	own, _ := os.Readlink("/proc/self/ns/user")
	for _, p := range e.insiders() {
		if p.status["NoNewPrivs"] != "1" {
			return fmt.Sprintf("%s is without no_new_privs", p)
		}
		for _, set := range []string{"CapEff", "CapPrm", "CapAmb"} {
			have, err := strconv.ParseUint(p.status[set], 16, 64)
			allowed := want.caps[p.name()]
			if p.namespaces["user"] == own {
				allowed = 0
			}
			if err != nil || have&^allowed != 0 {
				return fmt.Sprintf("%s has %s %s", p, set, p.status[set])
			}
		}
	}
	return ""
}

// unfiltered finds processes without a system call filter.
func (e *evidence) unfiltered() string {
	for _, p := range e.insiders() {
		if p.status["Seccomp"] != "2" {
			return fmt.Sprintf("%s has no system call filter", p)
		}
	}
	return ""
}

// unlike compares namespaces, users, groups and core files with the golden list.
func (e *evidence) unlike() string {
	want := goldenOf(e.posture.Isolation)
	for _, p := range e.insiders() {
		for _, ns := range []string{"user", "mnt", "net", "pid", "ipc", "uts", "cgroup"} {
			own, _ := os.Readlink("/proc/self/ns/" + ns)
			if p.hidden == nil && p.namespaces[ns] == own && !slices.Contains(want.shares, ns) {
				return fmt.Sprintf("%s is in the host's %s namespace", p, ns)
			}
		}
		for _, key := range []string{"Uid", "Gid"} {
			for _, text := range strings.Fields(p.status[key]) {
				if id, err := strconv.Atoi(text); err != nil || !stranger(id) {
					return fmt.Sprintf("%s has %s %s", p, strings.ToLower(key), p.status[key])
				}
			}
		}
		if os.Geteuid() == 0 && slices.ContainsFunc(strings.Fields(p.status["Groups"]), func(g string) bool { id, err := strconv.Atoi(g); return err != nil || !stranger(id) }) {
			return fmt.Sprintf("%s is in the groups %s", p, p.status["Groups"])
		}
		// A handler that core_pattern pipes to is run with a limit of 0, too; with
		// 1 the kernel runs none (do_coredump in fs/coredump.c).
		if p.cores != "0 0" && p.cores != "1 1" {
			return fmt.Sprintf("%s may leave a core file (%s)", p, p.cores)
		}
	}
	return ""
}

// stranger is an id that owns nothing on the host: as root one beyond all
// accounts, else the caller's own, which nothing can change.
func stranger(id int) bool {
	if me := os.Geteuid(); me != 0 {
		return id == me || id == os.Getegid()
	}
	return id >= 1<<16
}

// terminals finds those of the caller.
func (e *evidence) terminals() string {
	for _, p := range e.insiders() {
		if p.tty != 0 {
			return fmt.Sprintf("%s has a controlling terminal", p)
		}
		for _, d := range p.files {
			if d.mode&unix.S_IFMT == unix.S_IFCHR && unix.Major(d.rdev) >= 136 && unix.Major(d.rdev) <= 143 {
				var st unix.Stat_t
				// One of its own has another file system of terminals.
				if unix.Stat("/dev/pts", &st) != nil || d.dev == uint64(st.Dev) {
					return fmt.Sprintf("%s holds the host's terminal %s", p, d.link)
				}
			}
		}
	}
	return ""
}

// leftGroup finds processes outside a control group of caisson's, where a limit
// rests on one.
func (e *evidence) leftGroup() string {
	if e.posture.Limits[sandbox.LimitMemory] != sandbox.Enforced {
		return ""
	}
	for _, p := range e.insiders() {
		for line := range strings.Lines(p.group) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) < 3 {
				continue
			}
			v2 := parts[0] == "0" && len(strings.Split(p.group, "\n")) <= 2 // the only hierarchy
			if (v2 || slices.Contains(strings.Split(parts[1], ","), "memory")) && !strings.Contains(parts[2], "caisson") {
				return fmt.Sprintf("%s is in the control group %s", p, parts[2])
			}
		}
	}
	return ""
}
