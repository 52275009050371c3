// SPDX-License-Identifier: Apache-2.0

package hostfacts

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// Gather looks at this machine, for a state directory that need not exist yet.
// It takes a few milliseconds and never fails: what cannot be found out is a
// fact that says so. When ctx ends, what was not asked by then is missing.
func Gather(ctx context.Context, stateDir string) Facts {
	return gather(ctx, realMachine(), stateDir)
}

func gather(ctx context.Context, m *machine, stateDir string) Facts {
	f := Facts{System: "linux", Arch: runtime.GOARCH, StateDir: stateDir, DiskFree: -1}
	f.Kernel = m.line("/proc/sys/kernel/osrelease")
	f.Root = m.euid == 0
	f.Container, f.CI = m.container(), m.ci()
	status := m.status()
	f.Seccomp, f.NoNewPrivs = status["Seccomp"] == "2", status["NoNewPrivs"] == "1"
	f.Filters = m.filters(f)
	f.Proc, f.NewProc, f.Landlock = m.proc(), m.newProc(f), m.landlock()
	for _, look := range []func(){
		func() { f.UserNS = m.userNS(f) },
		func() { f.Mounts = m.mounts(f) },
		func() { f.Ptrace = m.ptrace(f) },
		func() { f.Calls = m.calls(f) },
		func() { f.Cgroup = m.cgroup() },
	} {
		if ctx.Err() != nil {
			break
		}
		look()
	}
	f.KVM = m.kvm(f)
	f.DiskFree, f.StateNoExec = m.disk(stateDir)
	f.Docker, f.DockerWhy = m.docker()
	return f
}

// cgroup tells what groups can do, and whether the user's systemd would help.
func (m *machine) cgroup() Cgroup {
	h := m.groups()
	c := Cgroup{Version: h.Version, Why: h.Why, Remedy: h.Remedy, Notes: h.Notes, Limits: make(map[string]sandbox.Clause)}
	for _, controller := range []string{cgroup.Memory, cgroup.CPU, cgroup.Pids, cgroup.IO} {
		c.Limits[controller] = h.Clause(controller)
	}
	if h.Why == "" || h.Version != 2 || m.euid == 0 {
		return c
	}
	if err := m.scope(); err != nil {
		c.Why += "; " + strings.TrimPrefix(err.Error(), "enter a delegated scope: ")
		c.Remedy = sandbox.Hint(err)
		return c
	}
	c.Scope = true
	return c
}

// kvm says whether /dev/kvm may be opened; it is not touched.
func (m *machine) kvm(f Facts) Fact {
	const dev = "/dev/kvm"
	switch err := m.access(dev, unix.R_OK|unix.W_OK); {
	case err == nil:
		return Fact{OK: true}
	case errors.Is(err, unix.ENOENT) && f.Container != "":
		return Fact{Why: "there is no " + dev + " in this container", Remedy: "start the container with --device /dev/kvm"}
	case errors.Is(err, unix.ENOENT):
		return Fact{Why: "there is no " + dev, Remedy: "enable virtualisation in the firmware, or nested virtualisation for this VM; then: sudo modprobe kvm_intel || sudo modprobe kvm_amd"}
	default:
		return Fact{Why: dev + " is not for this user", Remedy: "sudo usermod -aG kvm $USER, then log in again"}
	}
}

// disk asks the nearest directory above path that exists: for free bytes, and whether
// it is mounted noexec.
func (m *machine) disk(path string) (free int64, noExec bool) {
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		free, noExec, err := m.statfs(dir)
		if err == nil {
			return free, noExec
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return -1, false
		}
	}
}

// docker finds an engine's socket, as the clients of Docker and Podman do.
func (m *machine) docker() (socket, why string) {
	candidates := []string{"/var/run/docker.sock", "/run/podman/podman.sock"}
	if dir := m.getenv("XDG_RUNTIME_DIR"); dir != "" {
		candidates = append([]string{filepath.Join(dir, "docker.sock")}, append(candidates, filepath.Join(dir, "podman/podman.sock"))...)
	}
	if host := m.getenv("DOCKER_HOST"); host != "" {
		path, ok := strings.CutPrefix(host, "unix://")
		if !ok {
			return host, "" // another machine's; only a try can tell
		}
		candidates = []string{path}
	}
	why = "no socket of an engine at " + strings.Join(candidates, ", ")
	for _, path := range candidates {
		switch err := m.access(path, unix.R_OK|unix.W_OK); {
		case err == nil:
			return path, ""
		case errors.Is(err, unix.EACCES):
			why = path + " is not for this user (sudo usermod -aG docker $USER; its members are as good as root)"
		}
	}
	return "", why
}
