// SPDX-License-Identifier: Apache-2.0

// Package threads makes a system call in every thread of this process, where it may be
// that there is no end to it, and gives what must not touch the others a thread of its own.
//
// Go makes such a call by a real-time signal to each thread, and spins until all of them have
// answered (syscall.AllThreadsSyscall). The kernel refuses such a signal while its user has
// as many waiting as the process may (RLIMIT_SIGPENDING), timers included, and Go does not
// look. So a process that shares its user with untrusted code, or with others, asks before
// whether there is room.
//
// It also takes from a process what all that it starts would inherit ([Attributes]).
package threads

import (
	"syscall"
	"unsafe"
)

// enough is more than the threads of a process that has just begun.
const enough = 16

// What there is to say where there is no room, and what to do.
const (
	Full   = "as many signals and timers wait as this user may have"
	Remedy = "end what holds them, or raise the limit (ulimit -i)"
)

// Call is [syscall.AllThreadsSyscall], or EAGAIN where no thread would answer.
func Call(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err syscall.Errno) {
	if !Room() {
		return 0, 0, syscall.EAGAIN
	}
	return syscall.AllThreadsSyscall(trap, a1, a2, a3)
}

// Room says whether enough signals may wait, for who makes several calls. The kernel keeps
// one ready for each timer, one that will never ring as well. Where it has no timers, or a
// filter of system calls does not let them be made, that is not known, and assumed.
func Room() bool {
	event := struct {
		_      uintptr
		_      int32
		notify int32
		_      [48]byte
	}{notify: 1} // SIGEV_NONE (sigevent(3))
	var made [enough]int32
	n, room := 0, true
	for n < enough {
		const monotonic = 1 // CLOCK_MONOTONIC
		_, _, errno := syscall.RawSyscall(syscall.SYS_TIMER_CREATE, monotonic, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&made[n])))
		if errno != 0 {
			room = errno != syscall.EAGAIN
			break
		}
		n++
	}
	for _, timer := range made[:n] {
		_, _, _ = syscall.RawSyscall(syscall.SYS_TIMER_DELETE, uintptr(timer), 0, 0)
	}
	return room
}
