// SPDX-License-Identifier: Apache-2.0

package threads

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Attributes are those of a thread that all that it starts inherits, and that what runs in
// a sandbox must not have of its owner's:
//
//   - a real-time policy (sched(7)), which goes before everybody else on the machine, and
//     which a limit on processors does not hold: the kernel's quota is for ordinary
//     processes (Documentation/scheduler/sched-bwc.rst);
//   - a nice value below 0, which has it take the greater part of a processor from others
//     (setpriority(2));
//   - the class of block I/O that goes first (ioprio_set(2));
//   - a word that keeps the kernel from killing it for want of memory
//     (proc_pid_oom_score_adj(5)): at -1000 a control group has no process to kill, and a
//     program at its memory limit hangs instead of ending;
//   - an address space that is laid out foreseeably, or where what can be read can be
//     executed (personality(2)), which programs have that are looked at in a debugger.
//
// A caisson has these from a service manager, from chrt, nice or setarch. What only makes
// it stand back, as an idle policy does, or a nice value above 0, is its user's wish, and
// stays.
type Attributes struct {
	RealTime    bool // its policy is a real-time one
	Favoured    bool // its nice value is below 0
	DiskFirst   bool // its block I/O goes first
	Foreseeable bool // it has another personality than most
	Protected   bool // the kernel would rather kill others
}

// Parameters of the calls that give it up.
const (
	WhoProcess  = 1       // IOPRIO_WHO_PROCESS
	Ordinary    = 0       // SCHED_OTHER, nice 0, IOPRIO_CLASS_NONE, PER_LINUX
	Unprotected = "0"     // what is written to oom_score_adj
	classShift  = 13      // of the class in an I/O priority
	classFirst  = 1       // IOPRIO_CLASS_RT
	resetOnFork = 1 << 30 // SCHED_RESET_ON_FORK, beside a policy
	niceNone    = 20      // getpriority says 20 less the nice value
	ask         = 1<<32 - 1
)

// OrdinaryPriority is struct sched_param of an ordinary policy, where the kernel finds it.
var OrdinaryPriority = new(int32)

// ReadAttributes reads those of the calling thread, and of its process. What a kernel does not have is
// not handed down, and what a filter of system calls, a container's for one, does not let
// be asked is taken for ordinary: it is no reason to run nothing. The policy is asked for
// by the call that kernels and filters have known for longest.
func ReadAttributes() (s Attributes, err error) {
	policy, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	if errno != 0 {
		return s, fmt.Errorf("the scheduling policy: %w", errno)
	}
	switch policy &^ resetOnFork {
	case unix.SCHED_FIFO, unix.SCHED_RR, unix.SCHED_DEADLINE:
		s.RealTime = true
	}
	prio, _, errno := unix.RawSyscall(unix.SYS_GETPRIORITY, unix.PRIO_PROCESS, 0, 0)
	s.Favoured = errno == 0 && prio > niceNone
	disk, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_GET, WhoProcess, 0, 0)
	s.DiskFirst = errno == 0 && disk>>classShift == classFirst
	now, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, ask, 0, 0)
	s.Foreseeable = errno == 0 && now != Ordinary
	s.Protected, err = protected()
	return s, err
}

func protected() (bool, error) {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return false, err
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return score < 0, err
}

// ResetAttributes gives all threads of this process, which has no C in it, and what it
// starts from now on those of others.
func ResetAttributes() error {
	s, err := ReadAttributes()
	if err != nil {
		return err
	}
	for _, c := range []struct {
		held bool
		what string
		call [4]uintptr
	}{
		{s.RealTime, "the scheduling policy", [4]uintptr{unix.SYS_SCHED_SETSCHEDULER, 0, Ordinary, uintptr(unsafe.Pointer(OrdinaryPriority))}},
		{s.Favoured, "the nice value", [4]uintptr{unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, Ordinary}},
		{s.DiskFirst, "the I/O priority", [4]uintptr{unix.SYS_IOPRIO_SET, WhoProcess, 0, Ordinary}},
		{s.Foreseeable, "the personality", [4]uintptr{unix.SYS_PERSONALITY, Ordinary}},
	} {
		if !c.held {
			continue
		}
		if _, _, errno := Call(c.call[0], c.call[1], c.call[2], c.call[3]); errno != 0 {
			return fmt.Errorf("giving up %s: %w", c.what, errno)
		}
	}
	if !s.Protected {
		return nil
	}
	return os.WriteFile("/proc/self/oom_score_adj", []byte(Unprotected), 0)
}
