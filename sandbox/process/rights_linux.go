// SPDX-License-Identifier: Apache-2.0

package process

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/landlock"
	"github.com/caisson-run/caisson/sandbox"
)

// agentCapabilities are what the agent needs of the sandbox's own root: to
// become the user, to give files away, to signal, and to reach every file. They
// count in the sandbox's user namespace only, and programs get none of them.
const agentCapabilities = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_FSETID | 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETPCAP

// kept is what the sandbox's first program may have.
func (p *plan) kept() uint64 {
	if p.first.agent != nil && p.ids.private {
		return agentCapabilities
	}
	return 0
}

// lose takes from the builder, and so from all that it starts, what no program
// inside may ever have. What the builder has itself it keeps.
func (p *plan) lose(b *script) {
	b.doing("give up capabilities")
	keep := p.kept()
	for c := range lastCapability() + 1 {
		if keep&(1<<c) == 0 {
			b.call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
	}
	if keep == 0 {
		b.call(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, lockedBits, 0, 0, 0)
	}
}

// lockedBits make uid 0 a number like any other, for good (capabilities(7)):
// SECBIT_NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE with their locks, and
// the lock of KEEP_CAPS.
const lockedBits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// capabilities leaves a child the given ones and no others.
func (s *script) capabilities(keep uint64) {
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{}
	for i := range data {
		data[i].Effective = uint32(keep >> (32 * i))
		data[i].Permitted = data[i].Effective
	}
	s.call(unix.SYS_CAPSET, to(header), to(data))
}

// limit sets a resource limit for good. Where this process may have less, that is the
// limit: without CAP_SYS_RESOURCE no process gets more. 0 is not less where core files
// are concerned (rlimits).
func (s *script) limit(resource int, n uint64) {
	var own unix.Rlimit
	if unix.Getrlimit(resource, &own) == nil && own.Max > 0 {
		n = min(n, own.Max)
	}
	s.call(unix.SYS_PRLIMIT64, 0, resource, to(&unix.Rlimit{Cur: n, Max: n}), nil)
}

// rlimits are what the kernel holds for each process, and for all of the user's
// in the sandbox's user namespace (RLIMIT_NPROC).
func (p *plan) rlimits(s *script) {
	// Not 0: with it the kernel would still start the host's crash handler and
	// feed it; 1 is its sign for "nothing at all" (core(5), fs/coredump.c).
	s.limit(unix.RLIMIT_CORE, 1)
	l := p.spec.Limits
	if l.OpenFiles > 0 {
		s.limit(unix.RLIMIT_NOFILE, uint64(l.OpenFiles))
	}
	if l.FileSize > 0 {
		s.limit(unix.RLIMIT_FSIZE, uint64(l.FileSize))
	}
	if l.Processes > 0 {
		s.limit(unix.RLIMIT_NPROC, uint64(l.Processes+p.spare()))
	}
	s.limit(unix.RLIMIT_RTPRIO, 0)
	s.limit(unix.RLIMIT_NICE, 0)
	s.limit(unix.RLIMIT_MEMLOCK, 64<<10)
	s.limit(unix.RLIMIT_MSGQUEUE, 800<<10)
	s.limit(unix.RLIMIT_SIGPENDING, pendingSignals())
}

// maxSignals is more queued signals and timers (timer_create(2)) than programs have.
const maxSignals = 4096

// pendingSignals is how many signals may wait for the processes of a sandbox, timers
// included. The kernel counts them by user, and an ordinary user's sandboxes are all of
// that user: what one may have, at the most, is a sixteenth of what there is for all.
func pendingSignals() uint64 {
	var own unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_SIGPENDING, &own) != nil {
		return 0
	}
	return min(own.Cur/16, maxSignals)
}

// agentThreads is more than the agent ever has.
const agentThreads = 32

// filter installs a system call filter.
func (s *script) filter(f []unix.SockFilter) {
	p := &unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	s.keep = append(s.keep, f)
	s.call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, to(p))
}

// idleFilter is what init may do: become itself, and sleep.
func idleFilter() []unix.SockFilter {
	arch, pause := uint32(unix.AUDIT_ARCH_X86_64), uint32(34)
	if runtime.GOARCH == "arm64" {
		arch, pause = unix.AUDIT_ARCH_AARCH64, unix.SYS_PPOLL
	}
	const load, equal, give = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	return []unix.SockFilter{
		{Code: load, K: 4}, // seccomp_data.arch
		{Code: equal, K: arch, Jf: 5},
		{Code: load, K: 0}, // seccomp_data.nr
		{Code: equal, K: pause, Jt: 2},
		{Code: equal, K: unix.SYS_EXECVEAT, Jt: 1},
		{Code: equal, K: unix.SYS_RESTART_SYSCALL, Jf: 1},
		{Code: give, K: unix.SECCOMP_RET_ALLOW},
		{Code: give, K: unix.SECCOMP_RET_KILL_PROCESS},
	}
}

// restrict adds what the builder has mounted to the ruleset: everything may be
// read, scratch and what the operator gave away may be written.
func (p *plan) restrict(b *script) {
	if p.rules == nil {
		return
	}
	b.doing("write down what may be written")
	// What a program may write in /proc is the kernel's to say: its name, its
	// readiness to be killed.
	write := landlock.Write
	if p.spec.Executables == nil {
		b.allow(p.rules, landlock.Read, "/", true)
	} else {
		write = landlock.Change
		p.restrictPrograms(b)
	}
	b.allow(p.rules, landlock.Device, "/proc", true)
	b.allow(p.rules, landlock.Device, "/dev", true)
	for _, sc := range p.rootfs.scratch {
		b.allow(p.rules, write, sc.Target, true)
	}
	for _, m := range p.spec.Mounts {
		if m.Access != sandbox.ReadOnly {
			b.allow(p.rules, write, m.Target, m.Dir)
		}
	}
}

// allow adds one rule to a ruleset.
func (s *script) allow(r *landlock.Ruleset, a landlock.Access, target string, dir bool) {
	rule := r.Rule(a, dir)
	f := s.place(target)
	s.keep = append(s.keep, r, &rule)
	s.put(&rule.Parent_fd, f)
	s.call(unix.SYS_LANDLOCK_ADD_RULE, r.FD(), unix.LANDLOCK_RULE_PATH_BENEATH, to(&rule), 0)
	s.close(f)
}
