// SPDX-License-Identifier: Apache-2.0

package hostfacts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// ubuntu is a healthy machine on which an ordinary user asks; the tests break
// it in one way each.
func ubuntu(t *testing.T) *machine {
	m := &machine{
		root: t.TempDir(), euid: 1000, exe: "/opt/caisson", getenv: func(string) string { return "" },
		clone:    func(uintptr, bool) error { return nil },
		mount:    func(uintptr) error { return nil },
		call:     func(call) error { return unix.EINVAL },
		seccomp:  func() error { return nil },
		landlock: func() int { return 4 },
		access:   func(string, uint32) error { return nil },
		statfs:   func(string) (int64, bool, error) { return 1 << 40, false, nil },
		groups:   func() *cgroup.Host { return &cgroup.Host{Version: 2} },
		scope:    func() error { return nil },
	}
	m.file(t, "/proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
	m.file(t, "/proc/self/exe", "")
	m.file(t, "/proc/self/ns/user", "")
	m.file(t, "/proc/self/status", "Name:\tx\nNoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n")
	m.file(t, "/proc/self/attr/current", "unconfined\n")
	return m
}

func (m *machine) file(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(m.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) filtered(t *testing.T) {
	m.file(t, "/proc/self/status", "NoNewPrivs:\t0\nSeccomp:\t2\n")
}

// refuse has the kernel refuse new user namespaces, or tracing.
func (m *machine) refuse(err error, ptrace bool) {
	m.clone = func(flags uintptr, traced bool) error {
		if traced == ptrace && (ptrace || flags&unix.CLONE_NEWUSER != 0) {
			return err
		}
		return nil
	}
}

// mountsOf are mounts, of which those at /proc and /mnt are procs.
func mountsOf(points ...string) (lines string) {
	for _, p := range points {
		kind := "tmpfs"
		if p == "/proc" || p == "/mnt" {
			kind = "proc"
		}
		lines += "36 35 0:5 / " + p + " rw - " + kind + " none rw\n"
	}
	return lines
}

// refuseCalls has a filter refuse some, as if they were newer than it is.
func (m *machine) refuseCalls(names ...string) {
	m.call = func(c call) error {
		if slices.Contains(names, c.name) {
			return unix.ENOSYS
		}
		return unix.EINVAL
	}
}

func env(values map[string]string) func(string) string {
	return func(key string) string { return values[key] }
}

func TestProblems(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, m *machine)
		what   string // "" wants no problem at all
		why    string // parts
		remedy string
		levels []string
	}{
		{"healthy", func(*testing.T, *machine) {}, "", "", "", nil},
		{"Debian's switch", func(t *testing.T, m *machine) {
			m.refuse(unix.EPERM, false)
			m.file(t, "/proc/sys/kernel/unprivileged_userns_clone", "0\n")
		}, "user namespaces", "unprivileged_userns_clone", "sudo sysctl -w kernel.unprivileged_userns_clone=1 && echo", []string{"gvisor", "process"}},
		{"switched off", func(t *testing.T, m *machine) {
			m.refuse(unix.ENOSPC, false)
			m.file(t, "/proc/sys/user/max_user_namespaces", "0\n")
		}, "user namespaces", "switched off", "user.max_user_namespaces=15000", []string{"gvisor", "process"}},
		{"used up", func(t *testing.T, m *machine) {
			m.refuse(unix.ENOSPC, false)
			m.file(t, "/proc/sys/user/max_user_namespaces", "31\n")
		}, "user namespaces", "too many", "user.max_user_namespaces", []string{"gvisor", "process"}},
		{"Ubuntu's AppArmor", func(t *testing.T, m *machine) {
			m.refuse(unix.EPERM, false)
			m.file(t, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")
			m.file(t, "/proc/sys/kernel/unprivileged_userns_clone", "1\n")
		}, "user namespaces", "AppArmor", "profile caisson /opt/caisson flags=(unconfined)", []string{"gvisor", "process"}},
		{"a profile of its own", func(t *testing.T, m *machine) {
			m.refuse(unix.EACCES, false)
			m.file(t, "/proc/self/attr/current", "my-agent (enforce)\n")
		}, "user namespaces", "my-agent", "userns,", []string{"gvisor", "process"}},
		{"Docker as root", func(t *testing.T, m *machine) {
			m.euid = 0
			m.refuse(unix.EPERM, false)
			m.filtered(t)
			m.file(t, "/.dockerenv", "")
			// Debian's switch does not hold for root and must not be blamed.
			m.file(t, "/proc/sys/kernel/unprivileged_userns_clone", "0\n")
		}, "user namespaces", "docker container", "--security-opt seccomp=unconfined", []string{"process"}},
		{"a pod", func(t *testing.T, m *machine) {
			m.refuse(unix.EPERM, false)
			m.filtered(t)
			m.getenv = env(map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
		}, "user namespaces", "pod", "seccompProfile", []string{"gvisor", "process"}},
		{"a service with a filter", func(t *testing.T, m *machine) {
			m.refuse(unix.EPERM, false)
			m.filtered(t)
			m.file(t, "/proc/self/cgroup", "0::/system.slice/agent.service\n")
		}, "user namespaces", "seccomp filter", "agent.service", []string{"gvisor", "process"}},
		{"no reason to be seen", func(t *testing.T, m *machine) { m.refuse(unix.EPERM, false) },
			"user namespaces", "operation not permitted", "dmesg", []string{"gvisor", "process"}},
		{"kernel without", func(t *testing.T, m *machine) {
			m.refuse(unix.EINVAL, false)
		}, "user namespaces", "built without", "CONFIG_USER_NS", []string{"gvisor", "process"}},
		{"root in a container as Docker makes it", func(t *testing.T, m *machine) {
			m.euid, m.mount = 0, func(uintptr) error { return unix.EPERM }
			m.file(t, "/proc/self/status", "CapEff:\t00000000a80425fb\nSeccomp:\t2\n")
			m.file(t, "/.dockerenv", "")
		}, "mounts", "it lacks CAP_SYS_ADMIN", "--cap-add SYS_ADMIN --security-opt seccomp=unconfined", []string{"gvisor", "process"}},
		{"root in a pod", func(t *testing.T, m *machine) {
			m.euid, m.mount = 0, func(uintptr) error { return unix.EPERM }
			m.file(t, "/proc/self/status", "CapEff:\t00000000a80425fb\nSeccomp:\t2\n")
			m.getenv = env(map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
		}, "mounts", "root of this pod", "capabilities.add: [SYS_ADMIN]", []string{"gvisor", "process"}},
		{"root of little power", func(t *testing.T, m *machine) {
			m.euid, m.mount = 0, func(uintptr) error { return unix.EPERM }
			m.file(t, "/proc/self/status", "CapEff:\t0000000000000000\n")
		}, "mounts", "it lacks CAP_SYS_ADMIN", "with CAP_SETFCAP, or as an ordinary user", []string{"gvisor", "process"}},
		{"a filter on mounts", func(t *testing.T, m *machine) {
			m.mount = func(flags uintptr) error {
				if flags != unix.CLONE_NEWUSER {
					t.Errorf("an ordinary user's mounts are tried with %#x", flags)
				}
				return unix.EPERM
			}
			m.filtered(t)
			m.file(t, "/run/.containerenv", "")
		}, "mounts", "podman container forbids mounting", "seccomp=unconfined", []string{"gvisor", "process"}},
		{"a profile without mounts", func(t *testing.T, m *machine) {
			m.mount = func(uintptr) error { return unix.EACCES }
			m.file(t, "/proc/self/attr/current", "docker-default (enforce)\n")
		}, "mounts", "docker-default", "apparmor=unconfined", []string{"gvisor", "process"}},
		{"no mounts, who knows", func(t *testing.T, m *machine) { m.mount = func(uintptr) error { return unix.EPERM } },
			"mounts", "operation not permitted", "dmesg", []string{"gvisor", "process"}},
		{"no /proc", func(t *testing.T, m *machine) {
			if err := os.Remove(filepath.Join(m.root, "/proc/self/exe")); err != nil {
				t.Fatal(err)
			}
		}, "/proc", "not mounted", "mount -t proc", []string{"gvisor", "process"}},
		{"/proc as Docker shows it", func(t *testing.T, m *machine) {
			m.file(t, "/.dockerenv", "")
			m.file(t, "/proc/self/mountinfo", mountsOf("/proc", "/proc/sys/fs/binfmt_misc", "/proc/kcore", "/proc/acpi", "/process"))
		}, "/proc", "(/proc/kcore, /proc/acpi)", "systempaths=unconfined", []string{"process"}},
		{"another /proc that is whole", func(t *testing.T, m *machine) {
			m.file(t, "/proc/self/mountinfo", mountsOf("/proc", "/proc/kcore", "/mnt", "/proc/sys/fs/binfmt_misc"))
		}, "", "", "", nil},
		{"ptrace off for good", func(t *testing.T, m *machine) {
			m.refuse(unix.EPERM, true)
			m.file(t, "/proc/sys/kernel/yama/ptrace_scope", "3\n")
		}, "ptrace", "until the next boot", "ptrace_scope=1", []string{"gvisor"}},
		{"ptrace for admins", func(t *testing.T, m *machine) {
			m.refuse(unix.EPERM, true)
			m.file(t, "/proc/sys/kernel/yama/ptrace_scope", "2\n")
		}, "ptrace", "privileged", "sudo sysctl -w kernel.yama.ptrace_scope=1", []string{"gvisor"}},
		{"ptrace in old Podman", func(t *testing.T, m *machine) {
			m.refuse(unix.EPERM, true)
			m.filtered(t)
			m.file(t, "/run/.containerenv", "")
		}, "ptrace", "podman", "SYS_PTRACE", []string{"gvisor"}},
		{"ptrace, who knows", func(t *testing.T, m *machine) { m.refuse(unix.EPERM, true) }, "ptrace", "refused", "dmesg", []string{"gvisor"}},
		{"single calls", func(t *testing.T, m *machine) { m.filtered(t); m.refuseCalls("landlock_add_rule", "pidfd_open") }, "system calls",
			"forbids the system calls landlock_add_rule, pidfd_open", "outside", []string{"process"}},
		{"a call that is not missed", func(t *testing.T, m *machine) {
			m.filtered(t)
			m.landlock = func() int { return 0 }
			m.refuseCalls("landlock_add_rule", "userfaultfd")
		}, "Landlock", "none", "lsm=", nil},
		{"a call of one level", func(t *testing.T, m *machine) { m.filtered(t); m.refuseCalls("keyctl") }, "system calls",
			"forbids the system call keyctl", "outside", []string{"process"}},
		{"unshare alone", func(t *testing.T, m *machine) {
			m.filtered(t)
			m.mount = func(uintptr) error { return unix.EPERM }
			m.refuseCalls("unshare")
		}, "system calls", "forbids the system call unshare", "outside", []string{"process"}},
		{"calls that the kernel refuses to users", func(t *testing.T, m *machine) {
			m.file(t, "/proc/self/status", "CapEff:\t0000000000000000\nSeccomp:\t2\n")
			m.refuseCalls("pivot_root", "fsopen", "sethostname", "setgroups")
		}, "", "", "", nil},
		{"no filter", func(t *testing.T, m *machine) { m.refuseCalls("pivot_root", "open_tree") }, "", "", "", nil},
		{"no seccomp", func(t *testing.T, m *machine) { m.seccomp = func() error { return unix.EINVAL } },
			"seccomp filters", "built without", "CONFIG_SECCOMP_FILTER", []string{"gvisor", "process"}},
		{"seccomp forbidden", func(t *testing.T, m *machine) {
			m.seccomp = func() error { return unix.EPERM }
			m.filtered(t)
			m.file(t, "/.dockerenv", "")
		}, "seccomp filters", "docker", "seccomp=unconfined", []string{"gvisor", "process"}},
		{"no delegation, no manager", func(t *testing.T, m *machine) {
			m.groups = func() *cgroup.Host { return &cgroup.Host{Version: 2, Why: "nothing delegated", Remedy: "x"} }
			m.scope = func() error {
				return &sandbox.Error{Op: "enter a delegated scope", Problem: "there is no manager", Hint: "loginctl"}
			}
		}, "limits by control groups", "nothing delegated; there is no manager", "loginctl", nil},
		{"no delegation, but a manager", func(t *testing.T, m *machine) {
			m.groups = func() *cgroup.Host { return &cgroup.Host{Version: 2, Why: "nothing delegated", Remedy: "x"} }
		}, "", "", "", nil},
		{"version 1 for a user", func(t *testing.T, m *machine) {
			m.groups = func() *cgroup.Host { return &cgroup.Host{Version: 1, Why: "only root", Remedy: "be root"} }
		}, "limits by control groups", "only root", "be root", nil},
		{"disk full", func(t *testing.T, m *machine) {
			m.statfs = func(string) (int64, bool, error) { return 1 << 20, false, nil }
		},
			"disk space", "/state", "CAISSON_STATE", nil},
		{"state on noexec", func(t *testing.T, m *machine) {
			m.statfs = func(string) (int64, bool, error) { return 1 << 40, true, nil }
		}, "state directory", "noexec", "CAISSON_STATE", []string{"gvisor"}},
		{"state on noexec for root", func(t *testing.T, m *machine) {
			m.euid, m.statfs = 0, func(string) (int64, bool, error) { return 1 << 40, true, nil }
		}, "", "", "", nil},
		{"no Landlock", func(t *testing.T, m *machine) { m.landlock = func() int { return 0 } }, "Landlock", "none", "lsm=", nil},
		{"no KVM", func(t *testing.T, m *machine) { m.access = func(string, uint32) error { return unix.ENOENT } },
			"KVM", "no /dev/kvm", "modprobe", []string{"microvm"}},
		{"KVM for others", func(t *testing.T, m *machine) { m.access = func(string, uint32) error { return unix.EACCES } },
			"KVM", "not for this user", "usermod -aG kvm", []string{"microvm"}},
		{"KVM in Docker", func(t *testing.T, m *machine) {
			m.access = func(string, uint32) error { return unix.ENOENT }
			m.file(t, "/.dockerenv", "")
		}, "KVM", "container", "--device /dev/kvm", []string{"microvm"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := ubuntu(t)
			tt.change(t, m)
			var problems []Problem
			for _, p := range gather(t.Context(), m, "/state").Problems() {
				if !strings.HasPrefix(p.What, "the ") { // single controllers: a Host made by hand has none
					problems = append(problems, p)
				}
			}
			if tt.what == "" {
				if len(problems) > 0 {
					t.Fatalf("%+v, want none", problems)
				}
				return
			}
			if len(problems) != 1 {
				t.Fatalf("%d problems %+v, want one", len(problems), problems)
			}
			p := problems[0]
			if p.What != tt.what || !strings.Contains(p.Why, tt.why) || !strings.Contains(p.Remedy, tt.remedy) || !slices.Equal(p.Levels, tt.levels) {
				t.Errorf("%+v\nwant %q, %q, %q, %v", p, tt.what, tt.why, tt.remedy, tt.levels)
			}
		})
	}
}

// A single controller that is missing is a problem of its own.
func TestMissingController(t *testing.T) {
	f := Facts{System: "linux", Proc: Fact{OK: true}, NewProc: Fact{OK: true}, Mounts: Fact{OK: true}, UserNS: Fact{OK: true}, Ptrace: Fact{OK: true}, Filters: Fact{OK: true}, KVM: Fact{OK: true}, Landlock: 1, DiskFree: -1,
		Cgroup: Cgroup{Version: 2, Limits: map[string]sandbox.Clause{
			"memory": {Enforcement: sandbox.Off, Detail: "not here", Remedy: "cgroup_enable=memory"},
			"cpu":    {Enforcement: sandbox.Enforced}, "pids": {Enforcement: sandbox.Enforced}, "io": {Enforcement: sandbox.Off},
		}}}
	got := f.Problems()
	if len(got) != 1 || got[0].What != "the memory limit" || got[0].Remedy != "cgroup_enable=memory" {
		t.Errorf("%+v", got)
	}
	other := Facts{System: "darwin"}
	if got := other.Problems(); len(got) != 1 || got[0].What != "Linux" || !slices.Contains(got[0].Levels, "gvisor") {
		t.Errorf("%+v", got)
	}
}

func TestSurroundings(t *testing.T) {
	for _, tt := range []struct {
		name, path, text string
		env              map[string]string
		container, ci    string
	}{
		{"plain", "/x", "", nil, "", ""},
		{"docker", "/.dockerenv", "", nil, "docker", ""},
		{"podman", "/run/.containerenv", "", nil, "podman", ""},
		{"nspawn", "/run/systemd/container", "systemd-nspawn\n", nil, "systemd-nspawn", ""},
		{"docker on v1", "/proc/1/cgroup", "4:memory:/docker/abc\n", nil, "docker", ""},
		{"pod on v1", "/proc/1/cgroup", "4:memory:/kubepods/burstable/x\n", nil, "kubernetes", ""},
		{"pod", "/.dockerenv", "", map[string]string{"KUBERNETES_SERVICE_HOST": "x"}, "kubernetes", ""},
		{"lxc by variable", "/x", "", map[string]string{"container": "lxc"}, "lxc", ""},
		{"actions", "/x", "", map[string]string{"CI": "true", "GITHUB_ACTIONS": "true"}, "", "GitHub Actions"},
		{"some CI", "/x", "", map[string]string{"CI": "1"}, "", "a CI service"},
		{"no CI", "/x", "", map[string]string{"CI": "false"}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := ubuntu(t)
			m.file(t, tt.path, tt.text)
			m.getenv = env(tt.env)
			if f := gather(t.Context(), m, "/"); f.Container != tt.container || f.CI != tt.ci {
				t.Errorf("container %q CI %q, want %q %q", f.Container, f.CI, tt.container, tt.ci)
			}
		})
	}
}

func TestDocker(t *testing.T) {
	for _, tt := range []struct {
		name   string
		env    map[string]string
		access map[string]error
		socket string
		why    string
	}{
		{"usual place", nil, map[string]error{"/var/run/docker.sock": nil}, "/var/run/docker.sock", ""},
		{"rootless first", map[string]string{"XDG_RUNTIME_DIR": "/r"}, map[string]error{"/var/run/docker.sock": nil, "/r/docker.sock": nil}, "/r/docker.sock", ""},
		{"podman's", map[string]string{"XDG_RUNTIME_DIR": "/r"}, map[string]error{"/r/podman/podman.sock": nil}, "/r/podman/podman.sock", ""},
		{"told where", map[string]string{"DOCKER_HOST": "unix:///x"}, map[string]error{"/x": nil, "/var/run/docker.sock": nil}, "/x", ""},
		{"elsewhere", map[string]string{"DOCKER_HOST": "tcp://h:1"}, nil, "tcp://h:1", ""},
		{"not ours", nil, map[string]error{"/var/run/docker.sock": unix.EACCES}, "", "usermod -aG docker"},
		{"none", nil, nil, "", "no socket"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := ubuntu(t)
			m.getenv = env(tt.env)
			m.access = func(path string, _ uint32) error {
				if err, ok := tt.access[path]; ok {
					return err
				}
				return unix.ENOENT
			}
			if socket, why := m.docker(); socket != tt.socket || !strings.Contains(why, tt.why) || (tt.why == "") != (why == "") {
				t.Errorf("%q, %q; want %q, %q", socket, why, tt.socket, tt.why)
			}
		})
	}
}

func TestDiskFreeAsksTheNearestParent(t *testing.T) {
	m := ubuntu(t)
	m.statfs = statfs
	dir := t.TempDir()
	if got, _ := m.disk(filepath.Join(dir, "not", "there", "yet")); got <= 0 {
		t.Errorf("%d", got)
	}
	m.statfs = func(string) (int64, bool, error) { return 0, false, unix.EIO }
	if got, _ := m.disk(dir); got != -1 {
		t.Errorf("%d for a disk that cannot be asked, want -1", got)
	}
}

// On the machine at hand: whole, and nothing left.
func TestGatherHere(t *testing.T) {
	f := Gather(t.Context(), t.TempDir())
	if f.Kernel == "" || f.Arch != runtime.GOARCH || f.DiskFree <= 0 || f.Cgroup.Limits == nil {
		t.Errorf("%+v", f)
	}
	for _, p := range f.Problems() {
		if p.What == "" || p.Why == "" {
			t.Errorf("%+v says nothing", p)
		}
	}
	for _, fact := range []Fact{f.UserNS, f.Ptrace, f.Filters, f.KVM} {
		if fact.OK == (fact.Why != "") {
			t.Errorf("%+v: neither yes nor no", fact)
		}
	}
	var status unix.WaitStatus
	if pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
		t.Errorf("a child is left: %d, %v", pid, err)
	}
	t.Logf("%+v", f)
}

// The kernel really is asked: a filter that refuses user namespaces is found.
func TestTryCloneSeesARefusal(t *testing.T) {
	if err := tryClone(0, false); err != nil {
		t.Fatalf("a plain child: %v", err)
	}
	if err := tryClone(unix.CLONE_NEWUSER|unix.CLONE_FS, false); err == nil { // never allowed together
		t.Error("an impossible clone succeeded")
	}
}

func TestGatherStopsEarly(t *testing.T) {
	m := ubuntu(t)
	m.clone = func(uintptr, bool) error { t.Error("asked the kernel after the end"); return nil }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	gather(ctx, m, "/")
}

// What is asked of the kernel does nothing, and the kernel refuses none of it out of hand:
// to whom may mount nothing, and to others nothing of what they are asked for.
func TestCallsHere(t *testing.T) {
	m := realMachine()
	for _, c := range needed {
		if c.mounter && !m.mayMount() || strings.HasPrefix(c.name, "landlock_") && m.landlock() == 0 {
			continue
		}
		if err := m.call(c); m.refused(c) || err == nil && !slices.Contains([]string{"close_range", "setresuid", "setresgid", "unshare"}, c.name) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if m.refused(mounting) {
		t.Error("mount")
	}
}
