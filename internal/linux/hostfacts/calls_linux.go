// SPDX-License-Identifier: Apache-2.0

package hostfacts

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// call is a system call that levels cannot do without, made so that it does nothing: the
// kernel finds fault with its arguments, and a filter refuses it before.
type call struct {
	name   string
	nr     uintptr
	args   [6]uintptr
	levels string
	// root says that the level makes it as root alone.
	root bool
	// mounter says that the kernel itself refuses it to who may not mount, before it
	// looks at the arguments. Others may mount in a namespace alone, where it is not tried.
	mounter bool
}

const bad = ^uintptr(0) // no descriptor, no flags

// mounting and leaving are tried for real, but only both (mounts).
var (
	mounting = call{name: "mount", nr: unix.SYS_MOUNT, levels: "gvisor process"}
	leaving  = call{"unshare", unix.SYS_UNSHARE, [6]uintptr{}, "process", false, false}
)

var needed = []call{
	{"capset", unix.SYS_CAPSET, [6]uintptr{}, "gvisor process", false, false},
	{"chroot", unix.SYS_CHROOT, [6]uintptr{}, "gvisor", false, false},
	{"close_range", unix.SYS_CLOSE_RANGE, [6]uintptr{1, 0}, "process", false, false},
	{"execveat", unix.SYS_EXECVEAT, [6]uintptr{bad}, "process", false, false},
	{"fsconfig", unix.SYS_FSCONFIG, [6]uintptr{bad}, "process", false, false},
	{"fsmount", unix.SYS_FSMOUNT, [6]uintptr{bad}, "process", false, true},
	{"fsopen", unix.SYS_FSOPEN, [6]uintptr{0, bad}, "process", false, true},
	{"keyctl", unix.SYS_KEYCTL, [6]uintptr{bad}, "process", false, false},
	{"landlock_add_rule", unix.SYS_LANDLOCK_ADD_RULE, [6]uintptr{bad, 0, 0, bad}, "process", false, false},
	{"landlock_restrict_self", unix.SYS_LANDLOCK_RESTRICT_SELF, [6]uintptr{bad, bad}, "process", false, true},
	{"memfd_create", unix.SYS_MEMFD_CREATE, [6]uintptr{0, bad}, "gvisor process", false, false},
	{"mknodat", unix.SYS_MKNODAT, [6]uintptr{bad, 0, unix.S_IFREG}, "process", false, false},
	{"mount_setattr", unix.SYS_MOUNT_SETATTR, [6]uintptr{bad, 0, bad}, "process", false, false},
	{"move_mount", unix.SYS_MOVE_MOUNT, [6]uintptr{bad, 0, bad, 0, bad}, "gvisor process", false, true},
	{"open_tree", unix.SYS_OPEN_TREE, [6]uintptr{bad, 0, bad}, "gvisor", true, false},
	{"open_tree", unix.SYS_OPEN_TREE, [6]uintptr{bad, 0, bad}, "process", false, false},
	{"openat2", unix.SYS_OPENAT2, [6]uintptr{bad}, "gvisor process", false, false},
	{"pidfd_open", unix.SYS_PIDFD_OPEN, [6]uintptr{0, bad}, "process", false, false},
	{"pivot_root", unix.SYS_PIVOT_ROOT, [6]uintptr{}, "gvisor process", false, true},
	{"setdomainname", unix.SYS_SETDOMAINNAME, [6]uintptr{0, bad}, "process", false, true},
	{"setgroups", unix.SYS_SETGROUPS, [6]uintptr{bad}, "process", false, true},
	{"sethostname", unix.SYS_SETHOSTNAME, [6]uintptr{0, bad}, "process", false, true},
	{"setresgid", unix.SYS_SETRESGID, [6]uintptr{bad, bad, bad}, "process", false, false},
	{"setresuid", unix.SYS_SETRESUID, [6]uintptr{bad, bad, bad}, "process", false, false},
	{"umount2", unix.SYS_UMOUNT2, [6]uintptr{0, bad}, "gvisor process", false, false},
	leaving,
	mounting,
}

func realCall(c call) error {
	if _, _, errno := unix.Syscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5]); errno != 0 {
		return errno
	}
	return nil
}

// refused says whether a filter refuses a call. Filters of container engines say EPERM,
// or ENOSYS of a call that is newer than they are.
func (m *machine) refused(c call) bool {
	err := m.call(c)
	return err == unix.EPERM || err == unix.ENOSYS || err == unix.EACCES
}

// calls says for each level which of its system calls a filter on this process refuses.
func (m *machine) calls(f Facts) map[string]Fact {
	if !f.Seccomp {
		return nil // what this kernel has not is said by the levels
	}
	names := map[string][]string{}
	for _, c := range needed {
		switch {
		case c.root && !f.Root, c.mounter && !m.mayMount(), strings.HasPrefix(c.name, "landlock_") && f.Landlock == 0:
		case m.refused(c):
			for _, level := range strings.Fields(c.levels) {
				names[level] = append(names[level], c.name)
			}
		}
	}
	facts := map[string]Fact{}
	for level, refused := range names {
		if slices.Contains(refused, mounting.name) && !m.mayMount() { // the kernel says the same of it to an ordinary user
			refused = append(refused, "pivot_root")
		}
		slices.Sort(refused)
		facts[level] = m.profile(f, plural("the system call", refused)+strings.Join(refused, ", "), refused...)
	}
	return facts
}

func plural(what string, names []string) string {
	if len(names) > 1 {
		what += "s"
	}
	return what + " "
}
