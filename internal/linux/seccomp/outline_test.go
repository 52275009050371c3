// SPDX-License-Identifier: Apache-2.0

//go:build linux

package seccomp

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The outline is never narrower than the filter, and nothing that the filter
// refuses whatever its arguments are is in it.
func TestOutline(t *testing.T) {
	for _, goarch := range []string{"amd64", "arm64"} {
		l, err := untrusted(goarch)
		if err != nil {
			t.Fatal(err)
		}
		allowed, refused, err := Outline(goarch)
		if err != nil {
			t.Fatal(err)
		}
		for number, name := range byNumber(goarch) {
			verdict, listed := l.calls[number]
			if !listed {
				verdict = l.other
			}
			for _, args := range tries(verdict) {
				if verdict.judge(args) == unix.SECCOMP_RET_ALLOW && !slices.Contains(allowed, name) {
					t.Errorf("%s: %s is allowed with %v and not in the outline", goarch, name, args)
				}
			}
			if verdict.same(errno(unix.EPERM)) != slices.Contains(refused, name) {
				t.Errorf("%s: %s is refused in one of the two", goarch, name)
			}
		}
		for _, name := range []string{"mount", "setns", "unshare", "bpf", "clone3", "ptrace", "io_uring_setup"} {
			if slices.Contains(allowed, name) {
				t.Errorf("%s: the outline allows %s", goarch, name)
			}
		}
	}
	if _, _, err := Outline("mips"); err == nil {
		t.Error("there is an outline for mips")
	}
}
