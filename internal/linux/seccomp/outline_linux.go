// SPDX-License-Identifier: Apache-2.0

package seccomp

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Outline is Untrusted by names alone, for those who take a profile and no
// program, as container engines do: what it allows with some arguments at
// least, and what it refuses with EPERM; everything else gets ENOSYS. It is
// for around a filter that is exact, never instead of one. The names are sorted.
func Outline(goarch string) (allowed, refused []string, err error) {
	if goarch != "amd64" && goarch != "arm64" {
		return nil, nil, fmt.Errorf("no system call filter for %s", goarch)
	}
	here := make(map[string]bool, len(calls))
	for _, c := range calls {
		if goarch == "amd64" {
			here[c.name] = c.amd64 >= 0
		} else {
			here[c.name] = c.arm64 >= 0
		}
	}
	for _, g := range groups() {
		for name := range strings.FieldsSeq(g.names) {
			switch {
			case !here[name]:
			case g.verdict.mayAllow():
				allowed = append(allowed, name)
			case g.verdict.same(errno(unix.EPERM)):
				refused = append(refused, name)
			}
		}
	}
	slices.Sort(allowed)
	slices.Sort(refused)
	return allowed, refused, nil
}

// Name is the name of a system call of this machine's, "" of one that is not known.
func Name(number uintptr) string {
	for _, c := range calls {
		n := c.amd64
		if runtime.GOARCH == "arm64" {
			n = c.arm64
		}
		if n >= 0 && uintptr(n) == number {
			return c.name
		}
	}
	return ""
}

// mayAllow says whether there are arguments that v allows.
func (v verdict) mayAllow() bool {
	if v.test == nil {
		return v.action == unix.SECCOMP_RET_ALLOW
	}
	return v.test.then.mayAllow() || v.test.not.mayAllow()
}
