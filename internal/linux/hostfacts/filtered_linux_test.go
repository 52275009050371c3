// SPDX-License-Identifier: Apache-2.0

package hostfacts

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestMain, as the helper, puts on a filter like Docker's, which refuses
// clone with CLONE_NEWUSER, and prints what is found under it.
func TestMain(m *testing.M) {
	if os.Getenv("CAISSON_FACTS_HELPER") == "" {
		os.Exit(m.Run())
	}
	if err := refuseUserNS(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	here := realMachine()
	f := Facts{Root: here.euid == 0, Seccomp: here.status()["Seccomp"] == "2"}
	f.UserNS = here.userNS(f)
	_ = json.NewEncoder(os.Stdout).Encode(f)
	os.Exit(0)
}

// refuseUserNS installs the filter on all threads.
func refuseUserNS() error {
	const nr, flags = 0, 16 // offsets in struct seccomp_data: nr, low half of args[0]
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

func TestARealFilterIsBlamed(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "CAISSON_FACTS_HELPER=1")
	out, err := cmd.Output()
	var f Facts
	if err != nil || json.Unmarshal(out, &f) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if f.UserNS.OK || !f.Seccomp || !strings.Contains(f.UserNS.Why, "seccomp") || f.UserNS.Remedy == "" {
		t.Errorf("%+v", f)
	}
}
