// SPDX-License-Identifier: Apache-2.0

package hostfacts

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// namespaces are what a sandbox asks for together with its user namespace.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET

// userNS makes a user namespace with the others inside. Where that fails the
// rest is finding out who forbids it: the kernel answers EPERM to them all.
func (m *machine) userNS(f Facts) Fact {
	err := m.clone(namespaces, false)
	if err == nil {
		return Fact{OK: true}
	}
	if !m.exists("/proc/self/ns/user") || errors.Is(err, unix.EINVAL) {
		return Fact{Why: "the kernel was built without user namespaces", Remedy: "boot a kernel with CONFIG_USER_NS"}
	}
	if m.line("/proc/sys/user/max_user_namespaces") == "0" {
		return sysctl("user namespaces are switched off", "user.max_user_namespaces", "15000")
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS) {
		return Fact{Why: "too many user namespaces, or too deeply nested", Remedy: "sudo sysctl -w user.max_user_namespaces=15000"}
	}
	// Debian's and Ubuntu's switches hold for ordinary users only.
	if !f.Root && m.line("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
		return sysctl("ordinary users may not make user namespaces", "kernel.unprivileged_userns_clone", "1")
	}
	if !f.Root && m.line("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" && !m.confined() {
		return m.apparmor()
	}
	if f.Seccomp {
		return m.profile(f, "creating namespaces")
	}
	if m.confined() {
		return Fact{Why: "this process's AppArmor profile (" + m.label() + ") forbids user namespaces", Remedy: "add the rule \"userns,\" to that profile, or start caisson outside of it"}
	}
	return Fact{Why: fmt.Sprintf("the kernel refused to make a user namespace (%v)", err),
		Remedy: "look for a security module (SELinux, AppArmor) in the kernel log: sudo dmesg | grep -i denied; inside a chroot it is always refused"}
}

// mounts makes mounts apart from the host's: root as root, others in a user namespace,
// where one can be had.
func (m *machine) mounts(f Facts) Fact {
	flags := uintptr(unix.CLONE_NEWUSER)
	if f.Root {
		flags = 0
	}
	err := m.mount(flags)
	switch {
	case err == nil:
		return Fact{OK: true}
	case f.Root && !m.mayMount():
		return m.weakRoot(f)
	case f.Seccomp && !m.refused(mounting) && m.refused(leaving):
		return Fact{OK: true} // as far as can be seen; who needs unshare hears of it
	case f.Seccomp:
		return m.profile(f, "mounting")
	case m.confined():
		return Fact{Why: "this process's AppArmor profile (" + m.label() + ") forbids mounting", Remedy: "start caisson outside of it; a container: with --security-opt apparmor=unconfined"}
	}
	return Fact{Why: fmt.Sprintf("the kernel refused to make a mount (%v)", err), Remedy: "look for a security module in the kernel log: sudo dmesg | grep -i denied"}
}

// mayMount says whether this process has CAP_SYS_ADMIN.
func (m *machine) mayMount() bool {
	effective, err := strconv.ParseUint(m.status()["CapEff"], 16, 64)
	return err != nil || effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// weakRoot is the root of a container as engines make them. Ordinary users need no
// capability, since they get theirs in a namespace.
func (m *machine) weakRoot(f Facts) Fact {
	switch f.Container {
	case "docker", "podman":
		return Fact{Why: "root of this " + f.Container + " container may not mount (it lacks CAP_SYS_ADMIN)",
			Remedy: "start the container with --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined; or with SETFCAP instead, or run caisson as an ordinary user, in one with these two --security-opt"}
	case "kubernetes":
		return Fact{Why: "root of this pod may not mount (it lacks CAP_SYS_ADMIN)",
			Remedy: "set securityContext.seccompProfile.type: Unconfined and capabilities.add: [SYS_ADMIN] in the pod; or add SETFCAP instead, or run caisson as an ordinary user (runAsUser), in one that is Unconfined"}
	}
	return Fact{Why: "root may not mount here (it lacks CAP_SYS_ADMIN)", Remedy: "start caisson with that capability, with CAP_SETFCAP, or as an ordinary user, who needs none"}
}

// sysctl is a fact that one kernel setting would change, now and after a boot.
func sysctl(why, key, value string) Fact {
	set := key + "=" + value
	return Fact{Why: why + " (" + key + ")", Remedy: fmt.Sprintf("sudo sysctl -w %s && echo %s | sudo tee /etc/sysctl.d/60-caisson.conf", set, set)}
}

// apparmor is Ubuntu's restriction (from 23.10 on): a namespace is made, but
// without power in it unless a profile of the program allows "userns".
func (m *machine) apparmor() Fact {
	profile := fmt.Sprintf(`abi <abi/4.0>,\ninclude <tunables/global>\nprofile caisson %s flags=(unconfined) {\n  userns,\n}\n`, m.exe)
	return Fact{
		Why: "AppArmor keeps ordinary users from using user namespaces (kernel.apparmor_restrict_unprivileged_userns=1)",
		Remedy: fmt.Sprintf("printf '%s' | sudo tee /etc/apparmor.d/caisson && sudo apparmor_parser -r /etc/apparmor.d/caisson", profile) +
			" — or for every program: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
	}
}

// beyondDefault are the system calls that gVisor takes beyond what the default profiles of
// container runtimes allow to a container without more capabilities.
var beyondDefault = []string{"clone", "mount", "umount2", "pivot_root", "chroot"}

// profile blames the seccomp profile that is on this process, for what it forbids; calls
// are those of it that are known by name.
func (m *machine) profile(f Facts, what string, calls ...string) Fact {
	plus := slices.Clone(beyondDefault)
	for _, c := range calls {
		if !slices.Contains(plus, c) {
			plus = append(plus, c)
		}
	}
	allows := "the runtime's default one plus " + strings.Join(plus, ", ")
	switch f.Container {
	case "docker", "podman":
		return Fact{Why: "the seccomp profile of this " + f.Container + " container forbids " + what,
			Remedy: "start the container with --security-opt seccomp=unconfined, or seccomp=FILE with a profile that is " + allows + "; and with --security-opt apparmor=unconfined"}
	case "kubernetes":
		return Fact{Why: "the seccomp profile of this pod forbids " + what,
			Remedy: "set securityContext.seccompProfile.type: Unconfined in the pod, or Localhost with a profile that is " + allows}
	}
	return Fact{Why: "a seccomp filter on this process forbids " + what, Remedy: "start caisson outside of the program that set it" + m.unit()}
}

// unit points at the service whose settings bring a filter.
func (m *machine) unit() string {
	group := m.line("/proc/self/cgroup")
	if i := strings.LastIndex(group, "/"); i >= 0 && strings.HasSuffix(group, ".service") {
		return "; for " + group[i+1:] + " see SystemCallFilter= and RestrictNamespaces="
	}
	return ""
}

// ptrace tries it the way systrap does, in a child; inside a user namespace
// where one can be had, because that is where it will be.
func (m *machine) ptrace(f Facts) Fact {
	var flags uintptr
	if f.UserNS.OK && !f.Root {
		flags = unix.CLONE_NEWUSER
	}
	err := m.clone(flags, true)
	switch scope := m.line("/proc/sys/kernel/yama/ptrace_scope"); {
	case err == nil:
		return Fact{OK: true}
	case scope == "3":
		return Fact{Why: "ptrace is off until the next boot (kernel.yama.ptrace_scope=3)", Remedy: "boot with kernel.yama.ptrace_scope=1 in /etc/sysctl.d"}
	case scope == "2":
		return sysctl("only privileged processes may trace", "kernel.yama.ptrace_scope", "1")
	case f.Seccomp:
		fact := m.profile(f, "tracing processes", "ptrace")
		if f.Container != "" {
			fact.Remedy += "; or give it the capability SYS_PTRACE, by which older runtimes allow it"
		}
		return fact
	default:
		return Fact{Why: fmt.Sprintf("the kernel refused to trace a child (%v)", err), Remedy: "look for a security module in the kernel log: sudo dmesg | grep -i denied; SELinux: sudo setsebool deny_ptrace 0"}
	}
}

// filters asks the kernel whether seccomp knows the action that systrap needs.
func (m *machine) filters(f Facts) Fact {
	err := m.seccomp()
	switch {
	case err == nil:
		return Fact{OK: true}
	case f.Seccomp:
		return m.profile(f, "seccomp(2) itself")
	default:
		return Fact{Why: "the kernel was built without seccomp filters", Remedy: "boot a kernel with CONFIG_SECCOMP_FILTER"}
	}
}

// label is this process's AppArmor profile, confined whether there is one.
func (m *machine) label() string {
	for _, path := range []string{"/proc/self/attr/apparmor/current", "/proc/self/attr/current"} {
		if label := m.line(path); label != "" {
			return label
		}
	}
	return ""
}

func (m *machine) confined() bool {
	label := m.label()
	return strings.HasSuffix(label, " (enforce)") && !strings.HasPrefix(label, "unconfined")
}
