// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

// What is known of OCI runtimes that give a container a kernel of its own. Only what
// an engine calls by these names can be asked for; what it is, is its operator's to say.
const (
	runtimeGVisor = "runsc"
	runtimeKata   = "kata"
)

// Runtimes are the OCI runtimes that a level may be named after, as engines
// usually call them.
func Runtimes() []string { return []string{runtimeGVisor, runtimeKata} }

// hostTasks is the engine's own limit of tasks; the exact number is the kernel's, of a
// program's user. gVisor's threads and stubs are tasks of the host, more than there are
// processes inside, and at the limit all of it ends; sandbox/gvisor has the same.
func hostTasks(ociRuntime string, processes int) int64 {
	n := int64(processes) + agentTasks
	if ociRuntime == runtimeGVisor {
		n = 2*int64(processes) + 512
	}
	return min(n, maxPids)
}

// holdsInside says that the memory limit is held by the kernel inside, and that the
// engine may not hear what it has killed.
func holdsInside(ociRuntime string) bool { return ociRuntime == runtimeKata }

// asProgram says that an engine calls a runtime as runc is called, and not as one that
// containerd speaks with: what it knows of it is a path.
func (f *facts) asProgram(ociRuntime string) bool {
	of, _ := f.info.Runtimes[ociRuntime].(map[string]any)
	path, _ := of["path"].(string)
	return path != ""
}

// runtimeLimits says what holds otherwise under a runtime that was named.
func (f *facts) runtimeLimits(l map[sandbox.LimitName]sandbox.Clause, ociRuntime string) {
	if ociRuntime == "" {
		return
	}
	kernel := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "by the kernel of " + ociRuntime}
	for _, name := range []sandbox.LimitName{sandbox.LimitProcesses, sandbox.LimitOpenFiles, sandbox.LimitFileSize} {
		l[name] = kernel
	}
	l[sandbox.LimitCPUTime] = sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "read once a second or more often; refused where the runtime tells the engine nothing"}
	for _, name := range []sandbox.LimitName{sandbox.LimitMemory, sandbox.LimitCPUs} {
		if name == sandbox.LimitCPUs && ociRuntime == runtimeGVisor {
			continue // it runs in the engine's group, or this is refused
		}
		if c := l[name]; c.Enforcement != sandbox.Off {
			c.Detail += "; that " + ociRuntime + " holds it is the runtime's doing"
			l[name] = c
		}
	}
	if ociRuntime == runtimeKata && f.asProgram(ociRuntime) { // version 1
		l[sandbox.LimitCPUTime] = sandbox.Clause{Enforcement: sandbox.Off, Detail: "Kata Containers tell an engine that calls them as a program nothing of what is used",
			Remedy: "leave it out, or name a later version in daemon.json by its runtimeType, io.containerd.kata.v2"}
	}
	if ociRuntime == runtimeGVisor {
		l[sandbox.LimitInodes] = sandbox.Clause{Enforcement: sandbox.Off, Detail: "gVisor bounds a tmpfs by its size alone"}
	}
}

// tellsNothing says that what an engine reports of a container is not the container's:
// memory is the memory limit that it reports, asked the one that was asked for. Where a
// runtime has its processes in another control group than the container's, engines read
// what is left of that, and would charge the sandbox with nothing.
func tellsNothing(reported *uint64, asked int64) bool {
	const page = 64 << 10 // the largest: kernels round down
	return asked > 0 && (reported == nil || *reported > uint64(asked) || *reported+page <= uint64(asked))
}

// errNoGroup is for a limit that the container's control group was to hold, or to count
// for.
func errNoGroup(name sandbox.LimitName, ociRuntime string) error {
	hint := "leave it out, or use a runtime with which docker stats shows the container's own memory limit"
	if ociRuntime == runtimeGVisor {
		hint = "leave it out, or have the engine call runsc without --ignore-cgroups"
	}
	return &sandbox.Error{Op: "limit " + string(name), Kind: sandbox.ErrUnsupported, Hint: hint,
		Problem: "the runtime " + ociRuntime + " does not run its containers in the engine's control groups, so that nothing there holds or counts for it"}
}

func isRuntime(name string) bool { return slices.Contains(Runtimes(), name) }
