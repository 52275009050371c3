// SPDX-License-Identifier: Apache-2.0

// Package whole leads from one of the two programs in caisson's file to the other.
//
// The file that `make build` makes is two programs (internal/tools/onefile): a lean one
// (cmd/caisson-run) that `caisson run` begins in, and the whole one, which is all of
// caisson. Which of them a process becomes is decided by its arguments, before either
// has run. A run that the lean one has no packages for goes on in the other.
//
// It imports next to nothing, so that it can be used while packages are initialised.
package whole

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// Mark stands before the first argument of a process that is to be the whole program,
// whatever it is asked for. The entry of the file looks for it.
const Mark = '+'

// Before is called before this process becomes another program, which would have what
// it has begun for its children, and would not know of them; nil is nothing.
var Before func()

// Exec makes this process the whole program, with the same arguments and the same
// environment. It returns only when that cannot be done.
//
// It is for the first thread, in which packages are initialised: what the caller has set
// for that one alone, the signal for when the caller ends (PR_SET_PDEATHSIG) and how it
// is scheduled (SCHED_RESET_ON_FORK), no other has, and only the one that executes goes on.
func Exec() error {
	if Marked() {
		return errors.New("this program is a part of caisson, and does not run by itself")
	}
	if Before != nil {
		Before()
	}
	argv := append([]string{string(Mark) + os.Args[0]}, os.Args[1:]...)
	return syscall.Exec("/proc/self/exe", argv, os.Environ())
}

// Marked says that this process was started by [Exec].
func Marked() bool { return len(os.Args) > 0 && len(os.Args[0]) > 0 && os.Args[0][0] == Mark }

// Arrive takes the mark off again, and has the kernel call the process what it was
// called before. It is for package init, in the first thread.
func Arrive() {
	if !Marked() {
		return
	}
	os.Args[0] = os.Args[0][1:]
	const setName = 15 // PR_SET_NAME (prctl(2)): at most 15 bytes
	name := append([]byte("caisson"), 0)
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setName, uintptr(unsafe.Pointer(&name[0])), 0)
	runtime.KeepAlive(name)
}
