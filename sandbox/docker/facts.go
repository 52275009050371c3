// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// facts are what an engine says about itself and its host.
type facts struct {
	at     address
	api    string
	podman bool
	info   info
	// mapped says that the engine maps the ids of containers to others of its
	// host by itself: rootless, or userns-remap.
	mapped bool
}

// info is the part of GET /info that caisson reads.
type info struct {
	ServerVersion   string
	OSType          string
	Architecture    string
	OperatingSystem string
	CgroupDriver    string
	CgroupVersion   string
	SecurityOptions []string
	MemoryLimit     bool
	SwapLimit       bool
	CPUCfsQuota     bool `json:"CpuCfsQuota"`
	PidsLimit       bool
	KernelMemoryTCP bool
	Runtimes        map[string]any
}

// facts asks the engine.
func (e *engine) facts(ctx context.Context) (*facts, error) {
	f := &facts{at: e.at}
	if err := e.call(ctx, http.MethodGet, "/info", nil, nil, &f.info); err != nil {
		return nil, err
	}
	f.api, f.podman = e.version, e.podman
	f.mapped = f.has("rootless") || f.has("userns")
	return f, nil
}

// has says whether a security option is in force: "seccomp", "rootless".
func (f *facts) has(option string) bool {
	return slices.ContainsFunc(f.info.SecurityOptions, func(s string) bool {
		for part := range strings.SplitSeq(s, ",") {
			if part == "name="+option || part == option {
				return true
			}
		}
		return false
	})
}

// shared says whether containers' processes are this machine's, on the kernel that
// caisson runs on. A runtime that the operator named may give them one of their
// own.
func (f *facts) shared(ociRuntime string) bool {
	return f.at.local() && runtime.GOOS == "linux" && ociRuntime == ""
}

// namespaces says that the agent is to make a user namespace: the engine makes
// none, and is on this machine, whose ids are ours to choose from.
func (f *facts) namespaces() bool { return !f.mapped && f.at.local() && runtime.GOOS == "linux" }

// name is the engine, its version and where it is.
func (f *facts) name() string {
	s := "Docker "
	if f.podman {
		s = "Podman "
	}
	s += f.info.ServerVersion
	if f.has("rootless") {
		s += ", rootless"
	}
	return s + ", cgroup v" + f.cgroups() + ", " + f.at.String()
}

func (f *facts) cgroups() string {
	if f.info.CgroupVersion == "" {
		return "1" // what engines without the field have
	}
	return f.info.CgroupVersion
}

// unusable says what keeps caisson from using the engine, and the remedy.
func (f *facts) unusable(goarch, ociRuntime string) (why, remedy string) {
	switch {
	case f.info.OSType != "" && f.info.OSType != "linux":
		return "the engine runs " + f.info.OSType + " containers", "switch it to Linux containers"
	case !runsHere(f.info.Architecture, goarch):
		return "the engine's machine is " + f.info.Architecture + ", and caisson's agent was built for " + goarch, "use a caisson for that machine"
	case !f.has("seccomp"):
		return "the engine has no seccomp, so every system call of the host's kernel would be open to code", "use an engine and a kernel with seccomp (CONFIG_SECCOMP_FILTER)"
	case ociRuntime != "" && f.info.Runtimes != nil && f.info.Runtimes[ociRuntime] == nil:
		return "the engine has no runtime " + ociRuntime, "install it and name it in /etc/docker/daemon.json, \"runtimes\""
	}
	return "", ""
}

// runsHere says whether a machine that uname calls machine runs programs for
// goarch. A machine that is not named is taken for the right one.
func runsHere(machine, goarch string) bool {
	switch machine {
	case "":
		return true
	case "x86_64", "amd64":
		return goarch == "amd64"
	case "aarch64", "arm64":
		return goarch == "arm64"
	}
	return machine == goarch
}

// limits says how each limit holds on this engine, with its own runtime or the named one.
func (f *facts) limits(ociRuntime string) map[sandbox.LimitName]sandbox.Clause {
	group := func(has bool, what, remedy string) sandbox.Clause {
		if !has {
			return sandbox.Clause{Enforcement: sandbox.Off, Detail: "the engine cannot limit " + what + " on its host", Remedy: remedy}
		}
		return sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "by the engine, cgroup v" + f.cgroups()}
	}
	rootlessRemedy := ""
	if f.has("rootless") {
		rootlessRemedy = "as root: mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' > /etc/systemd/system/user@.service.d/delegate.conf && systemctl daemon-reload, then log in again"
	}
	caisson := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "by caisson"}
	rlimit := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "by the host's kernel"}
	tmpfs := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "size of a tmpfs: what is written is memory and counts as such, too"}
	noDisk := sandbox.Clause{Enforcement: sandbox.Off, Detail: "scratch is memory on this level, and there is no disk to slow down"}
	l := map[sandbox.LimitName]sandbox.Clause{
		sandbox.LimitWall:      caisson,
		sandbox.LimitOutput:    caisson,
		sandbox.LimitCPUTime:   {Enforcement: sandbox.Enforced, Detail: "read several times a second"},
		sandbox.LimitProcesses: rlimit,
		sandbox.LimitOpenFiles: rlimit,
		sandbox.LimitFileSize:  rlimit,
		sandbox.LimitDisk:      tmpfs,
		sandbox.LimitInodes:    tmpfs,
		sandbox.LimitTmp:       tmpfs,
		sandbox.LimitCPUs:      group(f.info.CPUCfsQuota, "processors", rootlessRemedy),
		sandbox.LimitMemory:    group(f.info.MemoryLimit, "memory", rootlessRemedy),
		sandbox.LimitIO:        noDisk,
		sandbox.LimitIOPS:      noDisk,
	}
	if f.podman {
		l[sandbox.LimitInodes] = sandbox.Clause{Enforcement: sandbox.Off, Detail: "Podman bounds a tmpfs by its size alone"}
	}
	// gVisor's buffers are its own memory.
	if m := l[sandbox.LimitMemory]; m.Enforcement == sandbox.Enforced && f.cgroups() == "1" && !f.boundsSockets() && ociRuntime != runtimeGVisor {
		m.Enforcement = sandbox.Emulated
		m.Detail += "; buffers of internet sockets are counted apart there and only root can bound them, so programs may hold memory beyond it"
		m.Remedy = "use an engine on cgroup v2, or run caisson as root"
		l[sandbox.LimitMemory] = m
	}
	if m := l[sandbox.LimitMemory]; m.Enforcement != sandbox.Off && !f.info.SwapLimit && f.cgroups() == "1" {
		m.Detail += "; the kernel does not account swap (boot with swapaccount=1), so programs may be swapped beyond it"
		l[sandbox.LimitMemory] = m
	}
	f.runtimeLimits(l, ociRuntime)
	return l
}

// boundsSockets says whether the buffers of internet sockets can be bounded on
// cgroup v1: runc leaves out what the engine is asked for (see limitSockets), so
// it takes root on the engine's own machine.
func (f *facts) boundsSockets() bool {
	return os.Geteuid() == 0 && f.at.local() && runtime.GOOS == "linux"
}

// notes are what doctor says besides.
func (f *facts) notes() []string {
	notes := []string{"Scratch directories are tmpfs: what a program writes there counts as its memory, too."}
	if !f.mapped && !f.namespaces() {
		notes = append(notes, "Code runs under uid 1000 of the engine's machine, as docker run would run it: this engine gives containers no uids of their own (fix: \"userns-remap\": \"default\" in its /etc/docker/daemon.json).")
	}
	return notes
}
