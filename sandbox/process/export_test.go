// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import "golang.org/x/sys/unix"

// Weaken leaves out of each launch from now on: the builder's namespaces (flags
// of clone), and the system calls for which out says so. The function that it
// returns undoes it.
func Weaken(flags uintptr, out func(who Who, call uintptr, args [6]uintptr) bool) (restore func()) {
	rewrite = func(l *launch) {
		l.without(flags)
		for who, s := range l.scripts {
			for i := range s.steps {
				st := &s.steps[i]
				if st.child == nil && st.value == nil && st.number == nil && out(Who(who), st.call, st.arg) {
					*st = step{call: unix.SYS_GETPID}
				}
			}
		}
	}
	return func() { rewrite = nil }
}

// ShareNetwork leaves out the network namespace that a thread makes for root's
// sandboxes.
func ShareNetwork() (restore func()) {
	was := leaveNetwork
	leaveNetwork = func() error { return nil }
	return func() { leaveNetwork = was }
}

// Who makes a system call.
type Who int

// The children, in the order of launch.scripts.
const (
	Builder Who = iota
	Init
	Program
)

// WaitForStage makes the stage, if it is not there yet. What is made next stands on it.
func WaitForStage() bool {
	if stages.made.Load() == nil {
		stages.made.Store(newStage())
	}
	return stages.made.Load() != nil
}
