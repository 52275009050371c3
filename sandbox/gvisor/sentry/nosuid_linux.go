// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setIDBits are set-user-id and set-group-id.
const setIDBits = unix.S_ISUID | unix.S_ISGID

// modeArgs are the system calls that give a file its mode, and which argument
// the mode is. openat2 takes it in memory, where a filter cannot look; gVisor's
// own filters do not allow it.
var modeArgs = append([]modeArg{
	{unix.SYS_FCHMOD, 1},
	{unix.SYS_FCHMODAT, 2},
	{sysFchmodat2, 2},
	{unix.SYS_OPENAT, 3},
	{unix.SYS_MKNODAT, 2},
	{unix.SYS_MKDIRAT, 2},
}, oldModeArgs...)

type modeArg struct{ nr, arg uint32 }

const sysFchmodat2 = 452 // the same on every architecture

// refuseSetID makes the kernel refuse (EPERM), to this process and all that
// it starts, to give any file a set-user-id or set-group-id bit.
//
// Code inside may write to a directory that the operator mounted read-write.
// What it makes there belongs to the directory's owner, on the host too; with
// a set-user-id bit it would be a program that runs as the owner for anybody
// on the host who starts it: root's, where caisson runs as root. Mount options
// inside do not matter to the host, so the bit must never come to be. On
// scratch, which gVisor keeps to itself, the bits remain possible; gVisor
// ignores them on exec.
//
// The filter stands before gVisor's own, which is unchanged: the kernel asks
// all filters and takes the strictest answer (seccomp(2)).
func refuseSetID() error {
	program := setIDFilter()
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	const all = unix.SECCOMP_FILTER_FLAG_TSYNC
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, all, uintptr(unsafe.Pointer(&prog)))
	if errno == unix.EACCES {
		// Without privilege in this namespace the kernel wants a promise first.
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no_new_privs: %w", err)
		}
		tid, _, errno = unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, all, uintptr(unsafe.Pointer(&prog)))
	}
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if tid != 0 {
		return fmt.Errorf("seccomp: thread %d has a filter of its own", tid)
	}
	return nil
}

// setIDFilter is the BPF program. seccomp_data is nr, arch, instruction
// pointer, then six arguments of 8 bytes; the mode is in the low half, which
// comes first on the little-endian machines that gVisor runs on.
func setIDFilter() []unix.SockFilter {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		bits  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
	)
	program := []unix.SockFilter{{Code: load, K: 0}}
	for _, m := range modeArgs {
		program = append(program,
			unix.SockFilter{Code: equal, K: m.nr, Jf: 4},
			unix.SockFilter{Code: load, K: 16 + 8*m.arg},
			unix.SockFilter{Code: bits, K: setIDBits, Jf: 1},
			unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
			unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		)
	}
	return append(program, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
}
