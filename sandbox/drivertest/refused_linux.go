// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const refusedTo = "CAISSON_REFUSED_TO"

// Refused runs the test that calls it again, in a process to which the kernel refuses
// system calls, as the filter of a container may, and says whether that is this process.
func Refused(t *testing.T, calls ...uint32) bool {
	t.Helper()
	if os.Getenv(refusedTo) == t.Name() {
		filter(t, unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM), calls)
		return true
	}
	cmd := again(t)
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" (")) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// Killed runs the test that calls it again, with more in its environment, in a process
// that the kernel kills when it makes one of these system calls, with whatever it has
// half done by then, and says whether that is this process.
func Killed(t *testing.T, env []string, calls ...uint32) bool {
	t.Helper()
	if os.Getenv(refusedTo) == t.Name() {
		filter(t, unix.SECCOMP_RET_KILL_PROCESS, calls)
		return true
	}
	cmd := again(t)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	var end *exec.ExitError
	if !errors.As(err, &end) || end.Sys().(syscall.WaitStatus).Signal() != unix.SIGSYS {
		t.Errorf("it is not killed: %v\n%s", err, out)
	}
	return false
}

func again(t *testing.T) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), refusedTo+"="+t.Name())
	return cmd
}

// filter has all threads of this process get action for system calls.
func filter(t *testing.T, action uint32, calls []uint32) {
	t.Helper()
	list := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the number
	for _, nr := range calls {
		list = append(list, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: nr},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action})
	}
	list = append(list, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	prog := unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil { // the others have it with the filter
		t.Fatal(err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		t.Fatal(errno)
	}
}
