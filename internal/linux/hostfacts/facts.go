// SPDX-License-Identifier: Apache-2.0

// Package hostfacts looks at this machine for caisson doctor: what the levels
// of isolation need from it, what is missing, and the exact command that mends
// it.
//
// It looks and tries, in a few milliseconds, and changes nothing. Trying beats
// reading: whether user namespaces work is asked of the kernel by making one,
// and only the reason for a refusal is read off the machine.
package hostfacts

import (
	"maps"
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

// Facts is what was found.
type Facts struct {
	System    string `json:"system"` // GOOS
	Arch      string `json:"arch"`   // GOARCH
	Kernel    string `json:"kernel,omitempty"`
	Root      bool   `json:"root"`                // effective uid 0
	Container string `json:"container,omitempty"` // docker, podman, kubernetes, lxc, …; empty on a host
	CI        string `json:"ci,omitempty"`        // the CI service whose job this is
	// Seccomp says that a filter is on this process already.
	Seccomp bool `json:"seccomp_filter"`
	// NoNewPrivs says that set-user-id programs do nothing here.
	NoNewPrivs bool `json:"no_new_privs"`

	Proc    Fact `json:"proc"`     // that /proc is there: programs are executed through it
	NewProc Fact `json:"new_proc"` // that a sandbox can mount one of its own
	Mounts  Fact `json:"mounts"`   // that mounts can be made apart from the host's, by root as root
	UserNS  Fact `json:"user_namespaces"`
	Ptrace  Fact `json:"ptrace"`  // with Filters what gVisor's systrap needs
	Filters Fact `json:"seccomp"` // that seccomp filters can be installed
	KVM     Fact `json:"kvm"`

	// Calls are the system calls that a filter on this process refuses to a level.
	Calls map[string]Fact `json:"system_calls,omitempty"`

	// Landlock is the ABI version, 0 where there is none.
	Landlock int    `json:"landlock_abi"`
	Cgroup   Cgroup `json:"cgroup"`

	// DiskFree are the bytes an ordinary user may still write below StateDir,
	// -1 where that is not known.
	StateDir string `json:"state_dir"`
	DiskFree int64  `json:"disk_free"`
	// StateNoExec says that it lies on a mount with noexec.
	StateNoExec bool `json:"state_noexec,omitempty"`

	// Docker is the socket of a Docker or Podman engine that this user may
	// talk to; DockerWhy says why there is none.
	Docker    string `json:"docker,omitempty"`
	DockerWhy string `json:"docker_why,omitempty"`
}

// Fact is one ability.
type Fact struct {
	OK     bool   `json:"ok"`
	Why    string `json:"why,omitempty"`    // why not, a phrase
	Remedy string `json:"remedy,omitempty"` // the exact command
}

// Cgroup is what control groups can do for this process.
type Cgroup struct {
	Version int    `json:"version"`
	Why     string `json:"why,omitempty"` // why no group can be made
	Remedy  string `json:"remedy,omitempty"`
	// Scope says that a delegated scope can be had from the user's systemd, so
	// that Why does not hold for a run.
	Scope bool `json:"scope,omitempty"`
	// Limits is how each controller's limits hold: memory, cpu, pids, io.
	Limits map[string]sandbox.Clause `json:"limits,omitempty"`
	Notes  []string                  `json:"notes,omitempty"`
}

// Problem is something that is missing, and for whom.
type Problem struct {
	What   string   `json:"what"`   // "user namespaces"
	Why    string   `json:"why"`    // a phrase
	Remedy string   `json:"remedy"` // the exact command or act; may be empty
	Levels []string `json:"levels"` // the levels that cannot run; none where limits alone suffer
}

// minDisk is the free disk below which a run with the usual limits may not
// have its 512 MiB of scratch.
const minDisk = 1 << 30

// Problems lists what is missing, worst first.
func (f Facts) Problems() []Problem {
	var problems []Problem
	add := func(bad bool, what, why, remedy string, levels ...string) {
		if bad {
			problems = append(problems, Problem{what, why, remedy, levels})
		}
	}
	if f.System != "linux" {
		add(true, "Linux", "caisson isolates code with what the Linux kernel offers; this is "+f.System,
			"run it on a Linux machine or in a Linux VM (on macOS: colima, lima, OrbStack; on Windows: WSL 2)", "gvisor", "process")
		return problems
	}
	add(!f.Proc.OK, "/proc", f.Proc.Why, f.Proc.Remedy, "gvisor", "process")
	// An ordinary user's are made in a user namespace: where there is none, that is the reason.
	add(!f.Mounts.OK && (f.Root || f.UserNS.OK), "mounts", f.Mounts.Why, f.Mounts.Remedy, "gvisor", "process")
	// Root needs no user namespace for gVisor; the process level always has one.
	userNS := []string{"process"}
	if !f.Root {
		userNS = []string{"gvisor", "process"}
	}
	add(!f.UserNS.OK, "user namespaces", f.UserNS.Why, f.UserNS.Remedy, userNS...)
	add(!f.Filters.OK, "seccomp filters", f.Filters.Why, f.Filters.Remedy, "gvisor", "process")
	add(!f.NewProc.OK && f.Proc.OK, "/proc", f.NewProc.Why, f.NewProc.Remedy, "process")
	add(!f.Ptrace.OK, "ptrace", f.Ptrace.Why, f.Ptrace.Remedy, "gvisor")
	for _, level := range slices.Sorted(maps.Keys(f.Calls)) {
		add(true, "system calls", f.Calls[level].Why, f.Calls[level].Remedy, level)
	}
	// As root gVisor gets a copy of the mount without it.
	add(f.StateNoExec && !f.Root, "state directory", f.StateDir+" lies on a file system that is mounted noexec", "set CAISSON_STATE to a directory of yours on one that is mounted without noexec", "gvisor")
	add(f.Cgroup.Why != "" && !f.Cgroup.Scope, "limits by control groups", f.Cgroup.Why, f.Cgroup.Remedy)
	for _, c := range []string{"memory", "cpu", "pids"} {
		clause := f.Cgroup.Limits[c]
		add(f.Cgroup.Why == "" && clause.Enforcement == sandbox.Off, "the "+c+" limit", clause.Detail, clause.Remedy)
	}
	add(f.DiskFree >= 0 && f.DiskFree < minDisk, "disk space", "less than 1 GiB is free below "+f.StateDir, "free some, or set CAISSON_STATE to a directory on another disk")
	add(f.Landlock == 0, "Landlock", "the kernel has none, or it was not enabled at boot", "boot a kernel from 5.13 on with landlock in its lsm= list; everything else still holds without it")
	add(!f.KVM.OK, "KVM", f.KVM.Why, f.KVM.Remedy, "microvm")
	return problems
}
