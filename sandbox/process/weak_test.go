// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/attack/attacktest"
	"github.com/caisson-run/caisson/sandbox/process"
)

// out says which system calls of a launch are left out.
type out func(who process.Who, call uintptr, args [6]uintptr) bool

// calls leaves them out wherever they are made.
func calls(which ...uintptr) out {
	return func(_ process.Who, call uintptr, _ [6]uintptr) bool { return slices.Contains(which, call) }
}

// loopback is brought up in a network of one's own; the host's is up.
func loopback(_ process.Who, call uintptr, args [6]uintptr) bool {
	return call == unix.SYS_IOCTL && args[1] == unix.SIOCSIFFLAGS
}

// becoming a user without rights, in all its steps.
func becoming(who process.Who, call uintptr, args [6]uintptr) bool {
	switch call {
	case unix.SYS_PRCTL:
		return args[0] == unix.PR_CAPBSET_DROP || args[0] == unix.PR_SET_SECUREBITS
	case unix.SYS_CAPSET, unix.SYS_SETRESUID, unix.SYS_SETRESGID:
		return who == process.Program
	}
	return false
}

// With one protection out the escape suite finds out: exactly the cases about it
// turn red, on this level, whose code talks to the host's kernel itself.
func TestWithOneProtectionOut(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: what turns red is another list for an ordinary user")
	}
	for _, v := range []struct {
		name  string
		flags uintptr
		out   out
		red   string
	}{
		{"nothing", 0, calls(), ""},
		{"the system call filter", 0, calls(unix.SYS_SECCOMP), "F22 F25 K04 K05 K08 K09 K10 K12 K13 K20 K21 K22"},
		// A second wall: nothing is red while the first stands.
		{"Landlock", 0, calls(unix.SYS_LANDLOCK_RESTRICT_SELF), ""},
		{"closing descriptors", 0, calls(unix.SYS_CLOSE_RANGE), "K15 S03"},
		{"the network namespace", unix.CLONE_NEWNET, loopback, "K19 N01"},
		{"the IPC namespace", unix.CLONE_NEWIPC, calls(), "K19"},
		{"giving up capabilities", 0, becoming, "K13 K14"},
	} {
		t.Run(v.name, func(t *testing.T) {
			defer process.Weaken(v.flags, v.out)()
			attacktest.HasRed(t, process.New(process.Options{}), v.red)
		})
	}
}
