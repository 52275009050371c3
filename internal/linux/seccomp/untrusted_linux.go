// SPDX-License-Identifier: Apache-2.0

package seccomp

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Untrusted is the filter for untrusted code, for GOARCH amd64 or arm64. It was
// assembled beforehand (assembled_linux.go), which would take each run longer than
// the kernel's own part; the caller must not change it. The slice may be handed to
// the kernel by a child that shares its parent's memory: it is never moved nor
// written again.
//
// What installs it can still execve, and close and write to descriptors, so it
// may be the last step before a program starts. It needs no_new_privs.
func Untrusted(goarch string) ([]unix.SockFilter, error) {
	switch goarch {
	case "amd64":
		return assembledAMD64, nil
	case "arm64":
		return assembledARM64, nil
	}
	return nil, fmt.Errorf("no system call filter for %s", goarch)
}

// untrusted puts the groups together. A call that no group names gets what
// unknown ones get, so a forgotten name is safe; TestEveryCallIsNamed finds it.
func untrusted(goarch string) (*list, error) { return newList(goarch, groups(), errno(unix.ENOSYS)) }

// newList makes a list of groups; other is what calls get that no group names.
func newList(goarch string, groups []group, other verdict) (*list, error) {
	l := &list{arch: unix.AUDIT_ARCH_X86_64, foreign: kill, calls: make(map[uint32]verdict, len(calls)), other: other}
	if goarch == "arm64" {
		l.arch = unix.AUDIT_ARCH_AARCH64
	}
	numbers := make(map[string]int16, len(calls))
	for _, c := range calls {
		numbers[c.name] = c.amd64
		if goarch == "arm64" {
			numbers[c.name] = c.arm64
		}
	}
	for _, g := range groups {
		for name := range strings.FieldsSeq(g.names) {
			n, known := numbers[name]
			if !known {
				return nil, fmt.Errorf("there is no system call %q", name)
			}
			if n < 0 {
				continue // another architecture's
			}
			if _, twice := l.calls[uint32(n)]; twice {
				return nil, fmt.Errorf("the system call %q is listed twice", name)
			}
			l.calls[uint32(n)] = g.verdict
		}
	}
	return l, nil
}

// Refused are the system calls that [Untrusted] answers with EPERM or ENOSYS
// whatever their arguments: names by number.
func Refused(goarch string) (map[int]string, error) {
	l, err := untrusted(goarch)
	if err != nil {
		return nil, err
	}
	names := make(map[int]string)
	for _, c := range calls {
		number := c.amd64
		if goarch == "arm64" {
			number = c.arm64
		}
		if v, ok := l.calls[uint32(number)]; number >= 0 && ok && (v.same(errno(unix.EPERM)) || v.same(errno(unix.ENOSYS))) {
			names[int(number)] = c.name
		}
	}
	return names, nil
}
