// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"bytes"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// A system call that gVisor lacks, in the range of its table (userfaultfd, 1000) and
// beyond it, is an error to the program.
func TestMissingSystemCalls(t *testing.T) {
	var out, errs bytes.Buffer
	_, err := gvisor.New(gvisor.Options{}).Run(t.Context(), fixture(t), &sandbox.Exec{
		Argv: []string{"python3", "-c", `
import ctypes, errno
c = ctypes.CDLL(None, use_errno=True)
for n in 323, 1000, 5000, 1 << 40:
    print(c.syscall(ctypes.c_long(n), 0), errno.errorcode[ctypes.get_errno()])`},
		Dir: "/home/user", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &errs,
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := "-1 ENOSYS\n-1 ENOSYS\n-1 ENOSYS\n-1 ENOSYS\n"; out.String() != want {
		t.Errorf("it says %q, %q", &out, &errs)
	}
}
