// SPDX-License-Identifier: Apache-2.0

package hostfacts

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/internal/linux/scope"
)

// machine is what the package asks of a host; tests build others, such as an
// Ubuntu or the inside of a Docker container.
type machine struct {
	root     string // before every path that is read
	euid     int
	exe      string
	getenv   func(string) string
	clone    func(flags uintptr, ptrace bool) error // make a child so, which ends at once
	mount    func(flags uintptr) error              // make one whose mounts are changed in a namespace of their own
	call     func(call) error                       // make one that does nothing
	seccomp  func() error
	landlock func() int
	access   func(path string, mode uint32) error
	statfs   func(dir string) (free int64, noExec bool, err error)
	groups   func() *cgroup.Host
	scope    func() error
}

func realMachine() *machine {
	exe, err := os.Executable()
	if err != nil {
		exe = "/usr/local/bin/caisson"
	}
	return &machine{
		euid: os.Geteuid(), exe: exe, getenv: os.Getenv,
		clone: tryClone, mount: tryMount, call: realCall, seccomp: trySeccomp, landlock: landlockABI,
		access: func(path string, mode uint32) error {
			return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
		},
		statfs: statfs, groups: cgroup.Detect, scope: scope.Available,
	}
}

// tryClone makes a child in new namespaces and has it become a program that
// does not exist: everything before the execve is tried for real, nothing ever
// runs, and ENOENT is what success looks like.
func tryClone(flags uintptr, ptrace bool) error {
	return try(&syscall.SysProcAttr{Cloneflags: flags, Ptrace: ptrace})
}

// tryMount has the child leave the mounts of this process, upon which package syscall has
// it call mount(2): its root is made private.
func tryMount(flags uintptr) error {
	return try(&syscall.SysProcAttr{Cloneflags: flags, Unshareflags: unix.CLONE_NEWNS})
}

func try(attr *syscall.SysProcAttr) error {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	if attr.Cloneflags&unix.CLONE_NEWUSER != 0 {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	_, err := syscall.ForkExec("/proc/self/no-such-program", []string{"caisson-doctor"}, &syscall.ProcAttr{Env: []string{}, Sys: attr})
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

// trySeccomp asks whether filters may trap, which is answered only where
// seccomp(2) itself is there and allowed.
func trySeccomp() error {
	action := uint32(unix.SECCOMP_RET_TRAP)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return errno
	}
	return nil
}

func landlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

func statfs(dir string) (free int64, noExec bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false, err
	}
	return int64(st.Bavail) * st.Bsize, st.Flags&unix.MS_NOEXEC != 0, nil // ST_NOEXEC has the same number
}

// text reads a file, at most 64 KiB of it, or gives "".
func (m *machine) text(path string) string {
	f, err := os.Open(filepath.Join(m.root, path))
	if err != nil {
		return ""
	}
	defer f.Close()
	buf := make([]byte, 64<<10)
	n, _ := f.Read(buf)
	return string(buf[:n])
}

// line is the first line of a file.
func (m *machine) line(path string) string {
	line, _, _ := strings.Cut(m.text(path), "\n")
	return strings.TrimRight(line, "\x00 ")
}

func (m *machine) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(m.root, path))
	return err == nil
}

// status reads /proc/self/status.
func (m *machine) status() map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(m.text("/proc/self/status")) {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.TrimSpace(value)
	}
	return fields
}

// Container names the container that this process is in, "docker" or "kubernetes" say, by
// the marks that engines leave; empty on a host.
func Container() string { return realMachine().container() }

// container names what we are inside of, by the marks that each engine leaves.
func (m *machine) container() string {
	if m.getenv("KUBERNETES_SERVICE_HOST") != "" || m.exists("/var/run/secrets/kubernetes.io") {
		return "kubernetes"
	}
	if m.exists("/.dockerenv") {
		return "docker"
	}
	if m.exists("/run/.containerenv") {
		return "podman"
	}
	if name := m.line("/run/systemd/container"); name != "" {
		return name
	}
	groups := m.text("/proc/1/cgroup")
	for _, mark := range []struct{ part, name string }{
		{"kubepods", "kubernetes"}, {"/docker", "docker"}, {"libpod", "podman"}, {"/lxc", "lxc"},
	} {
		if strings.Contains(groups, mark.part) {
			return mark.name
		}
	}
	return m.getenv("container") // systemd-nspawn, lxc and podman set it
}

// ci names the service, where one says so.
func (m *machine) ci() string {
	for _, mark := range []struct{ variable, name string }{
		{"GITHUB_ACTIONS", "GitHub Actions"}, {"GITLAB_CI", "GitLab CI"}, {"CIRCLECI", "CircleCI"}, {"BUILDKITE", "Buildkite"},
		{"JENKINS_URL", "Jenkins"}, {"TF_BUILD", "Azure Pipelines"}, {"TRAVIS", "Travis CI"}, {"CI", "a CI service"},
	} {
		if v := m.getenv(mark.variable); v != "" && v != "false" {
			return mark.name
		}
	}
	return ""
}
