// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// attempts are in the order in which they are made: what takes something apart
// for others comes last.
func attempts() []attempt {
	own := func(flags uintptr) *syscall.SysProcAttr {
		a := &syscall.SysProcAttr{Cloneflags: flags}
		if flags&unix.CLONE_NEWUSER != 0 {
			ids := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
			a.UidMappings, a.GidMappings = ids(unix.Getuid()), ids(unix.Getgid())
		}
		return a
	}
	apart := func() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
	return []attempt{
		{"F01", func(p *prober) { p.open("/proc/sys/kernel/core_pattern", unix.O_WRONLY) }, nil},
		{"F02", func(p *prober) { p.open("/proc/sysrq-trigger", unix.O_WRONLY) }, nil},
		{"F03", (*prober).helpers, nil},
		{"F04", (*prober).groupMount, own(unix.CLONE_NEWUSER | unix.CLONE_NEWNS)},
		{"F05", (*prober).devices, nil},
		{"F06", (*prober).byHandle, nil},
		{"F09", (*prober).hardLink, nil},
		{"F12", (*prober).prefixes, nil},
		{"F13", (*prober).spellings, nil},
		{"F14", (*prober).renames, nil},
		{"F15", (*prober).plantsNew, nil},
		{"F16", (*prober).plantsGit, nil},
		{"F17", (*prober).homes, nil},
		{"F18", (*prober).kernelFiles, nil},
		{"F19", (*prober).walks, nil},
		{"F22", (*prober).overlay, own(unix.CLONE_NEWUSER | unix.CLONE_NEWNS)},
		{"F25", (*prober).leases, nil},
		{"F26", (*prober).plantsRunnable, nil},
		{"K01", func(p *prober) { p.socket("AF_ALG", unix.AF_ALG, unix.SOCK_SEQPACKET, 0) }, nil},
		{"K02", (*prober).bit32, apart()},
		{"K03", (*prober).x32, apart()},
		{"K04", (*prober).ioURing, nil},
		{"K05", (*prober).netlinks, nil},
		{"K06", func(p *prober) { p.socket("AF_VSOCK", unix.AF_VSOCK, unix.SOCK_STREAM, 0) }, nil},
		{"K07", (*prober).rawSockets, nil},
		{"K08", (*prober).objects, nil},
		{"K09", (*prober).keys, nil},
		{"K10", func(p *prober) { p.try("have a user namespace", unix.Unshare(unix.CLONE_NEWUSER)) }, own(unix.CLONE_NEWUSER)},
		{"K11", (*prober).debug, nil},
		{"K12", (*prober).machine, apart()},
		{"K13", (*prober).privileges, nil},
		{"K14", (*prober).setUserID, nil},
		{"K15", (*prober).terminal, nil},
		{"K16", (*prober).signals, nil},
		{"K17", (*prober).stealDescriptor, nil},
		{"K19", func(p *prober) { p.say("be looked at") }, nil},
		{"K22", (*prober).siblings, nil},
		{"S01", (*prober).environment, nil},
		{"S02", (*prober).environments, nil},
		{"S03", (*prober).descriptors, nil},
		{"S04", func(p *prober) { p.say("be given a secret") }, nil},
		{"S08", (*prober).metadata, nil},
		{"N01", (*prober).loopback, nil},
		{"N03", (*prober).abstractSocket, nil},
		{"N04", (*prober).socketFiles, nil},
		{"L07", (*prober).leaveGroup, nil},
		{"K20", (*prober).junk, apart()},
		{"K21", (*prober).pools, apart()},
		{"F21", (*prober).remount, nil},
	}
}

// say marks a case as tried where the attempt itself gives no answer.
func (p *prober) say(what string) { say(Try{Case: p.id, What: what}) }
