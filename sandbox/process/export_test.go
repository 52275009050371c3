// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// Hold has every builder from now on tell by descriptor say that it has come to a place,
// and stop there: to read descriptor until, or, with mapping, for the map of its users.
func Hold(mapping bool, say, until int) {
	rewrite = func(l *launch) {
		told := step{call: unix.SYS_WRITE, arg: [6]uintptr{uintptr(say), uintptr(unsafe.Pointer(&noName)), 1}}
		for i := range l.scripts[Builder].steps {
			switch st := &l.scripts[Builder].steps[i]; {
			case mapping && st.call == unix.SYS_WRITE:
				*st = told
				return
			case !mapping && st.call == unix.SYS_SETDOMAINNAME:
				*st = told
			case !mapping && st.call == unix.SYS_KEYCTL:
				*st = step{call: unix.SYS_READ, arg: [6]uintptr{uintptr(until), uintptr(unsafe.Pointer(&noName)), 1}}
			}
		}
	}
}

// without leaves namespaces out of those that the builder gets.
func (l *launch) without(flags uintptr) {
	switch {
	case l.unshare != 0:
		l.scripts[0].steps[l.unshare].arg[0] &^= flags
	case l.args.flags != 0:
		l.args.flags &^= uint64(flags) // clone3's argument is a pointer
	default:
		l.builder.clone[1] &^= flags
	}
}

// LeaveUnknown leaves unknown children where they are, and has an end take at most
// limit. The function that it returns undoes it.
func LeaveUnknown(limit time.Duration) (restore func()) {
	was := endLimit
	endLimit = limit
	leaveUnknown.Store(true)
	return func() {
		leaveUnknown.Store(false)
		endLimit = was
	}
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

// ProcHidden are the names in the directory proc that are hidden inside.
var ProcHidden = procHidden
