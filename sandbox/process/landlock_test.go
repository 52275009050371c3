// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/internal/linux/landlock"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// layers stacks rulesets until the kernel takes no more. It takes 16
// (landlock(7), "Ruleset layers"), so who is in one already gets one less.
const layers = `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
handled = ctypes.c_uint64(1)
fd = libc.syscall(444, ctypes.byref(handled), 8, 0)
n = 0
while n < 100 and libc.syscall(446, fd, 0) == 0: n += 1
print(n)`

// Everything that Landlock refuses is refused by something else first, so only
// the kernel's count shows that it is there.
func TestLandlock(t *testing.T) {
	if landlock.ABI() < 2 {
		t.Skip("needs a kernel with Landlock")
	}
	var out strings.Builder
	res, err := process.New(process.Options{}).Run(t.Context(), fixture(t), &sandbox.Exec{
		Argv: []string{"/usr/bin/python3", "-I", "-S", "-c", layers}, Dir: "/tmp", Stdout: &out,
	})
	if err != nil || res.Status != sandbox.StatusSuccess {
		t.Fatal(res, err)
	}
	if out.String() != "15\n" {
		t.Errorf("%q further layers, want 15", out.String())
	}
}
