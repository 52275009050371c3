// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setID are the mode bits that make a program run as its owner.
const setID = unix.S_ISUID | unix.S_ISGID

// forbidSetID makes this process and all that it starts unable to set a
// set-user-id or set-group-id bit.
//
// What code inside writes into a read-write mount belongs to the operator. A
// program left there with these bits would run as the operator, or as root,
// for every local user who can reach it; no mount option of ours holds on the
// operator's own mount. gVisor passes the bits on, and its chmod then reports
// success while nothing was changed. Inside, on scratch and
// copy-on-write mounts, where they mean nothing to the host, they still work:
// those files are gVisor's own.
func forbidSetID() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	filter := setIDFilter()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// Offsets in struct seccomp_data (linux/seccomp.h); arguments are 64 bits
// long and the mode is in the lower half on both of our architectures, which
// are little-endian.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// setIDFilter is a program of classic BPF (seccomp(2)). gVisor's own filters
// are installed on top, and the strictest answer counts.
func setIDFilter() []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		anyBit = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
	)
	allow := unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW}
	refuse := unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	f := []unix.SockFilter{
		{Code: load, K: offsetArch},
		{Code: equal, K: auditArch, Jt: 1}, // a 32-bit call has other numbers
		refuse,
		{Code: load, K: offsetNumber},
	}
	for _, call := range modeCalls {
		f = append(f,
			unix.SockFilter{Code: equal, K: call.number, Jf: 4},
			unix.SockFilter{Code: load, K: offsetArgs + 8*call.arg},
			unix.SockFilter{Code: anyBit, K: setID, Jf: 1},
			refuse,
			allow,
		)
	}
	return append(f, allow)
}

// modeCall is a system call that takes a file mode as an argument.
type modeCall struct{ number, arg uint32 }
