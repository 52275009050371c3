// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync"
	"syscall"
	"unsafe"
)

// prlimit reads one of the agent's own limits.
func prlimit(resource uintptr, now *syscall.Rlimit) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, resource, 0, uintptr(unsafe.Pointer(now)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// setLimit sets one of them.
func setLimit(resource uintptr, to *syscall.Rlimit) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, resource, uintptr(unsafe.Pointer(to)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// boundingSet is the agent's own, which every program would inherit.
var boundingSet = sync.OnceValue(func() (set []uintptr) {
	for c := range uintptr(64) {
		if r, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prCapbsetRead, c, 0, 0, 0, 0); errno == 0 && r == 1 {
			set = append(set, c)
		}
	}
	return set
})

// hide keeps other processes of the same user, where the agent has no user of
// its own, from reading its memory and its open files.
func hide() error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetDumpable, 0, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// text is the Go string of a C one.
func text(b *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(b), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(b, n))
}
